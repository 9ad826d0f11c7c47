"""Charts with a line for each name: where the lines stand, and the words at their sides.

On a wide drawing names stand at the left and figures at the right of the plot; on a narrow one both stand above their
line, so that the plot keeps its width.

Lines of figures over a doubling or a plain axis serve `rates` and `recall`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.style import (
    TIP,
    ShownNames,
    axis,
    extent,
    fixed,
    inline,
    legend,
    letters,
    narrow,
    nice,
    scale,
)
from context_bench.reports.pictures import Chart, LinePoint

_LINE = 17  # pixels of a line of letters
_LONGEST = 260  # pixels of a name beside the plot
_GAP = 12
_WIDE, _BOLD = 1.14, 1.28  # letters of the widest fonts that a reader may have, by those that are usual
MOST = 160  # lines of a chart; what is beyond stands in the table


@dataclass(frozen=True, slots=True)
class ChartRow:
    """`label` at the left, `value` at the right. A heading has no marks."""

    label: str
    value: str = ""
    heading: bool = False


class Rows:
    """The places of lines. `plot`: pixels of the plot's width; `height`; `at[i]`: the middle of the marks of line i,
    from the top.
    """

    def __init__(self, lines: Sequence[ChartRow], width: int, *, thick: int = 16) -> None:
        self.lines, self.width, self.thick = list(lines), width, thick
        self.narrow = narrow(width)
        widest = max((letters(each.label) * (_BOLD if each.heading else _WIDE) for each in lines), default=0)
        self.label_room = 0.0 if self.narrow else min(_LONGEST, widest)
        self.value_room = 0.0 if self.narrow else max((letters(each.value) for each in lines), default=0) * _WIDE
        self.plot = int(width - self.label_room - self.value_room - 3 * _GAP)
        self.at: list[float] = []
        self._words: list[float] = []
        down = 2.0
        for each in self.lines:
            if each.heading:
                down += 8 if self.at else 0
                self._place(down + _LINE / 2, down + _LINE / 2)
                down += _LINE + 4
            elif self.narrow:
                self._place(down + _LINE + thick / 2, down + _LINE / 2)
                down += _LINE + thick + 6
            else:
                down += 3
                self._place(down + thick / 2, down + thick / 2)
                down += thick + 3
        self.height = int(down + 4)

    def _place(self, marks: float, words: float) -> None:
        self.at.append(marks)
        self._words.append(words)

    def y(self, field: str = "y") -> Any:
        """The vertical place, in pixels from the top; no axis."""
        import altair as alt

        return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[self.height, 0], nice=False, zero=False), axis=None)

    def words(self) -> list[Any]:
        """Names, headings and figures."""
        sets = [
            [(each.label, at) for each, at in zip(self.lines, self._words, strict=True) if not each.heading],
            [(each.label, at) for each, at in zip(self.lines, self._words, strict=True) if each.heading],
            [(each.value, at) for each, at in zip(self.lines, self._words, strict=True) if each.value],
        ]
        left = 0 if self.narrow else -_GAP
        right = self.plot if self.narrow else self.plot + _GAP
        align = "left" if self.narrow else "right"
        values = int(max((letters(text) for text, _ in sets[2]), default=0))
        limit = self.plot - values - 10 if self.narrow else self.label_room + 4
        looks: list[tuple[float, dict[str, Any]]] = [
            (left, {"align": align, "limit": limit}),
            (left, {"align": align, "fontWeight": "bold", "limit": self.plot if self.narrow else self.label_room + 4}),
            (right, {"align": "right" if self.narrow else "left", "opacity": 0.85}),
        ]
        return [self._texts(texts, x, look) for texts, (x, look) in zip(sets, looks, strict=True) if texts]

    def _texts(self, texts: list[tuple[str, float]], x: float, look: dict[str, Any]) -> Any:
        import altair as alt

        base = inline([{"text": text, "y": at} for text, at in texts])
        return base.mark_text(baseline="middle", **look).encode(x=fixed("X", x), y=self.y(), text=alt.Text("text:N"))

    def layered(self, *layers: Any) -> Any:
        """All layers with the words, in the size of the plot."""
        import altair as alt

        return alt.layer(*layers, *self.words()).properties(width=self.plot, height=self.height)


_LEFT = 66
_NAME_GAP = 15  # pixels between names at the ends of lines
_MOST_AT_ENDS = 20  # names that find room there


def lines(chart: Chart, width: int, ticks: Sequence[float], *, tip: str) -> Any:
    """The lines. `ticks`: positive numbers on the axis, which doubles with every step; `tip`: what x is, in
    tooltips.
    """
    import altair as alt

    points = chart.of(LinePoint)
    names = ShownNames([point.name for point in points], chart.names)
    at_ends = not narrow(width) and 1 < len(names.shown) <= _MOST_AT_ENDS
    room = min(190.0, max(map(letters, names.shown), default=0) + 18) if at_ends else 24
    plot, height = int(width - _LEFT - room), 280 if narrow(width) else 330
    ends = [math.log2(tick) for tick in ticks]
    left, right = (min(ends) - 0.15, max(ends) + 0.15) if len(set(ends)) > 1 else (ends[0] - 0.5, ends[0] + 0.5)
    low, high, y_ticks = nice(
        *extent([end for p in points for end in (p.y.value, p.y.low, p.y.high)], chart.span, zero=True), 5
    )
    aside = _aside(names.shown, 0 if narrow(width) else 5, (right - left) / plot)
    values = [_record(names[point.name], point, aside, tip) for point in points]
    named = legend(width, names.shown) if not at_ends else None
    color, shape = names.encodings(named)
    label = "format(pow(2, datum.value), ',.3~g')"
    x = alt.X(
        "x:Q", title=chart.x, scale=scale(left, right), axis=alt.Axis(values=ends, labelExpr=label, labelOverlap=True)
    )
    y = alt.Y("y:Q", title=chart.y, scale=scale(low, high), axis=axis(y_ticks))
    base = inline(values)
    layers = [
        base.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=color),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, opacity=0.8)
        .encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color),
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


def _record(name: str, point: LinePoint, aside: dict[str, float], tip: str) -> dict[str, Any]:
    whole = point.y.low is not None and point.y.high is not None
    return {
        "name": name,
        "x": math.log2(point.x) + (aside[name] if whole else 0.0),
        "y": point.y.value,
        "low": point.y.low if whole else None,
        "high": point.y.high if whole else None,
        "tip": f"{TIP}{name}, {tip} {point.x:,.3g}: {point.y.text}",
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
        placed.append({"name": name, "text": name, "y": above})
    lowest = ends[0]
    for each in reversed(placed):
        each["y"] = max(each["y"], lowest)
        lowest = each["y"] + _NAME_GAP * per_pixel
    color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=names.shown, range=names.colors()), legend=None)
    mark = inline(placed).mark_text(align="left", baseline="middle", limit=185)
    return mark.encode(x=fixed("X", plot + 8), y=y, text=alt.Text("text:N"), color=color)
