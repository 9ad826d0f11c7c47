"""Style of all charts (colours, shapes, letters, scales), and the way from an altair chart to a harmless SVG or PNG.

`Rows` places the lines of charts with a line for each name, and the words at their sides. On a wide drawing names stand
at the left and figures at the right of the plot; on a narrow one both stand above their line, so that the plot keeps
its width.
"""

from __future__ import annotations

import math
import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Literal

from context_bench.reports.page import Chart
from context_bench.reports.visible_text import visible

#: Eight hues told apart by most kinds of colour vision, at least 3:1 on white and on near-black; shapes differ as well.
PALETTE = ("#3b7dd8", "#c9611a", "#2a9461", "#b0509f", "#8a7a1f", "#1f93a6", "#d0485f", "#7d6fd1")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
GREY = "#80868f"
TONES = {"good": "#2a9461", "bad": "#d0485f", "neutral": GREY}
INK = "currentColor"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
SIZE = 12  # pixels of letters
_NARROW = 500  # pixels below which a drawing is meant for a telephone

#: Begins the description of a mark that is to become its tooltip; no other description is shown.
TIP = "tip:"


def narrow(width: int) -> bool:
    """True if a drawing of this width is meant for a small screen."""
    return width < _NARROW


def letters(text: str, size: float = SIZE) -> float:
    """About how many pixels a text is wide."""
    return (
        sum(
            1.0 if ord(each) > 0x2E7F else 0.33 if each in "iljtf.,:;|'! " else 0.62 if each.isupper() else 0.55
            for each in text
        )
        * size
    )


