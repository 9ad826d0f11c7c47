"""Failures by class: a bar for each system, its parts the classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import GREY, PALETTE, TIP, ShownNames, axis, inline, legend, nice, scale
from context_bench.reports.page import BarPart, Chart

_OTHERS = "others"


def draw(chart: Chart, width: int) -> Any:
    """The bars, as shares of each system's rows; the eight commonest classes have a colour of their own."""
    import altair as alt

    parts = chart.of(BarPart)
    systems = list(dict.fromkeys(part.name for part in parts))[:MOST]
    names = ShownNames(systems)
    of = {part.name: part.of or 0 for part in parts}
    sums: Counter[str] = Counter()
    for part in parts:
        sums[part.part] += int(part.amount.value)
    common = [kind for kind, times in sums.most_common() if times]
    own = common[: len(PALETTE)]
    classes = ShownNames(own + ([_OTHERS] if len(common) > len(own) else []), longest=40)
    totals = {name: sum(part.amount.value for part in parts if part.name == name) for name in systems}
    rows = Rows([ChartRow(names[name], _total(totals[name], of[name])) for name in systems], width, thick=16)
    most = max((totals[name] / (of[name] or 1) for name in systems), default=0.0)
    low, high, ticks = nice(0.0, most or 1.0, 4 if rows.narrow else 6)
    high = min(high, 1.0)
    values = [
        value
        for name, at in zip(systems, rows.at, strict=True)
        for value in _bars(parts, name, at, own, classes, of[name] or 1)
    ]
    x = alt.X(
        "start:Q", title=chart.x, scale=scale(low, high), axis=axis([tick for tick in ticks if tick <= high], ".3~p")
    )
    colors = [*PALETTE[: len(own)], *([GREY] if len(common) > len(own) else [])]
    color = alt.Color(
        "part:N",
        sort=None,
        scale=alt.Scale(domain=classes.shown, range=colors),
        legend=legend(width, classes.shown) if own else None,
    )
    bars = (
        inline(values)
        .mark_rect()
        .encode(
            x=x,
            x2=alt.X2("end:Q"),
            y=rows.y("top"),
            y2=alt.Y2("foot:Q"),
            color=color,
            description=alt.Description("tip:N"),
        )
    )
    return rows.layered(bars)


def _total(count: float, of: int) -> str:
    return f"{count:,.0f} of {of:,}" if of else f"{count:,.0f}"


def _bars(
    parts: list[BarPart], name: str, at: float, own: list[str], classes: ShownNames, of: int
) -> list[dict[str, Any]]:
    found: Counter[str] = Counter()
    for part in parts:
        if part.name == name:
            found[part.part if part.part in own else _OTHERS] += int(part.amount.value)
    values, start = [], 0.0
    for kind in [*own, _OTHERS]:
        if times := found[kind]:
            end = start + times / of
            tip = f"{TIP}{classes[kind]}: {times:,} of {of:,} ({100 * times / of:.1f} %)"
            values.append(
                {"part": classes[kind], "start": start, "end": end, "top": at - 8, "foot": at + 8, "tip": tip}
            )
            start = end
    return values
