"""Charts of bars and of intervals.

Bars: failures by class, savings and costs of strategies, and prompt tokens request by request. The last has a plot for
each system, with stacked bars of what the prompt cache served, what had to be read again because the prompt changed,
and what is new.

The card of a run: for each system the answer in a word, what it saves, and its difference with the interval.

A line for each name and, on it, values with their intervals: scores by dimension (dots), paired differences to the
baseline under the part of the data they are about (forest), and the spread of values: a dot for one in twenty, a stroke
at the median, a thin one at p95 (distribution).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from context_bench.core.measures import percent
from context_bench.reports.charts.drawing import (
    Axis,
    ChartRow,
    Drawing,
    Rows,
    percent_tick,
    plain,
    rows_of,
    shortened,
    signed,
)
from context_bench.reports.charts.style import (
    GREY,
    MOST,
    PALETTE,
    SIZE,
    TONES,
    ShownNames,
    cycled,
    extent,
    letters,
    narrow,
    nice,
)
from context_bench.reports.page import BarPart, Card, Chart, Figure, Gap, Rated, ScoreChange, Spread, TurnBar
from context_bench.reports.visible_text import visible

_OTHERS = "others"
_BAR = 10  # pixels of a bar
_MOST_BESIDE = 3  # figures that stand beside a group of bars


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
    drawing.below(axis, [tick for tick in ticks if tick <= axis.high], percent_tick, chart.x)
    for name, at in zip(systems, rows.at, strict=True):
        start = 0.0
        for kind, times in _failures(parts, name, own):
            share = times / (of[name] or 1)
            tip = f"{classes[kind]}: {times:,} of {of[name] or 1:,} ({percent(share)})"
            here = rows_of(name, failed="1", **({"q": kind} if kind in own else {}))
            drawing.rect(axis.at(start), at - 8, axis.at(share) - axis.at(0), 16, colors[kind], tip, rows=here)
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
    amounts = {name: [part.amount.short for part in parts if part.name == name] for name in strategies}
    beside = [" · ".join(amounts[name]) if len(amounts[name]) <= _MOST_BESIDE else "" for name in strategies]
    labels = [ChartRow(names[name], told) for name, told in zip(strategies, beside, strict=True)]
    rows = Rows(labels, width, thick=_BAR * len(measures.shown) + 4)
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


_STEP = 11  # pixels between the marks of one dimension


def draw_dots(chart: Chart, width: int) -> Drawing:
    """The marks; names stand below one another within a dimension, in the order of the legend."""
    rated = chart.of(Rated)
    names = ShownNames([each.name for each in rated], chart.names)
    dimensions = list(dict.fromkeys(each.dimension for each in rated))[:MOST]
    rows = Rows([ChartRow(visible(each, 48)) for each in dimensions], width, thick=_STEP * len(names.shown) + 8)
    at = dict(zip(dimensions, rows.at, strict=True))
    order = {name: place - (len(names.shown) - 1) / 2 for place, name in enumerate(names.shown)}
    look = dict(zip(names.shown, zip(names.shapes(), names.colors(), strict=True), strict=True))
    shown = [each for each in rated if each.dimension in at]
    ends = extent([end for each in shown for end in (each.score.value, each.score.low, each.score.high)], chart.span)
    low, high, ticks = nice(*ends, 5)
    axis, drawing = Axis(low, high, rows.plot), rows.drawing()
    drawing.below(axis, ticks, plain, chart.x)
    reach = rows.thick / 2 + (20 if rows.narrow else 3)
    for middle in rows.at[1:]:  # faint lines part the dimensions
        drawing.line((0, middle - reach), (rows.plot, middle - reach), opacity=0.15)
    for each in shown:
        name = drawing.owner = names[each.name]
        shape, color = look[name]
        tip = f"{name}, {visible(each.dimension, 48)}: {each.score.text}"
        y = at[each.dimension] + _STEP * order[name]
        _interval(drawing, axis, each.score, y, color, 1.75)
        here = rows_of(each.name, layout="rows", sort=f"score:{each.dimension}")
        drawing.mark(shape, axis.at(each.score.value), y, color, tip=tip, rows=here)
    drawing.owner = ""
    drawing.legend([(*look[name], name) for name in names.shown], width)
    return drawing


def _interval(drawing: Drawing, axis: Axis, figure: Figure, y: float, color: str, width: float) -> None:
    """The line from one end of a figure's interval to the other, if it has one."""
    if figure.low is not None and figure.high is not None:
        start, end = (axis.at(figure.low), y), (axis.at(figure.high), y)
        drawing.line(start, end, color=color, width=width, opacity=0.75)


