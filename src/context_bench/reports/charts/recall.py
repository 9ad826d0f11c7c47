"""Recall of memories among their first k hits, one line for each memory."""

from __future__ import annotations

from typing import Any

from context_bench.reports.charts.layouts import lines
from context_bench.reports.pictures import Chart, LinePoint


def draw(chart: Chart, width: int) -> Any:
    """The lines over k; the numbers on the axis are the ks that were measured."""
    return lines(chart, width, sorted({point.x for point in chart.of(LinePoint)}), tip="k")
