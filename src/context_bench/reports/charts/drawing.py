"""SVG of our own for charts of bars, and of values on a line for each name: nothing else need be installed.

`Rows` places lines and the words at their sides. On a wide drawing names stand at the left and figures at the right of
the plot; on a narrow one both stand above their line, so that the plot keeps its width. A `Drawing` holds marks in
pixels of its plot and puts axes, legend, and the words of a picture that stands alone around them.
"""

from __future__ import annotations

import math
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from context_bench.reports.charts.style import FONT, INK, SIZE, letters, narrow

_LINE = 17  # pixels of a line of letters
_LONGEST = 260  # pixels of a name beside the plot
_GAP = 12
_WIDE, _BOLD = 1.14, 1.28  # letters of the widest fonts that a reader may have, by those that are usual
_SWATCH = 12  # pixels of a legend's mark, with the room behind it
#: Attribute of a mark that tells which rows it stands for (`rows_of`); it leads to them in the viewer, and leaves
#: before a drawing is written.
ROWS = "data-rows"
#: Attribute of a mark that names its system; the script of a page hides marks by it.
OWNER = "data-of"
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class ChartRow:
    """`label` at the left, `value` at the right. A heading has no marks."""

    label: str
    value: str = ""
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from `low` to `high` over so many `pixels`; by factors if `log`."""

    low: float
    high: float
    pixels: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a number."""
        low, high, here = (
            (math.log(each) for each in (self.low, self.high, value))
            if self.log
            else (
                self.low,
                self.high,
                value,
            )
        )
        return self.pixels * (here - low) / (high - low)


