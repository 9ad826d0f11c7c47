"""Charts of bars: failures by class, savings and costs of strategies, and prompt tokens request by request.

The last has a plot for each system, with stacked bars of what the prompt cache served, what had to be read again
because the prompt changed, and what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from context_bench.reports.charts.drawing import (
    Axis,
    ChartRow,
    Drawing,
    Rows,
    percent,
    plain,
    shortened,
)
from context_bench.reports.charts.style import GREY, MOST, PALETTE, SIZE, ShownNames, cycled, extent, narrow, nice
from context_bench.reports.page import BarPart, Chart, TurnBar

_OTHERS = "others"
_BAR = 10  # pixels of a bar


def draw_failures(chart: Chart, width: int) -> Drawing:
    """Failures by class: a bar for each system, its parts the classes.

    As shares of each system's rows; the eight commonest classes have a colour of their own.
    """
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
    colors = dict(zip([*own, _OTHERS], [*PALETTE[: len(own)], GREY], strict=True))
    totals = {name: sum(part.amount.value for part in parts if part.name == name) for name in systems}
    rows = Rows([ChartRow(names[name], _total(totals[name], of[name])) for name in systems], width, thick=16)
    most = max((totals[name] / (of[name] or 1) for name in systems), default=0.0)
    low, high, ticks = nice(0.0, most or 1.0, 4 if rows.narrow else 6)
    axis = Axis(low, min(high, 1.0), rows.plot)
    drawing = rows.drawing()
    drawing.below(axis, [tick for tick in ticks if tick <= axis.high], percent, chart.x)
    for name, at in zip(systems, rows.at, strict=True):
        start = 0.0
        for kind, times in _failures(parts, name, own):
            share = times / (of[name] or 1)
            tip = f"{classes[kind]}: {times:,} of {of[name] or 1:,} ({100 * share:.1f} %)"
            drawing.rect(axis.at(start), at - 8, axis.at(share) - axis.at(0), 16, colors[kind], tip)
            start += share
    drawing.legend(
        [("square", colors[kind], classes[kind]) for kind in colors if kind in common or len(common) > len(own)], width
    )
    return drawing


def _total(count: float, of: int) -> str:
    return f"{count:,.0f} of {of:,}" if of else f"{count:,.0f}"


def _failures(parts: Sequence[BarPart], name: str, own: Sequence[str]) -> list[tuple[str, int]]:
    """Classes of failures of a system, and how often each occurred; the rare ones are together."""
    found: Counter[str] = Counter()
    for part in parts:
        if part.name == name:
            found[part.part if part.part in own else _OTHERS] += int(part.amount.value)
    return [(kind, found[kind]) for kind in [*own, _OTHERS] if found[kind]]


def draw_strategies(chart: Chart, width: int) -> Drawing:
    """Savings of strategies in tokens, and their cost in money: for each of them a group of bars.

    As shares; a line at 1, the untouched session. The first part is grey, the others have colours.
    """
    parts = chart.of(BarPart)
    strategies = list(dict.fromkeys(part.name for part in parts))[:MOST]
    names, measures = ShownNames(strategies), ShownNames([part.part for part in parts])
    rows = Rows([ChartRow(names[name]) for name in strategies], width, thick=_BAR * len(measures.shown) + 4)
    at = dict(zip(strategies, rows.at, strict=True))
    order = {name: place for place, name in enumerate(measures.shown)}
    colors = [GREY, *cycled(len(measures.shown) - 1)]
    low, high, ticks = nice(*extent([1.0, *(part.amount.value for part in parts)], zero=True), 4 if rows.narrow else 6)
    axis = Axis(low, high, rows.plot)
    drawing = rows.drawing()
    drawing.below(axis, ticks, plain, chart.x)
    for part in parts:
        if part.name in at:
            place = order[measures[part.part]]
            top = at[part.name] + _BAR * (place - len(order) / 2)
            tip = f"{names[part.name]}, {measures[part.part]}: {part.amount.text}"
            drawing.rect(axis.at(0), top, axis.at(part.amount.value) - axis.at(0), _BAR - 1, colors[place], tip)
    drawing.line((axis.at(1), 0), (axis.at(1), rows.height), dash="4,3", opacity=0.6)
    drawing.legend([("square", color, name) for color, name in zip(colors, measures.shown, strict=True)], width)
    return drawing


#: (field, name, colour), from the foot of a bar to its top.
PARTS = (
    ("cached", "from the cache", "#3b7dd8"),
    ("rewritten", "rewritten", "#c9611a"),
    ("new", "new or not cached", GREY),
)
MOST_PLOTS = 12
_LEFT = 66
_BETWEEN = 56  # pixels between two plots side by side


def draw_waterfall(chart: Chart, width: int) -> Drawing:
    """The plots, two side by side where there is room, all on one scale."""
    turns = chart.of(TurnBar)
    systems = list(dict.fromkeys(turn.name for turn in turns))[:MOST_PLOTS]
    names = ShownNames(systems, longest=44)
    columns = 1 if narrow(width) or len(systems) == 1 else 2
    plot = (width - _LEFT - 24 - (columns - 1) * _BETWEEN) // columns
    height = 150 if len(systems) > 1 else 240
    step = height + 26 + SIZE + 26
    last = max(turn.last for turn in turns)
    _, high, y_ticks = nice(0.0, max(turn.cached + turn.rewritten + turn.new for turn in turns) or 1.0, 4)
    _, _, x_ticks = nice(1, max(last, 2), 4 if columns == 2 or narrow(width) else 8)
    numbers = sorted({1, *(int(tick) for tick in x_ticks if tick == int(tick) and 1 < tick <= last)})
    across, up = Axis(0.5, last + 0.5, plot), Axis(0.0, high, height)
    lines = (len(systems) + columns - 1) // columns
    whole = Drawing(columns * plot + (columns - 1) * _BETWEEN, lines * step - 26 - SIZE)
    whole.margins(left=_LEFT, right=24, top=SIZE + 26)
    for place, system in enumerate(systems):
        one = Drawing(plot, height)
        one.text(0, -32, names[system], bold=True, size=SIZE + 1, room=plot)
        one.beside(up, y_ticks, shortened, chart.y if place % columns == 0 else None)
        one.below(across, numbers, plain, chart.x if place + columns >= len(systems) else None)
        for turn in turns:
            if turn.name == system:
                _stack(one, turn, names[system], across, up)
        whole.place(one, (place % columns) * (plot + _BETWEEN), (place // columns) * step)
    whole.margins(foot=22)
    whole.legend([("square", color, name) for _, name, color in PARTS], width)
    return whole


def _stack(drawing: Drawing, turn: TurnBar, name: str, across: Axis, up: Axis) -> None:
    """The bar of a request, or of several that share one."""
    which = f"request {turn.first:,}" if turn.first == turn.last else f"requests {turn.first:,} to {turn.last:,}, mean"
    tip = f"{name}, {which}: " + ", ".join(f"{getattr(turn, part):,.0f} {said}" for part, said, _ in PARTS)
    gap = min(0.12, 0.06 * (turn.last - turn.first + 1))
    left, right = across.at(turn.first - 0.5 + gap), across.at(turn.last + 0.5 - gap)
    low = 0.0
    for part, _, color in PARTS:
        if amount := getattr(turn, part):
            drawing.rect(left, drawing.height - up.at(low + amount), right - left, up.at(amount), color, tip)
            low += amount
