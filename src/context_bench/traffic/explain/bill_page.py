"""The bill by source, as tables for a terminal and as one HTML page that needs no server, network or script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from context_bench.core.measures import dollars
from context_bench.reports.charts import NARROW, svg
from context_bench.reports.page import BarPart, Chart, Figure
from context_bench.reports.table import Grid, share
from context_bench.reports.visible_text import plural, visible
from context_bench.traffic.explain import AMOUNTS, Explained
from context_bench.transcripts.cache_breaks import CAUSES
from context_bench.transcripts.format import NOT_JSON
from context_bench.transcripts.itemised import MISSING
from context_bench.transcripts.sources import KINDS, TokenSource

_LINES = 40  # of a terminal that everything is to fit
_SOURCES, _BREAKS = 8, 4
_REASONS = 3  # for which lines of logs were passed over, that are named
_DEAREST = 15  # sources in the picture of bars
_SHORT = 10  # characters that a figure's place on a telephone has room for
_WEB = "Drop a log here, or choose one. It goes to this process only; nothing is written, nothing leaves this machine."


def tokens(value: float) -> str:
    """A number of tokens in few characters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{value:,.0f}"


def money(value: float) -> str:
    """US dollars, without their sign."""
    return dollars(value).replace("$", "")


def title_of(kind: str, name: str = "") -> str:
    """A source as it is shown; kinds that have names are shortened where one stands."""
    source = TokenSource(kind, name)
    short = {"tools": "definition", "results": "result", "calls": "call", "memory": "", "images": "image"}
    return f"{short.get(kind, KINDS[kind])} {name}".strip() if name else source.title


def grids(told: Explained) -> list[Grid]:
    """The tables for a terminal: at most about 40 lines of 80 columns."""
    total = told.total
    found = [_kinds(told, total)]
    breaks = _breaks(told)
    reach = _reach(told, total)
    left = _LINES - len(found[0].rows) - 9 - sum(len(grid.rows) + 5 for grid in (*breaks, *reach))
    found.append(_sources(told, total, max(3, min(_SOURCES, left - 3))))
    return [Grid(answer(told), ()), *found, *breaks, *reach]


def answer(told: Explained) -> str:
    """Say in plain sentences what takes most of the bill and what could be had of it."""
    total, ranked = told.total, [pair for pair in told.ranked() if pair[0][0] != MISSING.kind]
    unit, whole = ("usd", total["usd"]) if total["usd"] else ("input", total["input"])
    if not whole or not ranked or not total["input"]:
        return "No tokens were billed in these sessions."
    what = "the bill" if unit == "usd" else "the prompt tokens"
    key, row = ranked[0]
    most = _amount(row, unit) / whole
    carried = share(total["carried"] / total["input"])
    told_so = [
        f"{carried} of the prompt tokens had been sent before; {share(most)} of {what} goes to "
        f"{visible(_plainly(*key), 60)}: a tool that touches nothing else saves at most that."
    ]
    missing = told.by_kind().get(MISSING.kind)
    if missing and _amount(missing, unit) > 0.05 * whole:
        part = share(_amount(missing, unit) / whole)
        told_so.append(f"{part} is in no text of the log (mostly system prompt and tool definitions).")
    broken = sum(one["usd"] for one in told.breaks.values())
    if unit == "usd" and broken > 0.01 * whole:
        cause = max(told.breaks.items(), key=lambda pair: pair[1]["usd"])[0]
        told_so.append(f"Broken caches cost {share(broken / whole)}, most of it by: {cause}.")
    return " ".join(told_so)


def _amount(row: Mapping[str, float], unit: str) -> float:
    return row["usd"] if unit == "usd" else row["read"] + row["written"] + row["plain"]


def _plainly(kind: str, name: str) -> str:
    """A source in the middle of a sentence."""
    said = {"tools": "definition of", "results": "results of", "calls": "calls of", "images": "images of"}
    return f"{said[kind]} {name}" if name and kind in said else title_of(kind, name)