def draw_forest(chart: Chart, width: int) -> Drawing:
    """Intervals as rules, differences as marks: disc for a good verdict, square for a bad one, ring for an open one."""
    gaps, part = chart.of(Gap)[:MOST], "kind" if chart.id == "forest-types" else "dataset"
    names = ShownNames([gap.name for gap in gaps], chart.names)
    lines, places = _lines(gaps, names, brief=narrow(width))
    rows = Rows(lines, width, thick=14)
    margins = sorted({-gap.margin for gap in gaps if gap.margin})
    ends = [end for gap in gaps for end in (gap.difference.value, gap.difference.low, gap.difference.high)]
    low, high, ticks = nice(*extent([*ends, *margins], zero=True), 4 if rows.narrow else 6)
    axis, drawing = Axis(low, high, rows.plot), rows.drawing()
    drawing.below(axis, ticks, signed, chart.x)
    for value, dash, opacity in ((0.0, "", 0.6), *((margin, "4,3", 0.55) for margin in margins)):
        rows.across(drawing, axis.at(value), dash=dash, opacity=opacity)
    for gap, place in zip(gaps, places, strict=True):
        drawing.owner = names[gap.name]
        where = f", {visible(gap.group, 48)}" if gap.group else ""
        tip = f"{names[gap.name]}{where}: {gap.difference.text}, {gap.verdict}, n {gap.n:,}"
        shape, color, filled = "square" if gap.tone == "bad" else "circle", TONES[gap.tone], gap.tone != "neutral"
        _interval(drawing, axis, gap.difference, rows.at[place], color, 2.5)
        x, area = axis.at(gap.difference.value), 80 if filled else 70
        here = rows_of(gap.name, **{part: gap.group}, change=_moved(gap.difference.value))
        drawing.mark(shape, x, rows.at[place], color, area=area, filled=filled, tip=tip, rows=here)
    return drawing


_CHANGE = 46  # pixels of the highest bar of changes


def draw_changes(chart: Chart, width: int) -> Drawing:
    """A line for each system, its bars as high as the number of examples: red for losses, green for gains."""
    found = chart.of(ScoreChange)
    systems = list(dict.fromkeys(each.name for each in found))[:MOST_CHANGED]
    names = ShownNames(systems, chart.names)
    counts = {name: [sum(e.count for e in found if e.name == name and part(e)) for part in _PARTS] for name in systems}
    words = "−{:,} · ={:,} · +{:,}" if narrow(width) else "{:,} lost · {:,} same · {:,} gained"
    told = {name: words.format(*counts[name]) for name in systems}
    rows = Rows([ChartRow(names[name], told[name]) for name in systems], width, thick=_CHANGE + 6)
    reach = max((max(-each.low, each.high) for each in found), default=1.0)
    low, high, ticks = nice(-reach, reach, 5 if narrow(width) else 10)
    most = max((each.count for each in found if each.name in counts and (each.low or each.high)), default=1)
    axis, drawing = Axis(low, high, rows.plot), rows.drawing()
    drawing.below(axis, ticks, signed, chart.x)
    feet = {name: at + rows.thick / 2 for name, at in zip(systems, rows.at, strict=True)}
    for name in systems:
        drawing.line((0, feet[name]), (rows.plot, feet[name]), opacity=0.35)
    for each in (one for one in found if one.name in feet and (one.low or one.high)):
        drawing.owner, tall = names[each.name], max(2.0, _CHANGE * each.count / most)
        left, right = axis.at(each.low), axis.at(each.high)
        kind, tone = ("lost", "bad") if each.high <= 0 else ("gained", "good")
        least, greatest = sorted((abs(each.low), abs(each.high)))
        tip = f"{names[each.name]}: {each.count:,} {kind} more than {least:g} and up to {greatest:g}"
        here = rows_of(each.name, change=f"{kind}:{least:g}:{greatest:g}")
        drawing.rect(left + 0.5, feet[each.name] - tall, right - left - 1, tall, TONES[tone], tip, rows=here)
    drawing.owner = ""
    drawing.line((axis.at(0), 0), (axis.at(0), rows.height), opacity=0.6)
    return drawing


