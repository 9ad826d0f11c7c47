"""Prompt tokens request by request: a plot for each system, stacked bars of what the prompt cache served, what had to
be read again because the prompt changed, and what is new.
"""

from __future__ import annotations

from typing import Any

from context_bench.reports.charts.style import (
    FONT,
    GREY,
    INK,
    SIZE,
    TIP,
    ShownNames,
    axis,
    inline,
    legend,
    narrow,
    nice,
    scale,
)
from context_bench.reports.page import Chart, TurnBar

#: (field, name, colour), from the foot of a bar to its top.
PARTS = (
    ("cached", "from the cache", "#3b7dd8"),
    ("rewritten", "rewritten", "#c9611a"),
    ("new", "new or not cached", GREY),
)
MOST_PLOTS = 12
_LEFT = 66
_SHORT = "datum.value == 0 ? '0' : format(datum.value, '~s')"


def draw(chart: Chart, width: int) -> Any:
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
        bars = inline([bar for turn in turns if turn.name == system for bar in _bars(turn, names[system])]).mark_rect()
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


def _bars(turn: TurnBar, name: str) -> list[dict[str, Any]]:
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