def _row(row: Mapping[str, float], total: Mapping[str, float]) -> tuple[str, ...]:
    billed = row["read"] + row["written"] + row["plain"]
    return (
        tokens(row["new"]),
        f"×{row['carried'] / row['new']:,.1f}" if row["new"] >= 1 else "–",
        tokens(billed),
        share(row["read"] / billed if billed else None),
        tokens(row["output"]),
        money(row["usd"]),
        share(row["usd"] / total["usd"] if total["usd"] else None),
    )


_COLUMNS = ("source", "new", "again", "billed", "cached", "reply", "$", "of $")


def _kinds(told: Explained, total: Mapping[str, float]) -> Grid:
    rows: list[Sequence[str]] = [(KINDS[kind], *_row(row, total)) for kind, row in told.by_kind().items()]
    rows.append(("all", *_row(total, total)))
    return Grid(f"Where the tokens went: {headline(told)}", _COLUMNS, rows, _about(told))


def headline(told: Explained) -> str:
    """The sessions and their bill, in one line."""
    parts = ", ".join(f"{row['sessions']:,.0f} {name}" for name, row in told.parts.items() if name != "main")
    aside = f" ({parts})" if parts else ""
    mark = "≈" if told.approximate else ""
    sessions, requests = plural(told.sessions, "session"), plural(told.turns, "request")
    return f"{told.sessions:,} {sessions}{aside}, {told.turns:,} {requests}, {mark}${money(told.total['usd'])}"


def unseen_sentence(counts: Mapping[str, int]) -> str:
    """Say how many requests are in no sum, for no answered call was seen for them; empty for none. `counts`: by system,
    or under an empty name.
    """
    found = (
        f"{n:,} {plural(n, 'request')}{f' of {visible(name, 60)}' if name else ''}" for name, n in counts.items() if n
    )
    listed = ", ".join(found)
    why = "Not seen to be answered by the provider (failed, or answered on the way), and in none of these sums"
    return f"{why}: {listed}." if listed else ""


def _skipped(counts: Mapping[str, int]) -> str:
    """Say how many lines of logs were passed over, damaged ones first."""
    ranked = sorted(counts.items(), key=lambda pair: (pair[0] != NOT_JSON, -pair[1], pair[0]))
    shown = [f"{visible(why, 40)} {count:,}" for why, count in ranked[:_REASONS]]
    shown += [f"other reasons {sum(count for _, count in ranked[_REASONS:]):,}"] * (len(ranked) > _REASONS)
    number = sum(counts.values())
    lines = f"{number:,} {plural(number, 'line')} of the logs {'was' if number == 1 else 'were'} passed over"
    return f"{lines} ({', '.join(shown)})." if shown else ""


def _about(told: Explained) -> str:
    found = "new: first sent; again: sent again per new token; billed: prompt tokens over all requests."
    if told.approximate:
        found += " Shares ≈: our count, scaled to the bill."
    if told.stated < told.turns:
        found += f" {told.turns - told.stated:,} requests state no usage: predicted by the cache rules."
    if told.outputs_counted and told.stated:
        found += f" {told.outputs_counted:,} replies state no tokens: counted."
    if told.unpriced:
        found += f" {told.unpriced:,} requests of models without a known price are in no dollars."
    found += f" {unseen}" if (unseen := unseen_sentence({"": told.unseen})) else ""
    found += f" {skipped}" if (skipped := _skipped(told.skipped)) else ""
    return found


def _sources(told: Explained, total: Mapping[str, float], most: int) -> Grid:
    rows = [(visible(title_of(*key), 26), *_row(row, total)) for key, row in told.ranked() if key[0] != MISSING.kind]
    return Grid("Dearest sources", _COLUMNS, list(rows[:most]))