MOST_CHANGED = 40  # systems whose changes are drawn
_PARTS: tuple[Callable[[ScoreChange], bool], ...] = (
    lambda each: each.low < 0,
    lambda each: not (each.low or each.high),
    lambda each: each.high > 0,
)


def _moved(difference: float) -> str:
    return "lost" if difference < 0 else "gained" if difference > 0 else ""


def _lines(gaps: Sequence[Gap], names: ShownNames, *, brief: bool) -> tuple[list[ChartRow], list[int]]:
    """A line for each difference, with a heading before each group; and which line each difference got."""
    lines, places, group = list[ChartRow](), list[int](), None
    several = any(gap.group for gap in gaps)
    for gap in gaps:
        if several and gap.group != group:
            lines.append(ChartRow(visible(gap.group, 48) or "all data", heading=True))
            group = gap.group
        places.append(len(lines))
        lines.append(ChartRow(names[gap.name], gap.difference.short if brief else gap.difference.text))
    return lines, places


#: From this ratio of the greatest value to the least on, the axis grows by factors.
_WIDE_SPREAD = 30.0
#: Below so many seconds at the greatest p95, times are told in milliseconds.
_SECONDS_FROM = 1.0


#: Unit of values whose spread is drawn → what the list of rows sorts by to show them.
_SORTS = {"seconds": "latency", "usd": "cost", "tokens": "forwarded"}


def draw_distribution(chart: Chart, width: int) -> Drawing:
    """The lines, in the order of the data."""
    spreads = chart.of(Spread)[:MOST]
    names = ShownNames([each.name for each in spreads], chart.names)
    unit = _Unit.of(spreads)
    rows = Rows(
        [ChartRow(names[each.name], f"{unit.text(each.median)} · {unit.text(each.p95)}") for each in spreads],
        width,
        thick=18,
    )
    known = [unit.factor * value for each in spreads for value in (*each.values, each.median.value, each.p95.value)]
    axis, ticks = _scale(known, rows)
    drawing = rows.drawing()
    drawing.below(axis, ticks, plain, f"{chart.x}, {unit.name}" if unit.name else chart.x)
    for each, at in zip(spreads, rows.at, strict=True):
        color = names.color(each.name)
        drawing.owner = names[each.name]
        drawing.line((0, at), (rows.plot, at), opacity=0.15)
        for value in each.values:
            drawing.mark("circle", axis.at(unit.factor * value), at, color, area=34, opacity=0.45)
        for share, figure, reach, thick in (("p95", each.p95, 7, 1.5), ("median", each.median, 9, 3.0)):
            x = axis.at(unit.factor * figure.value)
            tip = f"{names[each.name]}: {share} {unit.text(figure)}, n {each.n:,}"
            here = rows_of(each.name, layout="rows", sort=_SORTS.get(each.median.unit, ""), order="down")
            drawing.line((x, at - reach), (x, at + reach), color=color, width=thick, tip=tip, rows=here)
    return drawing


