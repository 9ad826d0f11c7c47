"""Scatter plots and curves, drawn by Vega-Lite (the extra `plots`).

Quality against what it costs: one mark for each system, whiskers where intervals are known, names beside the marks or
led to them. Curves: recall over k, quality over folds, coverage in the course of runs; a line for each name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.drawing import rows_of
from context_bench.reports.charts.style import (
    INK,
    PALETTE,
    SIZE,
    ShownNames,
    axis,
    description,
    extent,
    fixed,
    inline,
    legend,
    letters,
    narrow,
    nice,
    scale,
)
from context_bench.reports.page import Chart, LinePoint, Point

_LINE = 15  # pixels of a line of letters
_LEFT, _RIGHT = 66, 24  # pixels for the axis' letters, and of room on the other side
_APART = 14  # pixels between marks that would cover one another
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plot: its ends in figures and its size in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int
    height: int

    def across(self, value: float) -> float:
        return (value - self.x[0]) / (self.x[1] - self.x[0]) * self.width

    def down(self, value: float) -> float:
        return (self.y[1] - value) / (self.y[1] - self.y[0]) * self.height

    def value_at(self, across: float, down: float) -> tuple[float, float]:
        x = self.x[0] + across / self.width * (self.x[1] - self.x[0])
        return x, self.y[1] - down / self.height * (self.y[1] - self.y[0])


def draw(chart: Chart, width: int) -> Any:
    """The plot of the points."""
    import altair as alt

    points = chart.of(Point)
    names = ShownNames([point.name for point in points], chart.names)
    xs = extent([end for p in points for end in (p.cost.value, p.cost.low, p.cost.high)], zero=True)
    ys = extent([end for p in points for end in (p.quality.value, p.quality.low, p.quality.high)])
    left, right, x_ticks = nice(*xs, 4 if narrow(width) else 6)
    low, high, y_ticks = _upright(nice(*ys, 6), ys[0])
    frame = _Frame((left, right), (low, high), width - _LEFT - _RIGHT, 300 if narrow(width) else 360)
    places = apart([(frame.across(point.cost.value), frame.down(point.quality.value)) for point in points])
    labels = beside([names[point.name] for point in points], points, places, frame)
    values = [_record(names[p.name], p, place, frame) for p, place in zip(points, places, strict=True)]
    unlabelled = [names[point.name] for point, label in zip(points, labels, strict=True) if label is None]
    color, shape = names.encodings(legend(width, unlabelled, values=unlabelled) if unlabelled else None)
    x = alt.X("cost:Q", title=chart.x, scale=scale(left, right), axis=axis(x_ticks))
    y = alt.Y("quality:Q", title=chart.y, scale=scale(low, high), axis=axis(y_ticks))
    base = inline(values)
    quality = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5, opacity=0.8)
    cost = base.transform_filter("isValid(datum.least)").mark_rule(strokeWidth=1.5, opacity=0.8)
    hollow = base.transform_filter("!datum.front").mark_point(filled=False, size=90, strokeWidth=2, opacity=1)
    filled = base.transform_filter("datum.front").mark_point(filled=True, size=110, opacity=1)
    owner = alt.Description("owner:N")
    marks = [quality.encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color, description=owner)]
    marks.append(cost.encode(x=alt.X("least:Q"), x2=alt.X2("most:Q"), y=y, color=color, description=owner))
    marks += [
        layer.encode(x=x, y=y, color=color, shape=shape, description=alt.Description("tip:N"))
        for layer in (hollow, filled)
    ]
    marks += _texts([label for label in labels if label is not None], x, y, frame)
    return alt.layer(*marks).properties(width=frame.width, height=frame.height)


def _upright(ends: tuple[float, float, list[float]], least: float) -> tuple[float, float, list[float]]:
    """Without room below zero where no value is: scores that are all the same would get some on both sides."""
    low, high, ticks = ends
    return (0.0, high, [tick for tick in ticks if tick >= 0]) if low < 0 <= least else ends


def _record(name: str, point: Point, place: float, frame: _Frame) -> dict[str, Any]:
    """A mark. The whisker of the costs moves with it, if it was moved aside, and stays on the plot."""
    shift = frame.value_at(place, 0)[0] - point.cost.value
    both = point.cost.low is not None and point.cost.high is not None
    tokens = " tokens" if point.cost.unit == "tokens" else ""
    return {
        "name": name,
        "quality": point.quality.value,
        "low": point.quality.low,
        "high": point.quality.high,
        "cost": point.cost.value + shift,
        "least": max(point.cost.low + shift, frame.x[0]) if both and point.cost.low is not None else None,
        "most": min(point.cost.high + shift, frame.x[1]) if both and point.cost.high is not None else None,
        "front": point.front,
        "tip": description(name, f"{name}: {point.quality.text}, {point.cost.text}{tokens}", rows_of(point.name)),
        "owner": description(name),
    }


def apart(marks: Sequence[tuple[float, float]], step: float = _APART) -> list[float]:
    """Places across, in pixels, of marks (across, down): of those that would cover one another, each keeps `step` from
    the next.

    Others stay where their figures put them. Tooltips tell the true figures.
    """
    places = [across for across, _ in marks]
    for crowd in _crowds(marks, step):
        middle = sum(places[each] for each in crowd) / len(crowd)
        start = max(middle - step * (len(crowd) - 1) / 2, min(places[each] for each in crowd) if middle < step else 0.0)
        for number, each in enumerate(crowd):
            places[each] = start + step * number
    return places


def _crowds(marks: Sequence[tuple[float, float]], step: float) -> list[list[int]]:
    """Marks that cover one another, or others that do, from left to right."""
    left, found = sorted(range(len(marks)), key=lambda each: marks[each]), list[list[int]]()
    while left:
        crowd = [left.pop(0)]
        for one in crowd:
            near = [
                each for each in left if all(abs(a - b) < step for a, b in zip(marks[one], marks[each], strict=True))
            ]
            crowd += near
            left = [each for each in left if each not in near]
        found.append(sorted(crowd, key=lambda each: marks[each][0]))
    return found


# Names beside marks
# ------------------------------------------------------------------------
_BESIDE = ((11, 0, "left"), (-11, 0, "right"), (8, -13, "left"), (8, 13, "left"), (-8, -13, "right"), (-8, 13, "right"))
_LED = tuple(
    (across * far, down * far, "left" if across > 0 else "right")
    for far in (1, 1.6, 2.4)
    for across, down in (
        (22, 22),
        (22, -22),
        (-22, 22),
        (-22, -22),
        (26, 10),
        (-26, 10),
        (8, 28),
        (-8, 28),
        (8, -28),
        (-8, -28),
    )
)


@dataclass(frozen=True, slots=True)
class _Label:
    """A name at (x, y), and, if a line leads to it, the mark it belongs to; all in pixels."""

    text: str
    x: float
    y: float
    align: str
    mark: tuple[float, float] | None = None


def beside(
    texts: Sequence[str], points: Sequence[Point], places: Sequence[float], frame: _Frame
) -> list[_Label | None]:
    """Place of each name that does not touch a mark, a whisker or another name, some way off if it must; `None` for one
    without a place.

    A line that leads to a name touches neither marks nor names nor another line.
    """
    marks = [(place, frame.down(point.quality.value)) for point, place in zip(points, places, strict=True)]
    taken = [box for point, place in zip(points, places, strict=True) for box in _whiskers(point, place, frame)]
    solid = [_around(*mark, 6) for mark in marks]  # what no line may cross
    found: dict[int, _Label] = {}
    for ways, led in ((_BESIDE, False), (_LED, True)):
        for number in (number for number in range(len(texts)) if number not in found):
            across, down = marks[number]
            for dx, dy, align in ways:
                box, line = (
                    _box(texts[number], across + dx, down + dy, align),
                    _line(marks[number], (dx, dy)) if led else [],
                )
                if _on_paper(box, frame) and not _any_touch([box], [*taken, *solid]) and not _any_touch(line, solid):
                    found[number] = _Label(texts[number], across + dx, down + dy, align, marks[number] if led else None)
                    solid += [box, *line]
                    break
    return [found.get(number) for number in range(len(texts))]


def _line(mark: tuple[float, float], way: tuple[float, float]) -> list[Box]:
    """Points of a line from the rim of a mark."""
    far = math.hypot(*way)
    steps = max(2, int((far - 10) // 4))
    shares = [(10 + (far - 12) * step / steps) / far for step in range(steps + 1)]
    return [_around(mark[0] + way[0] * share, mark[1] + way[1] * share, 2) for share in shares]


def _around(across: float, down: float, reach: float) -> Box:
    return across - reach, down - reach, across + reach, down + reach


def _on_paper(box: Box, frame: _Frame) -> bool:
    return box[0] >= 2 and box[2] <= frame.width + _RIGHT and box[1] >= -6 and box[3] <= frame.height - 2


def _whiskers(point: Point, place: float, frame: _Frame) -> list[Box]:
    """Area that the whiskers of a mark cover."""
    down, boxes = frame.down(point.quality.value), list[Box]()
    if point.quality.low is not None and point.quality.high is not None:
        boxes.append((place - 1, frame.down(point.quality.high), place + 1, frame.down(point.quality.low)))
    if point.cost.low is not None and point.cost.high is not None:
        shift = place - frame.across(point.cost.value)
        boxes.append((frame.across(point.cost.low) + shift, down - 1, frame.across(point.cost.high) + shift, down + 1))
    return boxes


def _box(text: str, x: float, y: float, align: str) -> Box:
    wide = letters(text)
    left = x if align == "left" else x - wide
    return left, y - _LINE / 2, left + wide, y + _LINE / 2


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _any_touch(ones: Sequence[Box], others: Sequence[Box]) -> bool:
    return any(_touch(one, other) for one in ones for other in others)


def _texts(labels: Sequence[_Label], x: Any, y: Any, frame: _Frame) -> list[Any]:
    import altair as alt

    made = []
    if led := [_leader(each.mark, each, frame) for each in labels if each.mark is not None]:
        line = inline(led).mark_rule(strokeWidth=1, opacity=0.5)
        ends = {"x2": alt.X2("to_cost:Q"), "y2": alt.Y2("to_quality:Q"), "description": alt.Description("owner:N")}
        made.append(line.encode(x=x, y=y, color=fixed("Color", INK), **ends))
    for align in ("left", "right"):
        found = [each for each in labels if each.align == align]
        values = [_at(one.x, one.y, frame) | {"text": one.text, "owner": description(one.text)} for one in found]
        if values:
            texts = inline(values).mark_text(align=align, baseline="middle")
            made.append(texts.encode(x=x, y=y, text=alt.Text("text:N"), description=alt.Description("owner:N")))
    return made


def _leader(mark: tuple[float, float], label: _Label, frame: _Frame) -> dict[str, Any]:
    """The line from the rim of a mark to the near end of its name."""
    end = (label.x + (-2 if label.align == "left" else 2), label.y)
    far = math.dist(mark, end)
    start = [a + (b - a) * 8 / far for a, b in zip(mark, end, strict=True)]
    ends = {f"to_{name}": value for name, value in _at(*end, frame).items()}
    return _at(start[0], start[1], frame) | ends | {"owner": description(label.text)}


def _at(across: float, down: float, frame: _Frame) -> dict[str, Any]:
    cost, quality = frame.value_at(across, down)
    return {"cost": cost, "quality": quality}


_DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_LEFT_OF_CURVES = 66
_NAME_GAP = 15  # pixels between names at the ends of lines
_MOST_AT_ENDS = 20  # names that find room there


def _dashes(count: int) -> list[list[int]]:
    """The dashes of so many lines; where colours begin anew, they are others."""
    return [_DASHES[(place + place // len(PALETTE)) % len(_DASHES)] for place in range(count)]


def draw_recall(chart: Chart, width: int) -> Any:
    """Recall of memories among their first k hits, one line for each memory; the axis has the ks that were measured."""
    return _lines(chart, width, sorted({point.x for point in chart.of(LinePoint)}), tip="k")


def draw_rates(chart: Chart, width: int) -> Any:
    """Quality by how far texts were shortened, one line for each compressor; the axis of folds doubles."""
    folds = [point.x for point in chart.of(LinePoint)]
    first, last = math.floor(math.log2(min(folds))), math.ceil(math.log2(max(folds)))
    return _lines(chart, width, [2.0**power for power in range(first, max(last, first + 1) + 1)], tip="fold")


def draw_coverage(chart: Chart, width: int) -> Any:
    """Growth of coverage in the course of runs: lines by level, or, for several sets, a plot for each level."""
    import altair as alt

    points = chart.of(LinePoint)
    names = ShownNames([point.name for point in points], longest=40)
    panels = list(dict.fromkeys(point.panel for point in points))
    values = [
        {"name": names[p.name], "owner": description(names[p.name]), "panel": p.panel, "x": p.x, "y": p.y.value}
        for p in points
    ]
    columns = 2 if len(panels) > 1 and not narrow(width) else 1
    plot = (width - 66 - 24 - (columns - 1) * 50) // columns
    told = legend(width, names.shown) if len(names.shown) > 1 else None
    if told is not None:
        told["symbolSize"] = 700  # long enough to tell dashes
    color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=names.shown, range=names.colors()), legend=told)
    dashes = alt.Scale(domain=names.shown, range=_dashes(len(names.shown)))
    lines = (
        inline(values)
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("x:Q", title=chart.x, scale=scale(0, 100), axis=axis([0, 25, 50, 75, 100])),
            y=alt.Y("y:Q", title=chart.y, scale=scale(0, 1), axis=axis([0, 0.25, 0.5, 0.75, 1])),
            color=color,
            description=alt.Description("owner:N"),
            strokeDash=alt.StrokeDash("name:N", sort=None, scale=dashes, legend=told),
        )
    )
    lines = lines.properties(width=plot, height=170 if len(panels) > 1 else 260)
    if len(panels) < 2:
        return lines
    header = alt.Header(title=None, labelColor=INK, labelFontSize=SIZE, labelFontWeight="bold", labelAnchor="start")
    return lines.facet(facet=alt.Facet("panel:N", sort=panels, header=header), columns=columns)


def _lines(chart: Chart, width: int, ticks: Sequence[float], *, tip: str) -> Any:
    """`ticks`: positive numbers on the axis, which doubles with every step; `tip`: what x is, in tooltips."""
    import altair as alt

    points = chart.of(LinePoint)
    names = ShownNames([point.name for point in points], chart.names)
    at_ends = not narrow(width) and 1 < len(names.shown) <= _MOST_AT_ENDS
    room = min(190.0, max(map(letters, names.shown), default=0) + 18) if at_ends else 24
    plot, height = int(width - _LEFT_OF_CURVES - room), 280 if narrow(width) else 330
    ends = [math.log2(tick) for tick in ticks]
    left, right = (min(ends) - 0.15, max(ends) + 0.15) if len(set(ends)) > 1 else (ends[0] - 0.5, ends[0] + 0.5)
    low, high, y_ticks = nice(
        *extent([end for p in points for end in (p.y.value, p.y.low, p.y.high)], chart.span, zero=True), 5
    )
    aside = _aside(names.shown, 0 if narrow(width) else 5, (right - left) / plot)
    values = [_record_of_curves(names[point.name], point, aside, tip) for point in points]
    named = legend(width, names.shown) if not at_ends else None
    color, shape = names.encodings(named)
    label = "format(pow(2, datum.value), ',.3~g')"
    x = alt.X(
        "x:Q", title=chart.x, scale=scale(left, right), axis=alt.Axis(values=ends, labelExpr=label, labelOverlap=True)
    )
    y = alt.Y("y:Q", title=chart.y, scale=scale(low, high), axis=axis(y_ticks))
    base = inline(values)
    layers = [
        base.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=color, description=alt.Description("owner:N")),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, opacity=0.8)
        .encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color, description=alt.Description("owner:N")),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=color, shape=shape, description=alt.Description("tip:N")
        ),
    ]
    if at_ends:
        layers.append(_at_ends(values, names, (low, high), height, x, y, plot))
    return alt.layer(*layers).properties(width=plot, height=height)


def _aside(names: Sequence[str], pixels: float, per_pixel: float) -> dict[str, float]:
    """Distance by which each line is moved aside, so that whiskers at one place do not cover one another."""
    middle = (len(names) - 1) / 2
    step = min(pixels, 36 / max(1, len(names)))
    return {name: (place - middle) * step * per_pixel for place, name in enumerate(names)}


def _record_of_curves(name: str, point: LinePoint, aside: dict[str, float], tip: str) -> dict[str, Any]:
    whole = point.y.low is not None and point.y.high is not None
    return {
        "name": name,
        "x": math.log2(point.x) + (aside[name] if whole else 0.0),
        "y": point.y.value,
        "low": point.y.low if whole else None,
        "high": point.y.high if whole else None,
        "tip": description(name, f"{name}, {tip} {point.x:,.3g}: {point.y.text}", rows_of(point.name)),
        "owner": description(name),
    }


def _at_ends(
    values: list[dict[str, Any]], names: ShownNames, ends: tuple[float, float], height: int, x: Any, y: Any, plot: int
) -> Any:
    """Names at the right, each beside the end of its line as nearly as there is room."""
    import altair as alt

    last: dict[str, dict[str, Any]] = {}
    for each in values:
        if each["name"] not in last or each["x"] >= last[each["name"]]["x"]:
            last[each["name"]] = each
    per_pixel = (ends[1] - ends[0]) / height
    wanted = sorted(((each["y"], name) for name, each in last.items()), reverse=True)
    placed: list[dict[str, Any]] = []
    above = ends[1] + _NAME_GAP * per_pixel
    for value, name in wanted:
        above = min(value, above - _NAME_GAP * per_pixel)
        placed.append({"name": name, "text": name, "owner": description(name), "y": above})
    lowest = ends[0]
    for each in reversed(placed):
        each["y"] = max(each["y"], lowest)
        lowest = each["y"] + _NAME_GAP * per_pixel
    color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=names.shown, range=names.colors()), legend=None)
    mark = inline(placed).mark_text(align="left", baseline="middle", limit=185)
    told = {"text": alt.Text("text:N"), "description": alt.Description("owner:N")}
    return mark.encode(x=fixed("X", plot + 8), y=y, color=color, **told)