def _breaks(told: Explained) -> list[Grid]:
    if not told.breaks:
        return []
    rows = [
        (cause, f"{row['breaks']:,.0f}", tokens(row["lost"]), money(row["usd"]))
        for cause, row in sorted(told.breaks.items(), key=lambda pair: (-pair[1]["usd"], -pair[1]["lost"]))
    ]
    first = rows[0][0]
    return [Grid("Why the cache broke", ("cause", "breaks", "tokens", "$"), list(rows[:_BREAKS]), _advice(told, first))]


def _advice(told: Explained, cause: str) -> str:
    hour = ""
    if told.cache.get("hour_costs"):
        saves, costs = told.cache.get("hour_saves", 0.0), told.cache["hour_costs"]
        hour = f" Entries of an hour would have saved ${money(saves)} and cost ${money(costs)} more to write."
    return f"{cause}: {CAUSES[cause]}{hour}{_reads(told)}"


def _reads(told: Explained) -> str:
    cache = told.cache
    if not cache.get("prompt"):
        return ""
    stated, predicted = (share(cache[name] / cache["prompt"]) for name in ("stated", "predicted"))
    return f" From the cache: {stated} stated, {predicted} by the rules."


def _reach(told: Explained, total: Mapping[str, float]) -> list[Grid]:
    if not told.reach:
        return []
    rows: list[Sequence[str]] = []
    through = any("sent_tokens" in row for row in told.reach.values())
    for name, row in told.reach.items():
        turns = row["turns_weighed"] / row["standing"] if row["standing"] else None
        rows.append(
            (
                *(visible(name, 30), f"{row['items']:,.0f}", tokens(row["tokens"] + row["output"])),
                *(share(row["tokens"] / total["input"] if total["input"] else None), money(row["usd"])),
                share(row["usd"] / total["usd"] if total["usd"] else None),
                "–" if turns is None else f"{turns:,.0f}",
                *([share(row["saved_tokens"] / row["sent_tokens"] if row.get("sent_tokens") else None)] * through),
            )
        )
    columns = ("reach", "items", "tokens", "of input", "$", "of $", "turns", *(["achieved"] * through))
    about = (
        "The most that a tool could save which takes these away whole and costs nothing. It pays at once where they "
        "come in; taken out of a history that the cache holds, after so many further turns."
    )
    if through:
        about += (
            " The other figures are of what arrived. Achieved: the share of the reach, as it was sent, that the system "
            "did not send on."
        )
    return [Grid("What a tool could save at most", columns, rows, " ".join([about, *told.reached_nothing]))]


_IN_SHORT = 3  # items and reaches of a watch's summary


def in_short(bill: Mapping[str, Any], *, between: bool) -> list[Grid]:
    """The bill of a watch (`sections.bill_of`) in a few lines. `between`: a proxy stood there."""
    total, kinds = bill["total"], bill["by_kind"]
    rows: list[Sequence[str]] = [(KINDS[kind], *_row(row, total)) for kind, row in kinds.items() if _tokens(row)]
    mark = "≈" if bill["approximate"] else ""
    title = f"Where the tokens went: {bill['turns']:,} {plural(bill['turns'], 'request')}, {mark}${money(total['usd'])}"
    found = [Grid(title, _COLUMNS, rows, unseen_sentence({"": bill.get("unseen_turns", 0)}))]
    causes = sorted(bill["breaks"].items(), key=lambda pair: (-pair[1]["usd"], -pair[1]["lost"]))[:_BREAKS]
    lines: list[Sequence[str]] = [
        (cause, f"{row['breaks']:,.0f}", tokens(row["lost"]), money(row["usd"])) for cause, row in causes
    ]
    found += [Grid("Why the cache broke", ("cause", "breaks", "tokens", "$"), lines)] if lines else []
    items: list[Sequence[str]] = [
        (
            *(visible(title_of(item["kind"], item["name"]), 30), f"{item['turn']:,}", tokens(item["tokens"])),
            *(f"{item['times']:,}", money(item["usd"]), share(item["usd"] / total["usd"] if total["usd"] else None)),
        )
        for item in bill["dearest"][:_IN_SHORT]
    ]
    heads = ("item", "first in", "tokens", "sent", "$", "of $")
    found += [Grid("Dearest items (ten in --output json)", heads, items)] if items else []
    most = sorted(bill["reach"].items(), key=lambda pair: -pair[1]["sent"])[: 2 * _IN_SHORT]
    reach: list[Sequence[str]] = [
        (name, share(row["sent"]), *([share(row["achieved"])] * between)) for name, row in most
    ]
    columns = ("reach", "of what was sent", *(["achieved"] * between))
    found += [Grid("What a tool could save at most", columns, reach)] if reach else []
    if bill.get("partial"):
        found[-1].about += " " * bool(found[-1].about) + "Only the first sessions were counted: there were many."
    return found


