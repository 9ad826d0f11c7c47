"""Charts of curves: recall over k, quality over folds, coverage in the course of runs; a line for each name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from context_bench.reports.charts.style import (
    INK,
    SIZE,
    TIP,
    ShownNames,
    axis,
    cycled,
    extent,
    fixed,
    inline,
    legend,
    letters,
    narrow,
    nice,
    scale,
)
from context_bench.reports.page import Chart, LinePoint

_DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_LEFT = 66
_NAME_GAP = 15  # pixels between names at the ends of lines
_MOST_AT_ENDS = 20  # names that find room there


def draw_recall(chart: Chart, width: int) -> Any:
    """Recall of memories among their first k hits, one line for each memory; the axis has the ks that were measured."""
    return _lines(chart, width, sorted({point.x for point in chart.of(LinePoint)}), tip="k")


def draw_rates(chart: Chart, width: int) -> Any:
    """Quality by how far texts were shortened, one line for each compressor; the axis of folds doubles."""
    folds = [point.x for point in chart.of(LinePoint)]
    first, last = math.floor(math.log2(min(folds))), math.ceil(math.log2(max(folds)))
    return _lines(chart, width, [2.0**power for power in range(first, max(last, first + 1) + 1)], tip="fold")


def draw_coverage(chart: Chart, width: int) -> Any:
    """Growth of coverage in the course of runs: lines by level, or, for several sets, a plot for each level."""
    import altair as alt

    points = chart.of(LinePoint)
    names = ShownNames([point.name for point in points], longest=40)
    panels = list(dict.fromkeys(point.panel for point in points))
    values = [{"name": names[p.name], "panel": p.panel, "x": p.x, "y": p.y.value} for p in points]
    columns = 2 if len(panels) > 1 and not narrow(width) else 1
    plot = (width - 66 - 24 - (columns - 1) * 50) // columns
    told = legend(width, names.shown) if len(names.shown) > 1 else None
    if told is not None:
        told["symbolSize"] = 700  # long enough to tell dashes
    color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=names.shown, range=names.colors()), legend=told)
    dashes = alt.Scale(domain=names.shown, range=cycled(len(names.shown), _DASHES))
    lines = (
        inline(values)
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("x:Q", title=chart.x, scale=scale(0, 100), axis=axis([0, 25, 50, 75, 100])),
            y=alt.Y("y:Q", title=chart.y, scale=scale(0, 1), axis=axis([0, 0.25, 0.5, 0.75, 1])),
            color=color,
            strokeDash=alt.StrokeDash("name:N", sort=None, scale=dashes, legend=told),
        )
    )
    lines = lines.properties(width=plot, height=170 if len(panels) > 1 else 260)
    if len(panels) < 2:
        return lines
    header = alt.Header(title=None, labelColor=INK, labelFontSize=SIZE, labelFontWeight="bold", labelAnchor="start")
    return lines.facet(facet=alt.Facet("panel:N", sort=panels, header=header), columns=columns)


def _lines(chart: Chart, width: int, ticks: Sequence[float], *, tip: str) -> Any:
    """`ticks`: positive numbers on the axis, which doubles with every step; `tip`: what x is, in tooltips."""
    import altair as alt

    points = chart.of(LinePoint)
    names = ShownNames([point.name for point in points], chart.names)
    at_ends = not narrow(width) and 1 < len(names.shown) <= _MOST_AT_ENDS
    room = min(190.0, max(map(letters, names.shown), default=0) + 18) if at_ends else 24
    plot, height = int(width - _LEFT - room), 280 if narrow(width) else 330
    ends = [math.log2(tick) for tick in ticks]
    left, right = (min(ends) - 0.15, max(ends) + 0.15) if len(set(ends)) > 1 else (ends[0] - 0.5, ends[0] + 0.5)
    low, high, y_ticks = nice(
        *extent([end for p in points for end in (p.y.value, p.y.low, p.y.high)], chart.span, zero=True), 5
    )
    aside = _aside(names.shown, 0 if narrow(width) else 5, (right - left) / plot)
    values = [_record(names[point.name], point, aside, tip) for point in points]
    named = legend(width, names.shown) if not at_ends else None
    color, shape = names.encodings(named)
    label = "format(pow(2, datum.value), ',.3~g')"
    x = alt.X(
        "x:Q", title=chart.x, scale=scale(left, right), axis=alt.Axis(values=ends, labelExpr=label, labelOverlap=True)
    )
    y = alt.Y("y:Q", title=chart.y, scale=scale(low, high), axis=axis(y_ticks))
    base = inline(values)
    layers = [
        base.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=color),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, opacity=0.8)
        .encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=color, shape=shape, description=alt.Description("tip:N")
        ),
    ]
    if at_ends:
        layers.append(_at_ends(values, names, (low, high), height, x, y, plot))
    return alt.layer(*layers).properties(width=plot, height=height)


def _aside(names: Sequence[str], pixels: float, per_pixel: float) -> dict[str, float]:
    """Distance by which each line is moved aside, so that whiskers at one place do not cover one another."""
    middle = (len(names) - 1) / 2
    step = min(pixels, 36 / max(1, len(names)))
    return {name: (place - middle) * step * per_pixel for place, name in enumerate(names)}


def _record(name: str, point: LinePoint, aside: dict[str, float], tip: str) -> dict[str, Any]:
    whole = point.y.low is not None and point.y.high is not None
    return {
        "name": name,
        "x": math.log2(point.x) + (aside[name] if whole else 0.0),
        "y": point.y.value,
        "low": point.y.low if whole else None,
        "high": point.y.high if whole else None,
        "tip": f"{TIP}{name}, {tip} {point.x:,.3g}: {point.y.text}",
    }


def _at_ends(
    values: list[dict[str, Any]], names: ShownNames, ends: tuple[float, float], height: int, x: Any, y: Any, plot: int
) -> Any:
    """Names at the right, each beside the end of its line as nearly as there is room."""
    import altair as alt

    last: dict[str, dict[str, Any]] = {}
    for each in values:
        if each["name"] not in last or each["x"] >= last[each["name"]]["x"]:
            last[each["name"]] = each
    per_pixel = (ends[1] - ends[0]) / height
    wanted = sorted(((each["y"], name) for name, each in last.items()), reverse=True)
    placed: list[dict[str, Any]] = []
    above = ends[1] + _NAME_GAP * per_pixel
    for value, name in wanted:
        above = min(value, above - _NAME_GAP * per_pixel)
        placed.append({"name": name, "text": name, "y": above})
    lowest = ends[0]
    for each in reversed(placed):
        each["y"] = max(each["y"], lowest)
        lowest = each["y"] + _NAME_GAP * per_pixel
    color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=names.shown, range=names.colors()), legend=None)
    mark = inline(placed).mark_text(align="left", baseline="middle", limit=185)
    return mark.encode(x=fixed("X", plot + 8), y=y, text=alt.Text("text:N"), color=color)
