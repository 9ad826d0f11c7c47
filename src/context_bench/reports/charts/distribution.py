"""Spread of values, a line for each name: a dot for one in twenty, a stroke at the median, a thin one at p95."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import TIP, ShownNames, axis, extent, fixed, inline, nice, scale
from context_bench.reports.page import Chart, Figure, Spread

#: From this ratio of the greatest value to the least on, the axis grows by factors.
_WIDE_SPREAD = 30.0
#: Below so many seconds at the greatest p95, times are told in milliseconds.
_SECONDS_FROM = 1.0


def draw(chart: Chart, width: int) -> Any:
    """The lines, in the order of the data."""
    import altair as alt

    spreads = chart.of(Spread)[:MOST]
    names = ShownNames([each.name for each in spreads], chart.names)
    unit = _Unit.of(spreads)
    rows = Rows(
        [ChartRow(names[each.name], f"{unit.text(each.median)} · {unit.text(each.p95)}") for each in spreads],
        width,
        thick=18,
    )
    known = [unit.factor * value for each in spreads for value in (*each.values, each.median.value, each.p95.value)]
    ends, form, ticks = _scale(known, rows.narrow)
    x = alt.X(
        "value:Q",
        title=f"{chart.x}, {unit.name}" if unit.name else chart.x,
        scale=scale(*ends, **form),
        axis=axis(ticks, labelOverlap=True),
    )
    y, color = rows.y(), alt.Color("color:N", scale=None)
    placed = list(zip(spreads, rows.at, strict=True))
    dots = [
        {"value": unit.factor * value, "y": at, "color": names.color(each.name)}
        for each, at in placed
        for value in each.values
    ]
    strokes = [
        _stroke(each, at, names[each.name], share, unit) | {"color": names.color(each.name)}
        for each, at in placed
        for share in ("median", "p95")
    ]
    base = inline(strokes)
    thick = base.transform_filter("datum.thick").mark_rule(strokeWidth=3, strokeCap="round")
    thin = base.transform_filter("!datum.thick").mark_rule(strokeWidth=1.5)
    return rows.layered(
        _tracks(rows),
        inline(dots).mark_circle(size=34, opacity=0.45).encode(x=x, y=y, color=color),
        *(
            each.encode(x=x, y=rows.y("top"), y2=alt.Y2("foot:Q"), color=color, description=alt.Description("tip:N"))
            for each in (thin, thick)
        ),
    )


def _tracks(rows: Rows) -> Any:
    """A faint line behind the dots of each name."""
    base = inline([{"y": at} for at in rows.at])
    return base.mark_rule(opacity=0.15).encode(
        x=fixed("X", 0), x2=fixed("X2", rows.plot), y=rows.y(), color=fixed("Color", "currentColor")
    )


def _stroke(each: Spread, at: float, name: str, share: str, unit: _Unit) -> dict[str, Any]:
    figure = each.median if share == "median" else each.p95
    reach = 9 if share == "median" else 7
    return {
        "value": unit.factor * figure.value,
        "top": at - reach,
        "foot": at + reach,
        "thick": share == "median",
        "tip": f"{TIP}{name}: {share} {unit.text(figure)}, n {each.n:,}",
    }


@dataclass(frozen=True, slots=True)
class _Unit:
    """Unit of all values of a drawing: `factor` times the value. Without a name the values stay as they are."""

    name: str = ""
    factor: float = 1.0

    @classmethod
    def of(cls, spreads: Sequence[Spread]) -> _Unit:
        """Milliseconds for times of which even the slow ones are short."""
        if any(each.median.unit != "seconds" for each in spreads):
            return cls()
        return cls("s") if max(each.p95.value for each in spreads) >= _SECONDS_FROM else cls("ms", 1000.0)

    def text(self, figure: Figure) -> str:
        """The figure to three digits, 12.3 or 0.0123."""
        if not self.name:
            return figure.short
        value = self.factor * figure.value
        digits = 2 - math.floor(math.log10(abs(value))) if value else 0
        return f"{value:,.{min(max(digits, 0), 6)}f} {self.name}"


def _scale(values: Sequence[float], narrow: bool) -> tuple[tuple[float, float], dict[str, Any], list[float]]:
    """Ends, kind and numbers of the axis: plain from 0, or by factors where values differ by more than thirtyfold."""
    least, most = extent([value for value in values if value > 0])
    if min(values) > 0 and most / least > _WIDE_SPREAD:
        low, high = least / 1.15, most * 1.15
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        units = (1, 2, 5) if most / least < (300 if narrow else 3000) else (1,)
        ticks = [unit * 10.0**power for power in powers for unit in units if low <= unit * 10.0**power <= high]
        return (low, high), {"type": "log"}, ticks
    low, high, ticks = nice(*extent(values, zero=True), 4 if narrow else 6)
    return (low, high), {}, ticks