class Drawing:
    """Marks on a plot, in pixels from its upper left corner, and what stands around them."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.owner = ""  # the system, as it is shown, that marks belong to until this is changed
        self._marks: list[ET.Element] = []
        self._left = self._right = self._top = self._foot = 0.0

    def rect(self, x: float, y: float, across: float, down: float, fill: str, tip: str = "", *, rows: str = "") -> None:
        """A bar; one that runs to the left is turned round."""
        size = {"width": abs(across), "height": abs(down), "fill": fill}
        self._add("rect", tip, rows, x=min(x, x + across), y=min(y, y + down), **size)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        color: str = INK,
        width: float = 1,
        opacity: float = 1,
        dash: str = "",
        tip: str = "",
        rows: str = "",
    ) -> None:
        """A stroke between two points."""
        more = {"stroke-dasharray": dash} if dash else {}
        (x1, y1), (x2, y2) = start, end
        self._add(
            "line",
            tip,
            rows,
            **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": color, "stroke-width": width},
            **{"stroke-opacity": opacity, **more},
        )

    def area(self, points: Sequence[tuple[float, float]], fill: str, tip: str = "") -> None:
        """The area within these corners."""
        corners = "L".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add("path", tip, d=f"M{corners}Z", fill=fill)

    def mark(
        self,
        shape: str,
        x: float,
        y: float,
        color: str,
        *,
        area: float = 64,
        filled: bool = True,
        tip: str = "",
        opacity: float = 1,
        rows: str = "",
    ) -> None:
        """A mark of one of the shapes of `style.SHAPES`, of so many square pixels."""
        look: dict[str, object] = (
            {"fill": color, "fill-opacity": opacity}
            if filled
            else {**{"fill": color, "fill-opacity": 0, "stroke": color, "stroke-width": 2}}
        )
        if shape == "circle":
            self._add("circle", tip, rows, cx=x, cy=y, r=math.sqrt(area / math.pi), **look)
        else:
            self._add("path", tip, rows, d=_outline(shape, x, y, math.sqrt(area) / 2), **look)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: Anchor = "start",
        bold: bool = False,
        room: float = math.inf,
        opacity: float = 1,
        size: float = SIZE,
    ) -> None:
        """Words with their middle at this height, cut where they would be longer than the room."""
        weight = {"font-weight": "bold"} if bold else {}
        element = self._add(
            "text",
            "",
            **{"x": x, "y": y + size * 0.35, "text-anchor": anchor, "font-family": FONT, "font-size": f"{size}px"},
            **{"fill": INK, "fill-opacity": opacity, **weight},
        )
        element.text = cut(words, room, size)

    def below(self, axis: Axis, ticks: Iterable[float], form: Callable[[float], str], title: str | None) -> None:
        """A horizontal axis below the plot: lines at the ticks, their numbers where there is room, a title."""
        self.line((0, self.height), (self.width, self.height), opacity=0.4)
        until = -math.inf
        for tick in ticks:
            x = axis.at(tick)
            self.line((x, 0), (x, self.height), opacity=0.12)
            words = form(tick)
            reach = letters(words) / 2
            if x - reach > until:
                self.text(x, self.height + 14, words, anchor="middle")
                until = x + reach + 4
        self._foot = max(self._foot, 26.0)
        if title:
            self.text(self.width / 2, self.height + 36, title, anchor="middle")
            self._foot = max(self._foot, 48.0)

    def beside(self, axis: Axis, ticks: Iterable[float], form: Callable[[float], str], title: str | None) -> None:
        """A vertical axis at the left, growing upwards, its title above."""
        for tick in ticks:
            y = self.height - axis.at(tick)
            self.line((0, y), (self.width, y), opacity=0.12)
            self.text(-8, y, form(tick), anchor="end")
        if title:
            self.text(-8, -14, title, opacity=0.85)
            self._top = max(self._top, 26.0)

    def legend(self, entries: Sequence[tuple[str, str, str]], room: float) -> None:
        """Below all else: (shape, colour, name), one after the other at even distances, as many in a line as there is
        room for.
        """
        if not entries:
            return
        x, y = 0.0, self.height + self._foot + 18
        for shape, color, name in entries:
            size = min(room - 50, letters(name))
            if x and x + _SWATCH + size > room:
                x, y = 0.0, y + _LINE + 2
            left = x - self._left + _SWATCH / 2
            self.mark(shape, left, y, color, area=90)
            self.text(left + _SWATCH, y, name, room=size + 4)
            x += _SWATCH + size + 22
        self._foot = y - self.height + _LINE + 2

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Put the marks of another drawing into this one."""
        group = ET.Element("g", {"transform": f"translate({_number(x)},{_number(y)})"})
        group.extend(other._marks)
        self._marks.append(group)

    def margins(self, left: float = 0, right: float = 0, top: float = 0, foot: float = 0) -> None:
        """Give room around the plot; what an axis or the legend needs at the foot is added by them."""
        self._left, self._right = max(self._left, left), max(self._right, right)
        self._top, self._foot = max(self._top, top), max(self._foot, foot)

    def root(self, title: str = "", about: str = "", around: float = 5) -> ET.Element:
        """The `<svg>` element. `title` and `about` stand above the plot of a picture of its own."""
        width = self.width + self._left + self._right + 2 * around
        head = Drawing(width, 0)
        down = around
        if title:
            down += 16
            head.text(around, down, title, bold=True, size=16, room=width - 2 * around)
            for line in textwrap.wrap(about, max(30, int(width / 6.4))):
                down += _LINE
                head.text(around, down, line)
            down += 22
        height = down + self._top + self.height + self._foot + around
        size = {
            "width": _number(width),
            "height": _number(height),
            "viewBox": f"0 0 {_number(width)} {_number(height)}",
        }
        root = ET.Element("svg", size)
        root.extend(head._marks)
        moved = f"translate({_number(around + self._left)},{_number(down + self._top)})"
        ET.SubElement(root, "g", {"transform": moved}).extend(
            sorted(self._marks, key=lambda each: each.tag == "text")
        )  # no line through a word
        return root

    def _add(self, name: str, tip: str, rows: str = "", /, **attributes: object) -> ET.Element:
        given = {
            key: _number(value) if isinstance(value, int | float) else str(value) for key, value in attributes.items()
        }
        owned = {OWNER: self.owner} if self.owner else {}
        element = ET.Element(name, given | ({ROWS: rows} if rows else {}) | owned)
        if tip:
            ET.SubElement(element, "title").text = tip
        self._marks.append(element)
        return element


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

    def across(self, drawing: Drawing, x: float, *, dash: str = "", opacity: float = 1) -> None:
        """A line from top to bottom; on a narrow plot only beside the marks, since words stand between them."""
        half = self.thick / 2 + 1
        marks = [(at - half, at + half) for at, each in zip(self.at, self.lines, strict=True) if not each.heading]
        for top, end in marks if self.narrow else [(0.0, float(self.height))]:
            drawing.line((x, top), (x, end), dash=dash, opacity=opacity)

    def drawing(self) -> Drawing:
        """A drawing of this size with the names, headings and figures on it."""
        made = Drawing(self.plot, self.height)
        made.margins(self.label_room + _GAP, self.value_room + _GAP, top=3)
        left, anchor = (0.0, "start") if self.narrow else (-_GAP, "end")
        right, other = (self.plot, "end") if self.narrow else (self.plot + _GAP, "start")
        values = max((letters(each.value) for each in self.lines), default=0.0)
        room = self.plot - values - 10 if self.narrow else self.label_room + 4
        for each, at in zip(self.lines, self._words, strict=True):
            wide = self.plot if each.heading and self.narrow else room
            made.text(left, at, each.label, anchor=_anchor(anchor), bold=each.heading, room=wide)
            if each.value:
                made.text(right, at, each.value, anchor=_anchor(other), opacity=0.85)
        return made


