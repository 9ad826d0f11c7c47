"""Growth of coverage in the course of runs: lines by level, or, for several sets, a plot for each level."""

from __future__ import annotations

from typing import Any

from context_bench.reports.charts.style import INK, SIZE, ShownNames, axis, cycled, inline, legend, narrow, scale
from context_bench.reports.pictures import Chart, LinePoint

_DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])


def draw(chart: Chart, width: int) -> Any:
    """The lines; x from 0 to 100 %, y from 0 to 1."""
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