def _tokens(row: Mapping[str, float]) -> float:
    return row["read"] + row["written"] + row["plain"] + row["output"]


_SAID = {
    "input_tokens": "prompts",
    "cache_read": "from the cache",
    "cache_write": "written",
    "output_tokens": "replies",
}


def wire_grids(check: Mapping[str, Any], log: Explained, wire: Explained | None) -> list[Grid]:
    """A log held against the wire (`WireCheck.as_dict`), and both by source where the wire's bodies were kept."""
    rows: list[Sequence[str]] = []
    for name, row in (*check["fields"].items(), ("$", check["usd"])):
        shown = money if name == "$" else tokens
        told = share(row["log"] / row["wire"] if row["wire"] else None)
        amounts = (shown(row[each]) for each in ("log", "wire"))
        rows.append((_SAID.get(name, name), *amounts, told, shown(row["missing"]), shown(row["corrected"])))
    calls = check["calls_in_both"]
    about = (
        f"{calls:,} {plural(calls, 'call')} in both, {check['missing_in_log']:,} on the wire alone (titles, counts, "
    )
    about += f"retries, what a log leaves out), {check['not_on_wire']:,} in the log alone. "
    about += "The last column is the bill corrected to the wire."
    if check["paired_by_order"]:
        about += f" {check['paired_by_order']:,} were paired by their order, for no count of theirs agrees."
    if untold := check["wire_states_no_usage"]:
        about += f" {untold:,} told no usage on the wire and {'is' if untold == 1 else 'are'} in none of its sums."
    columns = ("", "in the log", "on the wire", "told", "not in the log", "corrected")
    found = [Grid("The log against the wire", columns, rows, about)]
    found += _composition(log, wire) if wire is not None else []
    if check["quotas"]:
        found.append(_quotas(check["quotas"]))
    return found


def _composition(log: Explained, wire: Explained) -> list[Grid]:
    sides = [told.by_kind() for told in (log, wire)]
    rows = []
    for kind in KINDS:
        one, other = (_amount(side[kind], "input") if kind in side else 0.0 for side in sides)
        if one or other:
            part = share((one - other) / wire.total["input"] if wire.total["input"] else None)
            rows.append((KINDS[kind], tokens(one), tokens(other), part))
    about = (
        "Prompt tokens over all requests. What logs leave out is one row there, and stands by its source on the wire."
    )
    return [Grid("By source", ("source", "by the log", "by the wire", "of all"), list(rows), about)]


def _quotas(quotas: Mapping[str, Mapping[str, float]]) -> Grid:
    rows = [
        (visible(name, 40), *(share(told[each]) for each in ("used", "first", "last"))) for name, told in quotas.items()
    ]
    about = "As headers of the replies told; without the first reply's own part, and with what else ran on the account."
    return Grid("Of the quotas", ("quota", "this took", "used at first", "at last"), list(rows), about)


# Pictures and the page
# ------------------------------------------------------------------------