def rows_of(system: str, **more: str) -> str:
    """The rows that a mark stands for, as the parameters of their list: those of a system (by the name that a chart has
    for it), and `dataset`, `kind`, `change`, `failed`, `q`, `sort`
    or `order`.
    """
    return urlencode({"system": system, **more}, errors="surrogatepass")


def cut(words: str, room: float, size: float = SIZE) -> str:
    """The words, or as many of their letters as there is room for, with "…" behind."""
    if letters(words, size) <= room:
        return words
    kept = words
    while kept and letters(kept + "…", size) > room:
        kept = kept[:-1]
    return kept + "…"


def plain(value: float) -> str:
    """A number of an axis: six digits, thousands apart, no zeros behind."""
    return f"{value:,.6g}"


def signed(value: float) -> str:
    """The same with its sign; 0 has none."""
    return f"{value:+.6g}" if value else "0"


def shortened(value: float) -> str:
    """12000 as 12k, 1500000 as 1.5M."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{value / power:.6g}{letter}"
    return f"{value:.6g}"


def percent_tick(value: float) -> str:
    """0.125 as 12.5 %: exact, since ticks are round."""
    return f"{100 * value:.3g} %"


def _anchor(name: str) -> Anchor:
    return "end" if name == "end" else "start"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


#: Corners of the shapes, in halves of their width from the middle.
_CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "diamond": ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
    "triangle-up": ((0, -1.15), (1.2, 0.95), (-1.2, 0.95)),
    "triangle-down": ((0, 1.15), (1.2, -0.95), (-1.2, -0.95)),
    "triangle-right": ((1.15, 0), (-0.95, 1.2), (-0.95, -1.2)),
    "triangle-left": ((-1.15, 0), (0.95, 1.2), (0.95, -1.2)),
    "cross": tuple(
        (x, y)
        for x, y in (
            *((-0.45, -1.2), (0.45, -1.2), (0.45, -0.45), (1.2, -0.45), (1.2, 0.45), (0.45, 0.45)),
            *((0.45, 1.2), (-0.45, 1.2), (-0.45, 0.45), (-1.2, 0.45), (-1.2, -0.45), (-0.45, -0.45)),
        )
    ),
}


def _outline(shape: str, x: float, y: float, half: float) -> str:
    points = [f"{_number(x + half * right)},{_number(y + half * down)}" for right, down in _CORNERS[shape]]
    return f"M{'L'.join(points)}Z"
