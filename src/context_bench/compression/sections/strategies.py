"""The chart of tokens saved and money spent by strategies, and a page of its own with its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from context_bench.compression.strategies import StrategyRow
from context_bench.reports.charts import svg
from context_bench.reports.page import BarPart, Chart, Figure
from context_bench.reports.table import Grid, number, share
from context_bench.reports.text import visible

_TOKENS = "tokens sent"
TITLE = "Tokens saved and money spent, by strategy"
ABOUT = (
    "Grey: tokens sent, as a share of those of the untouched session. Colours: what the session costs, as a "
    "share of the same, by billing."
)


def strategies_chart(rows: Mapping[str, Sequence[StrategyRow]], title: str = TITLE) -> Chart:
    """Tokens and cost of each strategy; `rows`: name of the billing → its rows, the same strategies in each."""
    parts: list[BarPart] = []
    for place, row in enumerate(next(iter(rows.values()))):
        parts.append(_part(row, _TOKENS, 1 - row.token_saving))
        parts += [
            _part(found[place], f"cost: {visible(name, 40)}", found[place].cost_ratio or 0.0)
            for name, found in rows.items()
        ]
    return Chart(
        "strategies", "strategies", title, ABOUT, x="share of the untouched session (1 = the same)", y="", data=parts
    )


def _part(row: StrategyRow, what: str, share: float) -> BarPart:
    return BarPart(row.strategy, what, Figure(share, "number", digits=3))


def strategies_page(rows: Mapping[str, Sequence[StrategyRow]], title: str = TITLE) -> str:
    """The picture with its table as one HTML file that needs no network and no script."""
    table = strategy_table(rows)
    head = "".join(f"<th>{escape(visible(cell))}</th>" for cell in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(visible(cell))}</td>" for cell in row) + "</tr>" for row in table[1:])
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color-scheme:light "
        "dark}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884}"
        "th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}div{overflow-x:auto}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(visible(title))}</title><style>{style}</style></head><body><h1>{escape(visible(title))}</h1>"
        f"<p>{escape(ABOUT)}</p><div>{svg(strategies_chart(rows))}</div><div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        "</body></html>\n"
    )


def strategy_table(table: Mapping[str, Sequence[StrategyRow]]) -> list[tuple[str, ...]]:
    """Strategies by row, what they do to tokens and prefixes, then their cost ratio under each billing; the head
    first.
    """
    first = next(iter(table.values()))
    head = ("strategy", "saving", "CPS", "PS", "breaks", "rewritten", *table, "break-even")
    rows = []
    for position, row in enumerate(first):
        costs = [number(rows[position].cost_ratio) for rows in table.values()]
        measures = (share(row.token_saving), number(row.cacheable_prefix_share, 3), number(row.prefix_stability, 3))
        rows_of = (
            row.strategy,
            *measures,
            f"{row.prefix_breaks:,}",
            f"{row.rewritten_tokens:,}",
            *costs,
            number(row.break_even, 1),
        )
        rows.append(rows_of)
    return [head, *rows]


def _cost(row: Mapping[str, Any]) -> str:
    """The session's cost, and where it is from."""
    if row["cost_usd"] is None:
        return "—"
    counted = "≈" if row["cost_from"] == "log" and row["recorded"].get("predicted_outputs") else ""
    return f"{counted}${row['cost_usd']:,.4f}{' (rules)' if row['cost_from'] == 'rules' else ''}"


def cache_grids(
    recorded: Sequence[Mapping[str, Any]], tables: Mapping[str, Mapping[str, Sequence[StrategyRow]]]
) -> list[Grid]:
    """Sessions as recorded, and strategies on each. `tables`: session → billing → its strategies."""
    grids = []
    if recorded:
        rows = [
            (
                f"{row['session']} ({row['profile']})",
                f"{row['requests']:,}",
                f"{row['tokens']:,}",
                share(row.get("token_saving")),
                number(row["cacheable_prefix_share"], 3),
                number(row["prefix_stability"], 3),
                f"{row['prefix_breaks']:,}",
                f"{row['rewritten_tokens']:,}",
                share(row["recorded"].get("stated_read_share")),
                share(row["recorded"].get("rebuilt_share")),
                _cost(row),
                number(row.get("cost_ratio")),
            )
            for row in recorded
        ]
        columns = (
            "session",
            "requests",
            "tokens",
            "saved",
            "CPS",
            "PS",
            "breaks",
            "rewritten",
            "cache (log)",
            "rebuilt",
            "cost",
            "ratio",
        )
        about = (
            "CPS: share of prompt tokens that the cache can serve; PS: share of the previous prompt repeated "
            "at the start of the next."
        )
        about += (
            " Cache (log): share of the prompt that came from the cache, as the log states; rebuilt: share of the "
            "billed prompt that its"
            " texts explain. Cost: what the log says was billed (≈: some replies were counted here); (rules): "
            "predicted by the cache"
            " rules; —: not known."
        )
        without = [(row["session"], why) for row in recorded if (why := row["recorded"].get("no_verdict"))]
        about += "".join(f" {session}: no strategy is priced, {why}." for session, why in without)
        if without:
            about += (
                " Record one session's requests with 'context-bench watch --record full --records FILE', and "
                "give FILE here."
            )
        if not all(row["times_known"] for row in recorded):
            about += " Where times of requests are not known, cache entries are taken to live on."
        grids.append(Grid("As recorded", columns, list(rows), about))
    for name, table in tables.items():
        head, *lines = strategy_table(table)
        about = (
            "Under each billing: cost as a multiple of the untouched session's, without the compressor's own calls; "
            "each prompt is stored"
            " whole. Break-even: turns until the first rewrite has paid for itself."
        )
        grids.append(Grid(f"Strategies on {name}", head, list(lines), about))
    return grids
