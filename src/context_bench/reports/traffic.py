"""Sections on what went over the wire: tokens, what was changed on the way, money, time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.core.numbers import number
from context_bench.reports.arm_aggregates import Line, Tally, quantile
from context_bench.reports.material import Material, figure, interval_of, mapping
from context_bench.reports.page import Cell, Column, Figure, Section, Table
from context_bench.wire.violations import NOTES

_WIRE = (
    (
        "calls_per_request",
        "calls/request",
        "number",
        "requests that reached the provider for one of ours; above 1: extra calls",
    ),
    ("extra_calls", "extra calls", "count", "requests to the provider beyond ours"),
    ("unmatched", "unmatched", "count", "requests to the provider that could not be attributed"),
    ("role_changes", "roles changed", "count", "messages that arrived under another role"),
    ("param_changes", "params changed", "count", "parameters added, removed or changed"),
    ("truncated", "truncated", "count", "examples billed for much less than was forwarded: cut without saying so"),
    ("violations", "violations", "count", "breaks of the protocol, such as tool results without their call"),
    ("uncounted_parts", "not counted", "count", "images, files and other parts without text"),
    ("late", "late", "count", "requests that came after the reply"),
)
_ALWAYS = (
    "calls_per_request",
    "unmatched",
    "role_changes",
    "param_changes",
    "violations",
)  # shown at 0 too: 0 is what one wants to read


def tokens(material: Material) -> Section | None:
    """Sent, forwarded, billed; where the forwarded count comes from; compression and growth."""
    if not any(each.sent.n or each.forwarded.n or each.billed.n for _, each in material.lines):
        return None
    if material.replaced("tokens") and all(
        set(each.sources) <= {"context"} and not each.billed.n for _, each in material.lines
    ):
        return None  # nothing was sent to a model; what became of the sessions' tokens has a section of its own
    columns = [
        Column("System", False),
        Column(
            "sent", about="tokens our client sent; of a system that shortens before it asks: of the request before that"
        ),
        Column("forwarded", about="tokens that went on to the model"),
        Column("billed", about="prompt tokens on the provider's bill"),
        Column("compression (95 %)", about="1 − forwarded / sent; negative: the prompt grew"),
        Column(
            "seen by",
            False,
            about="who counted the forwarded tokens: the tap, the provider's usage, or the context a Python system "
            "returned",
        ),
        Column("cached", about="billed tokens read from the provider's cache"),
        Column("reply", about="completion tokens"),
        Column("grew", about="examples whose prompt got longer on the way"),
        Column("n", about="examples with both sent and forwarded tokens"),
    ]
    rows: list[list[Cell]] = [
        [material.label(line), *_token_cells(material, line, each)] for line, each in material.lines
    ]
    about = "Mean tokens per example. Compression = 1 - forwarded/sent, over examples where both are known."
    if any(isinstance(cell, Figure) and cell.approximate for row in rows for cell in row):
        about += " ≈: counted by a tokenizer that is not the model's."
    return Section("tokens", "Tokens", tables=[Table("tokens", columns, rows, about=about)])


def _token_cells(material: Material, line: Line, each: Tally) -> list[Cell]:
    inexact = bool(each.inexact) or material.wire.get(line[0], {}).get("exact") is False
    counted_here = inexact and set(each.sources) != {"usage"}
    return [
        figure(sent_mean(each), "tokens", approximate=inexact),
        figure(forwarded_mean(each), "tokens", approximate=counted_here),
        figure(each.billed.value, "tokens"),
        interval_of(material, line, "compression_ratio", each.compression, "share"),
        _sources(each),
        figure(each.cached.value, "tokens"),
        figure(each.completion.value, "tokens"),
        Figure(each.grown, "count") if each.paired_sent.n else None,
        Figure(each.paired_sent.n, "count") if each.paired_sent.n else None,
    ]


def sent_mean(each: Tally) -> float | None:
    """Mean tokens sent, over the rows where the forwarded ones are known too, if there are any."""
    return each.paired_sent.value if each.paired_sent.n else each.sent.value


def forwarded_mean(each: Tally) -> float | None:
    """Mean tokens forwarded, over the rows where the sent ones are known too, if there are any."""
    return each.paired_forwarded.value if each.paired_forwarded.n else each.forwarded.value


def _sources(each: Tally) -> str | None:
    if len(each.sources) < 2:
        return next(iter(each.sources), None)
    return ", ".join(f"{name} {n}" for name, n in each.sources.most_common())


def wire(material: Material) -> Section | None:
    """Figures of the tap besides tokens: extra calls, changed roles and parameters, lost keys, truncation."""
    told = list(_told(material))
    shown = [
        entry
        for entry in _WIRE
        if any(_amount(facts.get(entry[0])) if entry[0] not in _ALWAYS else entry[0] in facts for _, facts in told)
    ]
    keyed = any("authorization_forwarded" in facts for _, facts in told)
    if not shown and not keyed:
        return None
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in shown)]
    columns += [Column("key passed on", False, about="did the provider get the key we sent")] if keyed else []
    rows: list[list[Cell]] = []
    for label, facts in told:
        cells: list[Cell] = [
            figure(_amount(facts.get(key)), unit, digits=2 if unit == "number" else None) for key, _, unit, _ in shown
        ]
        rows.append([label, *cells, *([_yes(facts.get("authorization_forwarded"))] if keyed else [])])
    tables = [Table("wire", columns, rows, about="As the tap saw it, over all examples of a system.")]
    if changes := [row for label, facts in told for row in _changes(label, facts)]:
        headings = [Column("System", False), Column("what", False), Column("times")]
        tables.append(Table("changes", headings, changes, title="What was changed"))
    return Section("wire", "On the wire", tables=tables)


def _told(material: Material) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, facts) of everything the tap saw."""
    for line, each in material.lines:
        facts = material.wire.get(line[0], {}) if material.whole(line) else each.seen.facts()
        if facts:
            yield material.label(line), facts
    split = dict.fromkeys(system for (system, shape), _ in material.lines if not material.whole((system, shape)))
    for system in split:  # what only the run knows, such as unmatched calls, has no shape
        facts = {
            name: value
            for name, value in mapping(material.result.wire.get(system)).items()
            if name in ("unmatched", "violations") and value
        }
        if facts:
            yield f"{system} · all shapes", facts
    lines = {system for system, _ in material.found.lines}
    yield from ((system, facts) for system, facts in material.wire.items() if system not in lines)