@dataclass(frozen=True, slots=True)
class _Unit:
    """Unit of all values of a drawing: `factor` times the value. Without a name the values stay as they are."""

    name: str = ""
    factor: float = 1.0

    @classmethod
    def of(cls, spreads: Sequence[Spread]) -> _Unit:
        """Milliseconds for times of which even the slow ones are short."""
        if any(each.median.unit != "seconds" for each in spreads):
            return cls()
        return cls("s") if max(each.p95.value for each in spreads) >= _SECONDS_FROM else cls("ms", 1000.0)

    def text(self, figure: Figure) -> str:
        """The figure as tables tell it; below a millisecond with the digit more that single searches need."""
        brief = self.name == "ms" and 0 < figure.value < 0.001
        return f"{1000 * figure.value:.2f} ms" if brief else figure.short


def _scale(values: Sequence[float], rows: Rows) -> tuple[Axis, list[float]]:
    """The axis and its numbers: plain from 0, or by factors where values differ by more than thirtyfold."""
    least, most = extent([value for value in values if value > 0])
    if min(values) > 0 and most / least > _WIDE_SPREAD:
        low, high = least / 1.15, most * 1.15
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        units = (1, 2, 5) if most / least < (300 if rows.narrow else 3000) else (1,)
        ticks = [unit * 10.0**power for power in powers for unit in units if low <= unit * 10.0**power <= high]
        return Axis(low, high, rows.plot, log=True), ticks
    low, high, ticks = nice(*extent(values, zero=True), 4 if rows.narrow else 6)
    return Axis(low, high, rows.plot), ticks


_COLORS = (*PALETTE, GREY, "#5b6ee1", "#a0522d")  # of areas; kinds beyond repeat them


def draw_areas(chart: Chart, width: int) -> Drawing:
    """Layers one above the other over equal steps, in the order of the parts: `name` is the layer, `part` the step."""
    parts = chart.of(BarPart)
    layers = ShownNames(dict.fromkeys(part.name for part in parts))
    steps = {step: place for place, step in enumerate(dict.fromkeys(part.part for part in parts))}
    values: dict[str, list[float]] = {part.name: [0.0] * len(steps) for part in parts}
    for part in parts:
        values[part.name][steps[part.part]] += part.amount.value
    sums = [sum(column) for column in zip(*values.values(), strict=True)] or [0.0]
    plot, height = width - _LEFT - 24, 260
    _, high, ticks = nice(0.0, max(sums) or 1.0, 4)
    across, up = Axis(0.0, float(max(1, len(steps) - 1)), plot), Axis(0.0, high, height)
    drawing = Drawing(plot, height)
    drawing.margins(left=_LEFT, right=24, top=SIZE + 26)
    drawing.beside(up, ticks, shortened, chart.y)
    drawing.below(across, [], plain, chart.x)
    colors = dict(zip(values, cycled(len(values), _COLORS), strict=True))
    below = [0.0] * len(steps)
    for layer, heights in values.items():
        above = [low + value for low, value in zip(below, heights, strict=True)]
        points = [(across.at(step), height - up.at(value)) for step, value in _wide(above)]
        points += [(across.at(step), height - up.at(value)) for step, value in reversed(_wide(below))]
        drawing.area(points, colors[layer], f"{layers[layer]}: {heights[-1]:,.0f} at the end")
        below = above
    drawing.legend([("square", colors[layer], layers[layer]) for layer in values], width)
    return drawing


def _wide(values: Sequence[float]) -> list[tuple[float, float]]:
    """Steps with their values; a single one is drawn from end to end."""
    if len(values) == 1:
        return [(0.0, values[0]), (1.0, values[0])]
    return [(float(step), value) for step, value in enumerate(values)]


