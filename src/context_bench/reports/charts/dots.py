"""Scores by dimension: a line for each dimension, on it a mark for each name, with its interval."""

from __future__ import annotations

from typing import Any

from context_bench.reports.charts.layouts import MOST, ChartRow, Rows
from context_bench.reports.charts.style import TIP, ShownNames, axis, extent, fixed, inline, legend, nice, scale
from context_bench.reports.page import Chart, Rated
from context_bench.reports.visible_text import visible

_STEP = 11  # pixels between the marks of one dimension


def draw(chart: Chart, width: int) -> Any:
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