def areas(told: Mapping[str, Any]) -> Chart:
    """Prompt tokens by kind over the turns of one session."""
    series: Mapping[str, Sequence[float]] = told["series"]
    parts = [
        BarPart(KINDS[kind], str(place), Figure(value, "count"))
        for kind, values in series.items()
        for place, value in enumerate(values)
    ]
    about = "What stood in each prompt, by source, from the first request to the last."
    title = "The prompt, turn by turn"
    return Chart("areas", "areas", title, about, x=f"{told['turns']:,} requests", y="tokens", data=parts)


def bars(told: Explained) -> Chart:
    """Money by source, the dearest first; tokens where no price is known."""
    priced = told.total["usd"] > 0
    parts: list[BarPart] = []
    for key, row in told.ranked()[:_DEAREST]:
        value = row["usd"] if priced else row["read"] + row["written"] + row["plain"] + row["output"]
        parts.append(BarPart(visible(title_of(*key), 40), "", Figure(value, "usd" if priced else "count")))
    unit = "US dollars" if priced else "tokens"
    return Chart("amounts", "amounts", "Dearest sources", f"{unit}, all requests together.", x=unit, y="", data=parts)


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "html{color-scheme:light dark;--shade:#8888}@media(prefers-color-scheme:dark){html{--shade:#000c}}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "div{overflow-x:auto;background:linear-gradient(to right,Canvas 30%,transparent) left/3rem 100% no-repeat local,"
    "linear-gradient(to left,Canvas 30%,transparent) right/3rem 100% no-repeat local,"
    "linear-gradient(to right,var(--shade),transparent) left/.9rem 100% no-repeat scroll,"
    "linear-gradient(to left,var(--shade),transparent) right/.9rem 100% no-repeat scroll}"
    "th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884}"
    "th:first-child,td:first-child,.words td{text-align:left}svg{max-width:100%;height:auto}"
    ".answer{font-size:1.25rem;font-weight:600}"
    "td+td{white-space:nowrap}.words td{white-space:normal}"
    "@media screen and (max-width:40rem){body{margin:1rem auto}h1{font-size:1.4rem}h2{font-size:1.15rem}"
    "th,td{padding:.2rem .35rem}.wide{display:none}"
    ".figures,.figures tbody{display:block}.figures thead{position:absolute;clip-path:inset(50%)}"
    ".figures tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(4.4rem,1fr));gap:.2rem .6rem;"
    "padding:.5rem 0;border-bottom:1px solid #8884}.figures td{border:0;padding:0;text-align:left}"
    ".figures td:first-child{grid-column:1/-1;font-weight:600}.figures td+td{white-space:normal}"
    ".figures .long{grid-column:span 2}"
    ".figures td::before{content:attr(data-of);display:block;font-size:.8rem;opacity:.75}}"
    "@media print,(min-width:40.01rem){.narrow{display:none}}"
    "@media print{body{margin:0;padding:0;max-width:none}h1,h2{break-after:avoid}tr,svg{break-inside:avoid}"
    "div{overflow:visible}th,td{padding:.1rem .6rem}}"
    "#drop{border:2px dashed #8888;border-radius:.5rem;padding:2rem;text-align:center}"
)


def html(told: Explained, *, texts: bool = False) -> str:
    """The page. Names and texts must have been taken out of `told` where they are not to be in it (`nameless`)."""
    total = told.total
    parts = [f'<p class="answer">{_safe(answer(told))}</p><p>{_safe(headline(told))}.</p>']
    if told.longest.get("series"):
        parts.append(f"<h2>The dearest session, turn by turn</h2>{_drawn(areas(told.longest))}")
    parts.append(f"<h2>Dearest sources</h2>{_drawn(bars(told))}")
    parts += [_table(grid) for grid in _reach(told, total)]
    for grid in _breaks(told):
        parts.append(_table(grid))
        parts.append(_table(_causes(told)))
    parts += [_table(_items(told, texts)), _table(_kinds(told, total))]
    if told.sessions > 1:
        parts.append(_table(_sessions(told)))
    parts.append(_table(replace(_sources(told, total, _LINES), title="All sources, the dearest first")))
    return page("Where the tokens went", "".join(parts))