def draw_amounts(chart: Chart, width: int) -> Drawing:
    """One bar for each name, in the order given, with its amount beside it."""
    parts = chart.of(BarPart)[:MOST]
    names = ShownNames([part.name for part in parts])
    rows = Rows([ChartRow(names[part.name], part.amount.text) for part in parts], width)
    low, high, ticks = nice(0.0, max((part.amount.value for part in parts), default=0.0) or 1.0, 4)
    axis = Axis(low, high, rows.plot)
    drawing = rows.drawing()
    drawing.below(axis, ticks, shortened, chart.x)
    for part, at in zip(parts, rows.at, strict=True):
        drawing.rect(0, at - 8, axis.at(part.amount.value), 16, PALETTE[0], f"{names[part.name]}: {part.amount.text}")
    return drawing


MOST_ANSWERS = 6  # of a card
_CARD = 80  # pixels of an answer
_STACKED = 116  # the same on a telephone, where the interval stands below the words


def draw_card(chart: Chart, width: int) -> Drawing:
    """The answers, one below the other. Nothing of what was asked or answered is in them: names, words, numbers."""
    answers = chart.of(Card)[:MOST_ANSWERS]
    names = ShownNames([each.system for each in answers], chart.names, longest=60)
    found = [each.difference for each in answers if each.difference is not None]
    ends = [end for each in found for end in (each.low, each.high, each.value)]
    low, high, _ = nice(*extent([*ends, *(-each.margin for each in answers if each.margin)], zero=True), 4)
    stacked = narrow(width)
    down, left = (_STACKED, 0.0) if stacked else (_CARD, width * 0.52)
    axis = Axis(low, high, width - left - 8)
    drawing = Drawing(width, down * len(answers) - 14)
    for place, each in enumerate(answers):
        top = place * down
        if place:
            drawing.line((0, top - 8), (width, top - 8), opacity=0.15)
        _draw_words(drawing, each, names[each.system], chart.x, top, (width if stacked else left) - 16)
        if each.difference is not None:
            plot = Drawing(axis.pixels, 26)
            _draw_interval(plot, axis, each, each.difference, names[each.system])
            drawing.place(plot, left, top + (72 if stacked else 21))
    return drawing


def _draw_words(drawing: Drawing, each: Card, name: str, what: str, top: float, room: float) -> None:
    chip = visible(each.chip, 40)
    across = letters(chip) * 1.15 + 18
    drawing.text(0, top + 12, name, bold=True, size=SIZE + 3, room=room - across - 14)
    start = min(letters(name, SIZE + 3) * 1.15 + 14, room - across)
    if chip:
        drawing.mark("square", start + 4, top + 12, TONES[each.tone], area=110)
        drawing.text(start + 16, top + 12, chip, bold=True, room=across)
    drawing.text(0, top + 36, _saves(each), room=room)
    if each.difference is not None:
        drawing.text(0, top + 56, f"{what}: {each.difference.text}", room=room, opacity=0.85)


def _saves(each: Card) -> str:
    """The savings in words, such as "57 % fewer tokens · 4 % dearer"."""
    words = {"tokens": ("fewer tokens", "more tokens"), "money": ("cheaper", "dearer")}
    told = [
        f"{percent(abs(each.saved[key].value))} {less if each.saved[key].value >= 0 else more}"
        for key, (less, more) in words.items()
        if key in each.saved
    ]
    told += [each.lift] if each.lift else []
    return " · ".join(told) or "nothing known of tokens and money"


def _draw_interval(plot: Drawing, axis: Axis, each: Card, difference: Figure, name: str) -> None:
    color = TONES[each.tone]
    plot.line((axis.at(0), 0), (axis.at(0), 26), opacity=0.5)
    if each.margin:
        plot.line((axis.at(-each.margin), 0), (axis.at(-each.margin), 26), dash="4,3", opacity=0.6)
    tip = f"{name}: {difference.text}"
    if difference.low is not None and difference.high is not None:
        plot.line((axis.at(difference.low), 13), (axis.at(difference.high), 13), color=color, width=4, tip=tip)
    plot.mark("circle", axis.at(difference.value), 13, color, area=90, tip=tip)