class ShownNames:
    """Names as they are shown, each of them once, with their colours and shapes. `all_names` gives the order that
    colours follow.
    """

    def __init__(self, names: Iterable[str], all_names: Sequence[str] = (), longest: int = 48) -> None:
        own = list(dict.fromkeys(names))
        order = {name: place for place, name in enumerate(dict.fromkeys([*all_names, *own]))}
        self._places = {name: order[name] for name in own}
        self._shown: dict[str, str] = {}
        taken: set[str] = set()
        for name in own:
            told = text = visible(name, longest) or "(no name)"
            number = 2
            while text in taken:
                text, number = f"{told} ({number})", number + 1
            taken.add(text)
            self._shown[name] = text

    def __getitem__(self, name: str) -> str:
        return self._shown[name]

    @property
    def shown(self) -> list[str]:
        """All names as shown."""
        return list(self._shown.values())

    def color(self, name: str) -> str:
        """The colour of a name."""
        return PALETTE[self._places[name] % len(PALETTE)]

    def colors(self) -> list[str]:
        """The colours, in the order of `shown`."""
        return [self.color(name) for name in self._shown]

    def shapes(self) -> list[str]:
        """The shapes; 64 pairs of colour and shape differ."""
        return [SHAPES[(place + place // len(PALETTE)) % len(SHAPES)] for place in self._places.values()]

    def encodings(self, legend: Any) -> tuple[Any, Any]:
        """Colour and shape by the field `name`."""
        import altair as alt

        color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=self.shown, range=self.colors()), legend=legend)
        shape = alt.Shape("name:N", sort=None, scale=alt.Scale(domain=self.shown, range=self.shapes()), legend=legend)
        return color, shape


def cycled(count: int, choices: Sequence[Any] = PALETTE) -> list[Any]:
    """`count` of the choices, in turn."""
    return list(islice(cycle(choices), count))


def nice(low: float, high: float, steps: int = 5) -> tuple[float, float, list[float]]:
    """Round ends around two values, and round numbers from one to the other; equal values get room on both sides."""
    if not high > low:
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(step * number, 12) for number in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def extent(
    values: Iterable[float | None], span: tuple[float, float] | None = None, *, zero: bool = False
) -> tuple[float, float]:
    """The least and the greatest of the values that are there, within `span` if that is given; `zero`: 0 is among
    them.
    """
    known = [value for value in values if value is not None and math.isfinite(value)] + ([0.0] if zero else [])
    if span is not None:
        known = [*known, *span]
    return (min(known), max(known)) if known else (0.0, 1.0)


def axis(ticks: Sequence[float], form: str = ",.6~g", **more: Any) -> Any:
    """An axis with these numbers on it."""
    import altair as alt

    return alt.Axis(values=list(ticks), format=form, **more)


def scale(low: float, high: float, **more: Any) -> Any:
    """A scale from one end to the other, neither moved."""
    import altair as alt

    return alt.Scale(domain=[low, high], nice=False, zero=False, **more)


def legend(width: int, names: Sequence[str], *, below: bool = True, values: Sequence[str] | None = None) -> Any:
    """A legend at the foot, in as many columns as there is room for, or at the right."""
    import altair as alt

    longest = max((letters(name) for name in names), default=0.0) + 34
    limit = width - 50 if below else 200
    columns = max(1, min(len(names), int((width - 20) // min(longest, limit + 34)))) if below else 1
    orient = "bottom" if below else "right"
    made: dict[str, Any] = {
        "orient": orient,
        "columns": columns,
        "title": None,
        "labelLimit": limit,
        "symbolSize": 90,
        "symbolOpacity": 1,
    }
    if values is not None:
        made["values"] = list(values)
    return alt.Legend(**made)


def inline(values: Sequence[dict[str, Any]]) -> Any:
    """A chart of these records. They are in a tuple, for altair copies lists, value by value, with every chart they
    come to stand in.
    """
    import altair as alt

    return alt.Chart(alt.InlineData(values=tuple(values)))


def look() -> dict[str, Any]:
    """The style of the pages, as the configuration of a Vega-Lite specification."""
    text = {"labelColor": INK, "titleColor": INK, "labelFont": FONT, "titleFont": FONT, "labelFontSize": SIZE}
    lines = {"gridColor": INK, "gridOpacity": 0.12, "domainColor": INK, "domainOpacity": 0.4, "ticks": False}
    titles = {"titleFontSize": SIZE, "titleFontWeight": "normal", "titlePadding": 12}
    return {
        "background": "transparent",
        "font": FONT,
        "padding": {"left": 5, "top": 8, "right": 12, "bottom": 5},
        "view": {"stroke": None},
        "axis": {**text, **titles, **lines, "labelPadding": 6, "labelFlush": False},
        "legend": {**text, "rowPadding": 5, "columnPadding": 18, "offset": 18},
        "text": {"font": FONT, "fontSize": SIZE, "color": INK},
    }


def fixed(channel: str, value: Any) -> Any:
    """The same value for every mark: `color=fixed("Color", INK)`. Given as a dict, as `alt.value` does, altair looks
    long for its class.
    """
    import altair as alt

    return getattr(alt, f"{channel}Value")(value)


WIDE, NARROW = 900, 350  # pixels, about
Theme = Literal["light", "dark"]
#: Background and letters of pictures that stand outside a page.
THEMES: dict[str, tuple[str, str]] = {"light": ("#ffffff", "#16191d"), "dark": ("#121417", "#e8eaed")}
_ROOM = 18  # pixels around such a picture
_ELEMENTS = frozenset({"svg", "g", "path", "line", "rect", "circle", "text", "tspan"})
_ATTRIBUTES = re.compile(
    "class|width|height|viewBox|transform|d|x|y|x1|y1|x2|y2|dx|dy|cx|cy|r|fill|fill-opacity|stroke|stroke-width|stroke-opacity"
    "|stroke-dasharray|stroke-miterlimit|stroke-linecap|opacity|text-anchor|font-family|font-size|font-weight|font-style"
)
_SVG = "http://www.w3.org/2000/svg"
_NAMESPACE = f"{{{_SVG}}}"


def unchecked() -> AbstractContextManager[None]:
    """Charts made under it are not checked against altair's schema part by part, which takes longer than drawing
    them.
    """
    from altair.utils.schemapi import debug_mode

    mode: AbstractContextManager[None] = debug_mode(False)
    return mode


def in_page(chart: Any, label: str) -> str:
    """The drawing as an `<svg>` element whose text takes the colour of the page around it."""
    return harmless(_rendered(chart), label)


def on_its_own(chart: Any, told: Chart, width: int, theme: str) -> str:
    """The drawing as an SVG file. Colours are written out: not every program knows `currentColor`, and none the
    page's.
    """
    paper, ink = THEMES[theme]
    root = _rebuilt(_rendered(_titled(chart, told, width)), f"{told.title}. {told.about}")
    ground = ET.Element("rect", {"width": "100%", "height": "100%", "fill": paper})
    root.insert(0, ground)
    for element in root.iter():
        for name, value in element.attrib.items():
            if value == INK:
                element.set(name, ink)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _text(root) + "\n"


def as_png(drawing: str, scale: float) -> bytes:
    """A drawing as PNG."""
    from vl_convert import svg_to_png

    made: bytes = svg_to_png(drawing, scale=scale)
    return made


def _rendered(chart: Any) -> str:
    from vl_convert import vegalite_to_svg

    drawing: str = vegalite_to_svg({**chart.to_dict(validate=False), "config": look()})
    return drawing


def _titled(chart: Any, told: Chart, width: int) -> Any:
    """With the title and, below it, how to read the picture."""
    lines = textwrap.wrap(visible(told.about, 600), max(30, int(width / 6.4)))
    title = {"text": visible(told.title, 120), "subtitle": lines, "anchor": "start", "frame": "bounds", "offset": 16}
    look = {"fontSize": 16, "font": FONT, "color": INK, "fontWeight": 600}
    below = {
        "subtitleFontSize": 12,
        "subtitleFont": FONT,
        "subtitleColor": INK,
        "subtitlePadding": 7,
        "subtitleLineHeight": 17,
    }
    return chart.properties(title={**title, **look, **below}, padding=_ROOM)


def _text(root: ET.Element) -> str:
    return ET.tostring(root, encoding="unicode")


def harmless(drawing: str, label: str) -> str:
    """The drawing rebuilt from known elements and attributes; what a mark says of itself becomes its tooltip."""
    return _text(_rebuilt(drawing, label))


def _rebuilt(drawing: str, label: str) -> ET.Element:
    root = _copy(ET.fromstring(drawing))
    assert root is not None
    root.set("role", "img")
    root.set("aria-label", visible(label, 1000))
    root.set("xmlns", _SVG)
    return root


def _copy(element: ET.Element) -> ET.Element | None:
    name = element.tag.removeprefix(_NAMESPACE)
    if name not in _ELEMENTS:
        return None
    made = ET.Element(
        name,
        {key: value for key, value in element.attrib.items() if _ATTRIBUTES.fullmatch(key) and "url(" not in value},
    )
    made.text, made.tail = element.text, element.tail
    if (told := element.get("aria-label")) is not None and told.startswith(TIP):
        ET.SubElement(made, "title").text = told.removeprefix(TIP)
    made.extend(copied for child in element if (copied := _copy(child)) is not None)
    return made


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