def _drawn(chart: Chart) -> str:
    """The drawing twice: for a window, and one for a telephone, which a wide one would not fit."""
    return f'<div class="wide">{svg(chart)}</div><div class="narrow">{svg(chart, width=NARROW)}</div>'


def page(title: str, body: str, script: str = "", policy: str = "") -> str:
    """One HTML document. Without `policy` nothing but its own style is allowed."""
    rules = policy or "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_safe(title)}</title>'
    secure = f'<meta http-equiv="Content-Security-Policy" content="{rules}">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}{secure}<style>{_STYLE}</style></head>'
        f"<body><h1>{_safe(title)}</h1>{body}{script}</body></html>\n"
    )


def drop_page(script: str, policy: str) -> str:
    """The page that takes a log."""
    form = f'<p id="drop"><label>{_WEB}<br><input type="file" id="file"></label></p><div id="found"></div>'
    return page("Where do the tokens go?", form, script, policy)


def _items(told: Explained, texts: bool) -> Grid:
    """The dearest items, each with what the bill would have been without it."""
    whole = told.total
    rows: list[Sequence[str]] = []
    for item in told.dearest:
        without = whole["usd"] - item["usd"]
        row = [
            *(visible(title_of(item["kind"], item["name"]), 48), f"{item['turn']:,}", tokens(item["tokens"])),
            *(f"{item['times']:,}", tokens(item["input"]), money(item["usd"])),
            f"{money(without)} ({share(item['usd'] / whole['usd'] if whole['usd'] else None)} less)",
        ]
        rows.append([*row, visible(item.get("text", ""), 120)] if texts else row)
    columns = ("item", "first in turn", "tokens", "sent", "billed", "$", "all without it, $")
    about = "Without it: the same session, the item never sent; what the model would have done then is not known."
    return Grid("Ten dearest items", (*columns, "begins") if texts else columns, rows, about)


def _causes(told: Explained) -> Grid:
    rows = [(cause, CAUSES[cause]) for cause in told.breaks]
    return Grid("What follows", ("cause", "advice"), list(rows), words=True)


def _sessions(told: Explained) -> Grid:
    rows = [
        (
            *(visible(row["id"], 40), row["part"], visible(row["model"], 40)),
            *(f"{row['turns']:,}", tokens(row["input"]), tokens(row["output"]), money(row["usd"])),
        )
        for row in told.listed
    ]
    return Grid("Dearest sessions", ("session", "part", "model", "requests", "prompts", "replies", "$"), list(rows))


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{_safe(column)}</th>" for column in grid.columns)
    heads = [f' data-of="{_safe(column)}"' if place else "" for place, column in enumerate(grid.columns)]
    body = "".join(
        f"<tr>{''.join(_cell(of, cell) for of, cell in zip(heads, row, strict=True))}</tr>" for row in grid.rows
    )
    about = f"<p>{_safe(grid.about)}</p>" if grid.about else ""
    kind = "words" if grid.words else "figures"  # which a telephone shows as blocks of named figures
    title = f"<h2>{_safe(grid.title)}</h2>"
    return f"{title}<div><table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{about}"


def _cell(of: str, text: str) -> str:
    long = ' class="long"' if of and len(text) > _SHORT else ""
    return f"<td{of}{long}>{_safe(text)}</td>"


def _safe(text: str) -> str:
    return escape(visible(text, 2_000))


def sums(told: Explained) -> Iterator[tuple[str, float]]:
    """Figures for `--min` and `--max`."""
    total = told.total
    yield from ((name, total[name]) for name in (*AMOUNTS, "input"))
    yield "cache_breaks", sum(row["breaks"] for row in told.breaks.values())
    if total["input"]:
        yield "cached_share", total["read"] / total["input"]
        missing = told.by_kind().get("missing", {})
        yield "missing_share", sum(missing.get(name, 0.0) for name in ("read", "written", "plain")) / total["input"]
