"""Charts, drawn when the page is built: no script and no network are needed to look at them.

Vega-Lite (through altair) decides where things go, `vl-convert` draws them, and the drawing is then rebuilt from the
few elements and attributes known to be harmless, with `<title>` tooltips. In a page, text takes the page's colour, so
one drawing serves light and dark; a picture of its own (`standalone`, `png`) brings its title, its explanation and its
colours along.

A kind of chart is one function `(chart, width) -> altair chart` in a file here, and one line of `KINDS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from context_bench.reports.charts.style import NARROW, PALETTE, WIDE, Theme, as_png, in_page, on_its_own, unchecked
from context_bench.reports.page import Chart

__all__ = ["KINDS", "NARROW", "PALETTE", "WIDE", "png", "standalone", "svg"]

#: Kind → the function that draws it.
KINDS = {
    "pareto": "quality_price:draw",
    "rates": "curves:draw_rates",
    "recall": "curves:draw_recall",
    "coverage": "curves:draw_coverage",
    "distribution": "interval_lines:draw_distribution",
    "forest": "interval_lines:draw_forest",
    "dots": "interval_lines:draw_dots",
    "waterfall": "bars:draw_waterfall",
    "failures": "bars:draw_failures",
    "strategies": "bars:draw_strategies",
}


def svg(chart: Chart, *, width: int = WIDE) -> str:
    """The drawing of a chart as an `<svg>` element, about `width` pixels wide, safe to paste into a page.

    `KeyError` for a kind nobody can draw.
    """
    with unchecked():
        return in_page(_made(chart, width), f"{chart.title}. {chart.about}")


def standalone(chart: Chart, *, width: int = WIDE, theme: Theme = "light") -> str:
    """The chart as an SVG file of its own: title, how to read it, background and colours included."""
    with unchecked():
        return on_its_own(_made(chart, width), chart, width, theme)


def png(chart: Chart, *, scale: float = 2.0, width: int = WIDE, theme: Theme = "light") -> bytes:
    """The same picture as PNG, `scale` pixels for each of the SVG's."""
    return as_png(standalone(chart, width=width, theme=theme), scale)


def _made(chart: Chart, width: int) -> Any:
    module, _, function = KINDS[chart.kind].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)(chart, width)
