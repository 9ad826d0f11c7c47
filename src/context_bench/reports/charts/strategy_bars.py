"""Savings of strategies in tokens, and their cost in money: for each of them a group of bars."""

from __future__ import annotations

from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import (
    GREY,
    INK,
    TIP,
    ShownNames,
    axis,
    cycled,
    extent,
    fixed,
    inline,
    legend,
    nice,
    scale,
)
from context_bench.reports.page import BarPart, Chart

_BAR = 10  # pixels of a bar


def draw(chart: Chart, width: int) -> Any:
    """The bars as shares; a line at 1, the untouched session. The first part is grey, the others have colours."""
    import altair as alt

    parts = chart.of(BarPart)
    strategies = list(dict.fromkeys(part.name for part in parts))[:MOST]
    names, measures = ShownNames(strategies), ShownNames([part.part for part in parts])
    rows = Rows([ChartRow(names[name]) for name in strategies], width, thick=_BAR * len(measures.shown) + 4)
    at = dict(zip(strategies, rows.at, strict=True))
    order = {name: place - len(measures.shown) / 2 for place, name in enumerate(measures.shown)}
    low, high, ticks = nice(*extent([1.0, *(part.amount.value for part in parts)], zero=True), 4 if rows.narrow else 6)
    values = []
    for part in parts:
        if part.name in at:
            top = at[part.name] + _BAR * order[measures[part.part]]
            tip = f"{TIP}{names[part.name]}, {measures[part.part]}: {part.amount.text}"
            told = {
                "part": measures[part.part],
                "zero": 0.0,
                "value": part.amount.value,
                "top": top,
                "foot": top + _BAR - 1,
            }
            values.append({**told, "tip": tip})
    colors = [GREY, *cycled(len(measures.shown) - 1)]
    color = alt.Color(
        "part:N", sort=None, scale=alt.Scale(domain=measures.shown, range=colors), legend=legend(width, measures.shown)
    )
    plain = scale(low, high)
    x = alt.X("zero:Q", title=chart.x, scale=plain, axis=axis(ticks))
    bars = (
        inline(values)
        .mark_rect()
        .encode(
            x=x,
            x2=alt.X2("value:Q"),
            y=rows.y("top"),
            y2=alt.Y2("foot:Q"),
            color=color,
            description=alt.Description("tip:N"),
        )
    )
    one = inline([{"value": 1}]).mark_rule(strokeDash=[4, 3], opacity=0.6)
    upright = one.encode(
        x=alt.X("value:Q", scale=plain), y=fixed("Y", 0), y2=fixed("Y2", rows.height), color=fixed("Color", INK)
    )
    return rows.layered(bars, upright)