def _amount(value: Any) -> float | None:
    """Count of something that is given as a number, as a list, or as counts by kind."""
    if isinstance(value, dict):
        return sum(found for kind, item in value.items() if kind not in NOTES and (found := _amount(item)) is not None)
    return len(value) if isinstance(value, list) else number(value)


def _yes(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{100 * share:.0f} %" if (share := number(value)) is not None else str(value) if value is not None else None


def _changes(label: str, facts: dict[str, Any]) -> list[list[Cell]]:
    """One line per kind of change: told by name with a count, or as a list."""
    rows: list[list[Cell]] = []
    for key in ("violations", "changes", "role_changes", "param_changes"):
        told = facts.get(key)
        if isinstance(told, list):
            texts = [
                f"{item.get('kind', key)}: {item.get('detail', '')}" if isinstance(item, dict) else str(item)
                for item in told
            ]
            told = {text: texts.count(text) for text in dict.fromkeys(texts)}
        if isinstance(told, dict):
            rows += [[label, str(what), figure(_amount(times), "count")] for what, times in told.items()]
    return rows


def money(material: Material, manifest: dict[str, Any], ready: dict[str, dict[str, Any]]) -> Section | None:
    """US dollars, where prices are known, and what of the prompts was read from the provider's cache.

    `ready`: what set-ups of groups came to, by system; they are in the total, once.
    """
    paid = {system: cost for system, told in ready.items() if (cost := number(told.get("cost"))) is not None}
    if not paid and not any(each.cost.n for _, each in material.lines):
        return None
    known = {line: _money_cells(material, line, each, paid) for line, each in material.lines}
    columns = [
        entry
        for entry in _MONEY
        if entry[0] in ("price", "total", "n") or any(cells.get(entry[0]) for cells in known.values())
    ]
    titles = {"saved": f"saved against {material.baseline}"}
    table = Table(
        "money",
        [Column("System", False), *(Column(titles.get(name, title), about=about) for name, title, about in columns)],
        [[material.label(line), *(cells.get(name) for name, _, _ in columns)] for line, cells in known.items()],
        about=_about_money(manifest, {name for name, _, _ in columns}),
    )
    cache = any(name in ("cached", "written") for name, _, _ in columns)
    return Section("money", "Money and cache" if cache else "Money", tables=[table])


_MONEY = (
    ("price", "per 1,000 examples (95 %)", ""),
    ("saved", "saved", "share of the money per example; negative: it costs more"),
    (
        "cached",
        "from cache",
        "share of the billed prompt tokens that the provider read from its cache, at its lower price",
    ),
    ("written", "written to cache", "share of the billed prompt tokens that were written to the provider's cache"),
    ("set-up", "set-up", "getting groups ready, before any question"),
    ("total", "total", "all attempts, failed ones and set-up included"),
    ("n", "n", "examples with a known price"),
)


def _money_cells(material: Material, line: Line, each: Tally, paid: dict[str, float]) -> dict[str, Cell]:
    once = paid.pop(line[0], None)  # with a system's first line
    known = [cost for cost in (once, each.cost.total if each.cost.n else None) if cost is not None]
    base = (material.baseline or "", line[1])
    billed = each.billed.total
    return {
        "price": interval_of(material, line, "cost_usd", each.cost.value, "usd", scale=1000),
        "saved": None if line == base else saved_money(material, line, base),
        "cached": figure(each.cached.total / billed, "share") if billed and each.cached.total else None,
        "written": figure(each.written.total / billed, "share") if billed and each.written.total else None,
        "set-up": figure(once, "usd"),
        "total": figure(sum(known) if known else None, "usd"),
        "n": Figure(each.cost.n, "count"),
    }


def saved_money(material: Material, line: Line, base: Line) -> Figure | None:
    """Share of the money per example that a line saves against another one; `None` unless both were paid for on as many
    examples.
    """
    own, other = (material.found.lines.get(each) for each in (line, base))
    if own is None or other is None or not own.cost.n or own.cost.n != other.cost.n or not other.cost.total:
        return None
    return Figure(1 - own.cost.total / other.cost.total, "share")


def saved_tokens(material: Material, line: Line, base: Line) -> Figure | None:
    """Share of the forwarded tokens that a line saves against another one; `None` unless both have them of as many
    examples.
    """
    own, other = (material.found.lines.get(each) for each in (line, base))
    if (
        own is None
        or other is None
        or not own.forwarded.n
        or own.forwarded.n != other.forwarded.n
        or not other.forwarded.total
    ):
        return None
    return Figure(1 - own.forwarded.total / other.forwarded.total, "share")


def _about_money(manifest: dict[str, Any], shown: set[str]) -> str:
    prices = mapping(manifest.get("prices"))
    parts = [
        f"at the price of {prices['model']}" if prices.get("model") else "",
        str(prices.get("source") or ""),
        str(prices.get("date") or ""),
    ]
    about = "US dollars" + "".join(f", {part}" for part in parts if part) + "."
    if "cached" in shown:
        about += (
            " What the provider read from its cache is billed at its cache price; a system that rewrites "
            "history gives this discount away."
        )
    return about


def time(material: Material) -> Section | None:
    """Latency and time to first token."""
    if not any(any(each.latency) for _, each in material.lines):
        return None
    if material.replaced("time") and not any(each.ttft or each.billed.n for _, each in material.lines):
        return None  # no model answered; what compressing took stands with the sizes
    columns = [
        Column("System", False),
        Column("median (95 %)"),
        Column("p95"),
        Column("mean"),
        Column("TTFT median (95 %)", about="time to the first token of a streamed reply"),
        Column("TTFT p95"),
        Column("n"),
    ]
    rows: list[list[Cell]] = [
        [material.label(line), *_time_cells(material, line, each)] for line, each in material.lines
    ]
    about = "Seconds per example without time spent waiting for a slot or in back-off; failed rows left out."
    return Section("time", "Latency", tables=[Table("time", columns, rows, about=about)])


def _time_cells(material: Material, line: Line, each: Tally) -> list[Cell]:
    told = material.summary.get(line[0], {}) if material.whole(line) else {}
    mean = sum(each.latency) / len(each.latency) if each.latency else None
    return [
        interval_of(
            material, line, "latency_median", told.get("latency_median", quantile(each.latency, 0.5)), "seconds"
        ),
        figure(told.get("latency_p95", quantile(each.latency, 0.95)), "seconds"),
        figure(told.get("latency_mean", mean), "seconds"),
        interval_of(material, line, "ttft_median", quantile(each.ttft, 0.5), "seconds"),
        figure(quantile(each.ttft, 0.95), "seconds"),
        Figure(len(each.latency), "count"),
    ]
