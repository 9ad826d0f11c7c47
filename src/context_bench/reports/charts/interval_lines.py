"""Charts with a line for each name and, on it, values with their intervals.

Scores by dimension (dots), paired differences to the baseline under the part of the data they are about (forest), and
the spread of values: a dot for one in twenty, a stroke at the median, a thin one at p95 (distribution).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.style import (
    INK,
    MOST,
    TIP,
    TONES,
    ChartRow,
    Rows,
    ShownNames,
    axis,
    extent,
    fixed,
    inline,
    legend,
    narrow,
    nice,
    scale,
)
from context_bench.reports.page import Chart, Figure, Gap, Rated, Spread
from context_bench.reports.visible_text import visible

_STEP = 11  # pixels between the marks of one dimension


def draw_dots(chart: Chart, width: int) -> Any:
    """The marks; names stand below one another within a dimension, in the order of the legend."""
    import altair as alt

    rated = chart.of(Rated)
    names = ShownNames([each.name for each in rated], chart.names)
    dimensions = list(dict.fromkeys(each.dimension for each in rated))[:MOST]
    rows = Rows([ChartRow(visible(each, 48)) for each in dimensions], width, thick=_STEP * len(names.shown) + 8)
    at = dict(zip(dimensions, rows.at, strict=True))
    order = {name: place - (len(names.shown) - 1) / 2 for place, name in enumerate(names.shown)}
    shown = [each for each in rated if each.dimension in at]
    values = [_record(each, names, at[each.dimension] + _STEP * order[names[each.name]]) for each in shown]
    ends = extent([end for each in shown for end in (each.score.value, each.score.low, each.score.high)], chart.span)
    low, high, ticks = nice(*ends, 5)
    plain = scale(low, high)
    x = alt.X("value:Q", title=chart.x, scale=plain, axis=axis(ticks))
    color, shape = names.encodings(legend(width, names.shown))
    base, y = inline(values), rows.y()
    tracks = inline([{"y": middle} for middle in _between(rows)]).mark_rule(opacity=0.15)
    whiskers = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.75, opacity=0.75)
    return rows.layered(
        tracks.encode(x=fixed("X", 0), x2=fixed("X2", rows.plot), y=y, color=fixed("Color", "currentColor")),
        whiskers.encode(x=alt.X("low:Q", scale=plain), x2=alt.X2("high:Q"), y=y, color=color),
        base.mark_point(filled=True, size=64, opacity=1).encode(
            x=x, y=y, color=color, shape=shape, description=alt.Description("tip:N")
        ),
    )


def _between(rows: Rows) -> list[float]:
    """Heights of the faint lines that part the dimensions."""
    reach = rows.thick / 2 + (20 if rows.narrow else 3)
    return [at - reach for at in rows.at[1:]]


def _record(each: Rated, names: ShownNames, at: float) -> dict[str, Any]:
    told, both = each.score, each.score.low is not None and each.score.high is not None
    return {
        "name": names[each.name],
        "value": told.value,
        "low": told.low if both else None,
        "high": told.high if both else None,
        "y": at,
        "tip": f"{TIP}{names[each.name]}, {visible(each.dimension, 48)}: {told.text}",
    }


_SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+.6~g')"


def draw_forest(chart: Chart, width: int) -> Any:
    """Intervals as rules, differences as marks: a disc where the verdict is good, a square where it is bad, a ring
    where it is open.
    """
    import altair as alt

    gaps = chart.of(Gap)[:MOST]
    names = ShownNames([gap.name for gap in gaps], chart.names)
    lines, places = _lines(gaps, names, brief=narrow(width))
    rows = Rows(lines, width, thick=14)
    margins = sorted({-gap.margin for gap in gaps if gap.margin})
    ends = [end for gap in gaps for end in (gap.difference.value, gap.difference.low, gap.difference.high)]
    low, high, ticks = nice(*extent([*ends, *margins], zero=True), 4 if rows.narrow else 6)
    plain = scale(low, high)
    x = alt.X("value:Q", title=chart.x, scale=plain, axis=alt.Axis(values=ticks, labelExpr=_SIGNED, labelOverlap=True))
    y = rows.y()
    values = [_gap_record(gap, names, rows.at[place]) for gap, place in zip(gaps, places, strict=True)]
    base, color = inline(values), alt.Color("color:N", scale=None)
    shape = alt.Shape("shape:N", scale=None)
    known = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2.5, opacity=0.75)
    full = base.transform_filter("datum.filled").mark_point(filled=True, size=80, opacity=1)
    ring = base.transform_filter("!datum.filled").mark_point(filled=False, size=70, strokeWidth=2, opacity=1)
    return rows.layered(
        _upright([0.0], rows, x, []),
        *([_upright(margins, rows, x, [4, 3])] if margins else []),
        known.encode(x=alt.X("low:Q", scale=plain), x2=alt.X2("high:Q"), y=y, color=color),
        *(
            each.encode(x=x, y=y, color=color, shape=shape, description=alt.Description("tip:N"))
            for each in (ring, full)
        ),
    )


def _lines(gaps: Sequence[Gap], names: ShownNames, *, brief: bool) -> tuple[list[ChartRow], list[int]]:
    """A line for each difference, with a heading before each group; and which line each difference got."""
    lines, places, group = list[ChartRow](), list[int](), None
    several = any(gap.group for gap in gaps)
    for gap in gaps:
        if several and gap.group != group:
            lines.append(ChartRow(visible(gap.group, 48) or "all data", heading=True))
            group = gap.group
        places.append(len(lines))
        lines.append(ChartRow(names[gap.name], gap.difference.short if brief else gap.difference.text))
    return lines, places


def _gap_record(gap: Gap, names: ShownNames, at: float) -> dict[str, Any]:
    told, both = gap.difference, gap.difference.low is not None and gap.difference.high is not None
    where = f", {visible(gap.group, 48)}" if gap.group else ""
    return {
        "value": told.value,
        "low": told.low if both else None,
        "high": told.high if both else None,
        "y": at,
        "color": TONES[gap.tone],
        "shape": "square" if gap.tone == "bad" else "circle",
        "filled": gap.tone != "neutral",
        "tip": f"{TIP}{names[gap.name]}{where}: {told.text}, {gap.verdict}, n {gap.n:,}",
    }


def _upright(values: Sequence[float], rows: Rows, x: Any, dash: list[int]) -> Any:

    mark = inline([{"value": value} for value in values]).mark_rule(
        strokeDash=dash or [1, 0], opacity=0.55 if dash else 0.6
    )
    return mark.encode(x=x, y=fixed("Y", 0), y2=fixed("Y2", rows.height), color=fixed("Color", INK))


#: From this ratio of the greatest value to the least on, the axis grows by factors.
_WIDE_SPREAD = 30.0
#: Below so many seconds at the greatest p95, times are told in milliseconds.
_SECONDS_FROM = 1.0


def draw_distribution(chart: Chart, width: int) -> Any:
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
