"""Charts, drawn when the page is built: no script and no network are needed to look at them.

Bars, and values on a line for each name, are drawn by `drawing`. Scatter plots and curves need the extra `plots`:
Vega-Lite (through altair) decides where things go, `vl-convert` draws them, and the drawing is then rebuilt from the
few elements and attributes known to be harmless, with `<title>` tooltips. In a page, text takes the page's colour, so
one drawing serves light and dark; a picture of its own (`standalone`, `png`) brings its title, its explanation and its
colours along.

A kind of chart is one function `(chart, width) -> Drawing or altair chart` in a file here, and one line of `KINDS`.
"""

from __future__ import annotations

import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput, needed
from context_bench.reports.charts.drawing import OWNER, ROWS, Drawing
from context_bench.reports.charts.style import FONT, INK, OF_ROWS, PALETTE, TIP, look
from context_bench.reports.page import Chart, Page, card_chart
from context_bench.reports.visible_text import visible

__all__ = ["KINDS", "NARROW", "PALETTE", "WIDE", "Picture", "RowsAt", "charts_of", "chosen", "png", "standalone", "svg"]

#: Kind → the function that draws it.
KINDS = {
    "pareto": "plots:draw",
    "rates": "plots:draw_rates",
    "recall": "plots:draw_recall",
    "coverage": "plots:draw_coverage",
    "distribution": "bars:draw_distribution",
    "forest": "bars:draw_forest",
    "changes": "bars:draw_changes",
    "dots": "bars:draw_dots",
    "waterfall": "bars:draw_waterfall",
    "failures": "bars:draw_failures",
    "strategies": "bars:draw_strategies",
    "areas": "bars:draw_areas",
    "amounts": "bars:draw_amounts",
    "card": "bars:draw_card",
}
#: Modules whose charts Vega-Lite draws.
_BY_VEGA = frozenset({"plots"})
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


class Picture(str):
    """The text of an SVG file. A notebook draws it, `save` writes it."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> None:
        """Write it to a file, in UTF-8."""
        Path(path).write_text(self, encoding="utf-8")


def charts_of(page: Page) -> list[Chart]:
    """Every chart of a page, its card first."""
    own = card_chart(page)
    return [*([own] if own else []), *(chart for section in page.sections for chart in section.charts)]


def chosen(found: Sequence[Chart], kind: str) -> list[Chart]:
    """The chart of that name, else all of that kind. Raises `BadInput`, which names those that there are."""
    named = [chart for chart in found if chart.id == kind][:1] or [chart for chart in found if chart.kind == kind]
    if not named:
        have = ", ".join(chart.id for chart in found) or "none: there is nothing to draw"
        why = "this run has no data for it" if kind in KINDS else "no such chart"
        raise BadInput(f"--kind {kind}: {why}; charts of this run: {have}")
    return named


#: Rows that a mark stands for (`drawing.rows_of`) → the address of their list, `None` where there is none.
RowsAt = Callable[[str], str | None]


def svg(chart: Chart, *, width: int = WIDE, rows_at: RowsAt | None = None) -> str:
    """The drawing of a chart as an `<svg>` element, about `width` pixels wide, safe to paste into a page; its text
    takes the colour of the page around it. With `rows_at` its marks are links to the rows that they stand for.

    `KeyError` for a kind nobody can draw, `MissingExtra` for one that needs the extra `plots`.
    """
    root = _labelled(_drawn(chart, width, alone=False), f"{chart.title}. {chart.about}")
    if _linked(root, rows_at):
        root.set("role", "group")  # the parts of an image are hidden from who reads with a program, links too
    return _text(root)


def _linked(root: ET.Element, rows_at: RowsAt | None) -> bool:
    """Make links of the marks whose rows have an address, and forget which rows marks stand for. Is there a link?"""
    found = False
    for parent in list(root.iter()):
        for place, mark in enumerate(parent):
            rows = mark.attrib.pop(ROWS, "")
            if rows and rows_at is not None and (address := rows_at(rows)) is not None:
                link = ET.Element("a", {"href": address, "aria-label": f"Rows: {mark.findtext('title') or ''}"})
                if owner := mark.attrib.pop(OWNER, ""):
                    link.set(OWNER, owner)
                link.append(mark)
                parent[place] = link
                found = True
    return found


def standalone(chart: Chart, *, width: int = WIDE, theme: Theme = "light") -> str:
    """The chart as an SVG file of its own: title, how to read it, background and colours included.

    Colours are written out: not every program knows `currentColor`, and none the page's.
    """
    paper, ink = THEMES[theme]
    root = _labelled(_drawn(chart, width, alone=True), f"{chart.title}. {chart.about}")
    _linked(root, None)
    root.insert(0, ET.Element("rect", {"width": "100%", "height": "100%", "fill": paper}))
    for element in root.iter():
        element.attrib.pop(OWNER, None)
        for name, value in element.attrib.items():
            if value == INK:
                element.set(name, ink)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _text(root) + "\n"


def png(chart: Chart, *, scale: float = 2.0, width: int = WIDE, theme: Theme = "light") -> bytes:
    """The same picture as PNG, `scale` pixels for each of the SVG's. Needs the extra `plots`."""
    converter = needed("vl_convert", "a picture as PNG", "plots")
    made: bytes = converter.svg_to_png(standalone(chart, width=width, theme=theme), scale=scale)
    return made


def _drawn(chart: Chart, width: int, *, alone: bool) -> ET.Element:
    """The `<svg>` element, with title and explanation if it is to stand `alone`."""
    module, _, function = KINDS[chart.kind].partition(":")
    if module in _BY_VEGA:
        return _by_vega(chart, module, function, width, alone)
    made: Drawing = getattr(import_module(f"{__name__}.{module}"), function)(chart, width)
    return made.root(visible(chart.title, 120), visible(chart.about, 600), _ROOM) if alone else made.root()


def _by_vega(chart: Chart, module: str, function: str, width: int, alone: bool) -> ET.Element:
    what = f"the chart {chart.title!r}"
    convert = needed("vl_convert", what, "plots").vegalite_to_svg
    # Charts are not checked against altair's schema part by part: that takes longer than drawing them.
    with needed("altair.utils.schemapi", what, "plots").debug_mode(False):
        made = getattr(import_module(f"{__name__}.{module}"), function)(chart, width)
        specification = (_titled(made, chart, width) if alone else made).to_dict(validate=False)
    return _rebuilt(convert({**specification, "config": look()}))


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


def _labelled(root: ET.Element, label: str) -> ET.Element:
    root.set("role", "img")
    root.set("aria-label", visible(label, 1000))
    root.set("xmlns", _SVG)
    return root


def harmless(drawing: str, label: str) -> str:
    """The drawing rebuilt from known elements and attributes; what a mark says of itself becomes its tooltip."""
    return _text(_labelled(_rebuilt(drawing), label))


def _rebuilt(drawing: str) -> ET.Element:
    root = _copy(ET.fromstring(drawing))
    assert root is not None
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
        tip, rows, owner, *_ = *told.removeprefix(TIP).split(OF_ROWS), "", ""
        if tip:
            ET.SubElement(made, "title").text = tip
        for attribute, value in ((ROWS, rows), (OWNER, owner)):
            if value:
                made.set(attribute, value)
    made.extend(copied for child in element if (copied := _copy(child)) is not None)
    return made
