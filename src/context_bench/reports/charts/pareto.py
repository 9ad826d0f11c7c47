"""Quality against what it costs: one mark for each system, whiskers where intervals are known, names beside the marks where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.style import TIP, Names, axis, extent, inline, legend, letters, narrow, nice, scale
from context_bench.reports.pictures import Chart, Point

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
    names = Names([point.name for point in points], chart.names)
    xs = extent([end for p in points for end in (p.cost.value, p.cost.low, p.cost.high)], zero=True)
    ys = extent([end for p in points for end in (p.quality.value, p.quality.low, p.quality.high)])
    left, right, x_ticks = nice(*xs, 4 if narrow(width) else 6)
    low, high, y_ticks = nice(*ys, 6)
    frame = _Frame((left, right), (low, high), width - _LEFT - _RIGHT, 300 if narrow(width) else 360)
    places = apart([frame.across(point.cost.value) for point in points])
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
    marks = [quality.encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)]
    marks.append(cost.encode(x=alt.X("least:Q"), x2="most:Q", y=y, color=color))
    marks += [layer.encode(x=x, y=y, color=color, shape=shape, description="tip:N") for layer in (hollow, filled)]
    marks += _texts([label for label in labels if label is not None], x, y)
    return alt.layer(*marks).properties(width=frame.width, height=frame.height)


def _record(name: str, point: Point, place: float, frame: _Frame) -> dict[str, Any]:
    """A mark. The whisker of the costs moves with it, if it was moved aside."""
    shift = frame.value_at(place, 0)[0] - point.cost.value
    both = point.cost.low is not None and point.cost.high is not None
    return {
        "name": name,
        "quality": point.quality.value,
        "low": point.quality.low,
        "high": point.quality.high,
        "cost": point.cost.value + shift,
        "least": point.cost.low + shift if both and point.cost.low is not None else None,
        "most": point.cost.high + shift if both and point.cost.high is not None else None,
        "front": point.front,
        "tip": f"{TIP}{name}: {point.quality.text}, {point.cost.text}{' tokens' if point.cost.unit == 'tokens' else ''}",
    }


def apart(values: Sequence[float], step: float = _APART) -> list[float]:
    """Places in pixels: those that would cover one another are moved apart by a hair (tooltips tell the true figures)."""
    places, crowd = list(values), list[int]()
    for at in [*sorted(range(len(values)), key=values.__getitem__), None]:
        if at is not None and (not crowd or values[at] - values[crowd[-1]] < step):
            crowd.append(at)
            continue
        if len(crowd) > 1:
            middle = sum(values[each] for each in crowd) / len(crowd)
            start = max(middle - step * (len(crowd) - 1) / 2, min(values[each] for each in crowd) if middle < step else 0.0)
            for number, each in enumerate(crowd):
                places[each] = start + step * number
        crowd = [] if at is None else [at]
    return places


# Names beside marks --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Label:
    text: str
    x: float
    y: float
    align: str


def beside(texts: Sequence[str], points: Sequence[Point], places: Sequence[float], frame: _Frame) -> list[_Label | None]:
    """Where each name stands without touching a mark, a whisker or another name; `None` for one that has no such place."""
    taken = [box for point, place in zip(points, places, strict=True) for box in _covered(point, place, frame)]
    found: list[_Label | None] = []
    for text, point, place in zip(texts, points, places, strict=True):
        across, down = place, frame.down(point.quality.value)
        label = None
        for dx, dy, align in ((11, 0, "left"), (-11, 0, "right"), (8, -13, "left"), (8, 13, "left"), (-8, -13, "right"), (-8, 13, "right")):
            box = _box(text, across + dx, down + dy, align)
            if (
                box[0] >= 2
                and box[2] <= frame.width + _RIGHT
                and box[1] >= -6
                and box[3] <= frame.height - 2
                and not any(_touch(box, other) for other in taken)
            ):
                label = _Label(text, *frame.value_at(across + dx, down + dy), align)
                taken.append(box)
                break
        found.append(label)
    return found


def _covered(point: Point, place: float, frame: _Frame) -> list[Box]:
    """What a mark and its whiskers cover."""
    down = frame.down(point.quality.value)
    boxes = [(place - 6, down - 6, place + 6, down + 6)]
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


def _texts(labels: Sequence[_Label], x: Any, y: Any) -> list[Any]:
    made = []
    for align in ("left", "right"):
        values = [{"text": each.text, "cost": each.x, "quality": each.y} for each in labels if each.align == align]
        if values:
            made.append(inline(values).mark_text(align=align, baseline="middle").encode(x=x, y=y, text="text:N"))
    return made
