"""Paired differences to the baseline with their intervals, a line for each, under the part of the data they are
about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import INK, TIP, TONES, ShownNames, extent, fixed, inline, narrow, nice, scale
from context_bench.reports.page import Chart, Gap
from context_bench.reports.visible_text import visible

_SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+.6~g')"


def draw(chart: Chart, width: int) -> Any:
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
    values = [_record(gap, names, rows.at[place]) for gap, place in zip(gaps, places, strict=True)]
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


def _record(gap: Gap, names: ShownNames, at: float) -> dict[str, Any]:
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
