"""Quality by how far texts were shortened, one line for each compressor."""

from __future__ import annotations

import math
from typing import Any

from context_bench.reports.charts.layouts import lines
from context_bench.reports.pictures import Chart, LinePoint


def draw(chart: Chart, width: int) -> Any:
    """The lines over folds, an axis that doubles."""
    folds = [point.x for point in chart.of(LinePoint)]
    first, last = math.floor(math.log2(min(folds))), math.ceil(math.log2(max(folds)))
    return lines(chart, width, [2.0**power for power in range(first, max(last, first + 1) + 1)], tip="fold")
