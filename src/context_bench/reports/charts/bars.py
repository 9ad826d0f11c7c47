"""Charts of bars: failures by class, and savings and costs of strategies."""

from __future__ import annotations

from collections import Counter
from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import (
    GREY,
    INK,
    PALETTE,
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

_OTHERS = "others"
_BAR = 10  # pixels of a bar


def draw_failures(chart: Chart, width: int) -> Any:
    """Failures by class: a bar for each system, its parts the classes.

    As shares of each system's rows; the eight commonest classes have a colour of their own.
    """
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


def draw_strategies(chart: Chart, width: int) -> Any:
    """Savings of strategies in tokens, and their cost in money: for each of them a group of bars.

    As shares; a line at 1, the untouched session. The first part is grey, the others have colours.
    """
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
