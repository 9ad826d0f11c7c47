"""Charts of bars: failures by class, savings and costs of strategies, and prompt tokens request by request.

The last has a plot for each system, with stacked bars of what the prompt cache served, what had to be read again
because the prompt changed, and what is new.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from context_bench.reports.charts.style import (
    FONT,
    GREY,
    INK,
    MOST,
    PALETTE,
    SIZE,
    TIP,
    ChartRow,
    Rows,
    ShownNames,
    axis,
    cycled,
    extent,
    fixed,
    inline,
    legend,
    narrow,
    nice,
    scale,
)
from context_bench.reports.page import BarPart, Chart, TurnBar

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


#: (field, name, colour), from the foot of a bar to its top.
PARTS = (
    ("cached", "from the cache", "#3b7dd8"),
    ("rewritten", "rewritten", "#c9611a"),
    ("new", "new or not cached", GREY),
)
MOST_PLOTS = 12
_LEFT = 66
_SHORT = "datum.value == 0 ? '0' : format(datum.value, '~s')"


def draw_waterfall(chart: Chart, width: int) -> Any:
    """The plots, two side by side where there is room, all on one scale."""
    import altair as alt

    turns = chart.of(TurnBar)
    systems = list(dict.fromkeys(turn.name for turn in turns))[:MOST_PLOTS]
    names = ShownNames(systems, longest=44)
    columns = 1 if narrow(width) or len(systems) == 1 else 2
    plot = (width - _LEFT - 24 - (columns - 1) * 56) // columns
    last = max(turn.last for turn in turns)
    _, high, y_ticks = nice(0.0, max(turn.cached + turn.rewritten + turn.new for turn in turns) or 1.0, 4)
    _, _, x_ticks = nice(1, max(last, 2), 4 if columns == 2 or narrow(width) else 8)
    x_ticks = sorted({1, *(int(tick) for tick in x_ticks if tick == int(tick) and 1 < tick <= last)})
    shown = [name for _, name, _ in PARTS]
    colors = alt.Scale(domain=shown, range=[hue for *_, hue in PARTS])
    plots = []
    for place, system in enumerate(systems):
        foot, side = place + columns >= len(systems), place % columns == 0
        x = alt.X(
            "start:Q",
            title=chart.x if foot else None,
            scale=scale(0.5, last + 0.5),
            axis=axis(x_ticks, ",d", grid=False),
        )
        y = alt.Y(
            "low:Q",
            title=chart.y if side else None,
            scale=scale(0.0, high),
            axis=alt.Axis(values=y_ticks, labelExpr=_SHORT),
        )
        color = alt.Color("part:N", sort=None, scale=colors, legend=legend(width, shown))
        bars = inline(
            [bar for turn in turns if turn.name == system for bar in _token_bars(turn, names[system])]
        ).mark_rect()
        bars = bars.encode(
            x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("high:Q"), color=color, description=alt.Description("tip:N")
        )
        plots.append(
            bars.properties(width=plot, height=150 if len(systems) > 1 else 240, title=_heading(names[system], plot))
        )
    return alt.concat(*plots, columns=columns, spacing=26)


def _heading(name: str, room: int) -> dict[str, Any]:
    look = {"anchor": "start", "frame": "group", "color": INK, "fontSize": SIZE + 1, "font": FONT, "fontWeight": 600}
    return {"text": name, "limit": room, "offset": 8, **look}


def _token_bars(turn: TurnBar, name: str) -> list[dict[str, Any]]:
    which = f"request {turn.first:,}" if turn.first == turn.last else f"requests {turn.first:,} to {turn.last:,}, mean"
    tip = f"{TIP}{name}, {which}: " + ", ".join(f"{getattr(turn, part):,.0f} {said}" for part, said, _ in PARTS)
    made, low = [], 0.0
    gap = min(0.12, 0.06 * (turn.last - turn.first + 1))
    for part, said, _ in PARTS:
        if amount := getattr(turn, part):
            made.append(
                {
                    "name": name,
                    "part": said,
                    "start": turn.first - 0.5 + gap,
                    "end": turn.last + 0.5 - gap,
                    "low": low,
                    "high": low + amount,
                    "tip": tip,
                }
            )
            low += amount
    return made
