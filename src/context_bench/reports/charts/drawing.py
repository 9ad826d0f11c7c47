"""From an altair chart to a harmless drawing: for a page, as a file of its own, as PNG."""

from __future__ import annotations

import re
import textwrap
import xml.etree.ElementTree as ET
from contextlib import AbstractContextManager
from typing import Any, Literal

from context_bench.reports.charts.style import FONT, INK, TIP, look
from context_bench.reports.pictures import Chart
from context_bench.reports.text import visible

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
    """Charts made under it are not checked against altair's schema part by part, which takes longer than drawing them."""
    from altair.utils.schemapi import debug_mode

    mode: AbstractContextManager[None] = debug_mode(False)
    return mode


def in_page(chart: Any, label: str) -> str:
    """The drawing as an `<svg>` element whose text takes the colour of the page around it."""
    return harmless(_rendered(chart), label)


def on_its_own(chart: Any, told: Chart, width: int, theme: str) -> str:
    """The drawing as an SVG file. Colours are written out: not every program knows `currentColor`, and none the page's."""
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
    below = {"subtitleFontSize": 12, "subtitleFont": FONT, "subtitleColor": INK, "subtitlePadding": 7, "subtitleLineHeight": 17}
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
    made = ET.Element(name, {key: value for key, value in element.attrib.items() if _ATTRIBUTES.fullmatch(key) and "url(" not in value})
    made.text, made.tail = element.text, element.tail
    if (told := element.get("aria-label")) is not None and told.startswith(TIP):
        ET.SubElement(made, "title").text = told.removeprefix(TIP)
    made.extend(copied for child in element if (copied := _copy(child)) is not None)
    return made
