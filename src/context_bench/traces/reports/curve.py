"""Coverage in the course of a run, as numbers for an SVG, and the mean course of sets of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_bench.reports.charts import NARROW, svg
from context_bench.reports.page import Figure
from context_bench.reports.pictures import Chart, CurvePoint
from context_bench.reports.text import visible
from context_bench.traces.coverage import LEVELS
from context_bench.traces.reports.filemap import Tick
from context_bench.traces.rows import StepView, TraceRow

SHARES = tuple(percent / 100 for percent in range(0, 101, 5))
#: How levels are called where numbers are read; the paper's blocks are symbols, the seed's are spans.
LEVEL_NAMES = {"file": "file", "symbol": "symbol (“block”)", "span": "span (bytes)", "line": "line"}
_MOST_EDITS = 80


@dataclass(frozen=True, slots=True)
class Curve:
    """One run. `lines`: (level, path in units of steps × percent). `edits`: steps (x) after which files were changed."""

    steps: int
    lines: list[tuple[str, str]]
    edits: str
    ticks: list[Tick]
    label: str


def run_curve(row: TraceRow) -> Curve | None:
    """The course of one run; `None` where it was not scored or had no step."""
    if row.score is None or not row.score.steps:
        return None
    steps = row.score.steps
    lines = [(level, _stairs([step.get(level) for step in steps])) for level in LEVELS]
    known = [(level, path) for level, path in lines if path]
    if not known:
        return None
    ends = ", ".join(f"{level} {steps[-1].get(level) or 0.0:.2f}" for level, _ in known)
    label = f"Coverage of the gold after each of {len(steps):,} steps; at the end: {ends}"
    return Curve(len(steps), known, _edits(row.steps, len(steps)), _ticks(len(steps)), label)


def _stairs(values: Sequence[float | None]) -> str:
    """From (0, 100) to the right; down (which is up on paper) where the value grows. Unknown throughout: nothing."""
    if all(value is None for value in values):
        return ""
    path, height = "M0 100", 0.0
    for number, value in enumerate(values, 1):
        now = height if value is None else value
        if now != height:
            path += f"H{number}V{100 * (1 - now):.4g}"
            height = now
    return f"{path}H{len(values)}"


def _edits(steps: Sequence[StepView], last: int) -> str:
    """Short strokes at the foot, where files were changed."""
    places: dict[int, None] = {}
    at = 0
    for step in steps:
        at = step.number if step.number is not None else at
        if any(call.kind == "edit" and call.ok for call in step.calls):
            places[min(at, last)] = None
    return "".join(f"M{place} 100v-9" for place in list(places)[:_MOST_EDITS])


def _ticks(steps: int) -> list[Tick]:
    unit = next(unit * 10**power for power in range(16) for unit in (1, 2, 5) if steps / (unit * 10**power) <= 6)
    numbers = [number for number in range(unit, steps, unit) if number < 0.9 * steps]
    middle = [Tick(f"{100 * number / steps:.2f}%", "middle", f"{number:,}") for number in numbers]
    return [Tick("0%", "start", "0"), *middle, Tick("100%", "end", f"{steps:,}")]


def after(row: TraceRow, level: str, share: float) -> float | None:
    """Coverage when this share of the run's steps was done; 0 before the first."""
    steps = row.score.steps if row.score else []
    if not steps:
        return None
    done = math.floor(share * len(steps) + 1e-9)
    if done:
        return steps[done - 1].get(level)
    return None if steps[0].get(level) is None else 0.0


def mean_after(rows: Sequence[TraceRow], level: str, share: float) -> tuple[float | None, int]:
    """The mean of that over runs, and over how many."""
    known = [value for row in rows if (value := after(row, level, share)) is not None]
    return (sum(known) / len(known) if known else None), len(known)


ABOUT_COURSE = (
    "Mean coverage of the gold when a share of a run's own steps was done, over the runs that have the level. "
    "A curve that rises early found the right code early; the area below it is the AUC."
)


#: Level → the mean coverage at each of `SHARES`, 0 to 1; `None` where no run has the level.
Course = Mapping[str, Sequence[float | None]]


def course(rows: Sequence[TraceRow]) -> dict[str, list[float | None]]:
    """The mean course of a set of runs; levels that no run has are left out."""
    found = {level: [mean_after(rows, level, share)[0] for share in SHARES] for level in LEVELS}
    return {level: means for level, means in found.items() if any(mean is not None for mean in means)}


def course_chart(sets: Mapping[str, Course]) -> Chart | None:
    """The mean course of each set: lines by level, or, for several sets, a plot per level with a line for each. `None`: nothing scored."""
    several = len(sets) > 1
    points = [
        CurvePoint(visible(name, 40) if several else LEVEL_NAMES[level], 100 * share, Figure(mean, "score"), LEVEL_NAMES[level] * several)
        for level in LEVELS
        for name, own in sets.items()
        for share, mean in zip(SHARES, own.get(level, ()), strict=False)
        if mean is not None
    ]
    if not points:
        return None
    title = "Coverage in the course of the run"
    return Chart("coverage", "coverage", title, ABOUT_COURSE, x="share of the run's steps, %", y="mean coverage", data=points)


def course_svg(sets: Mapping[str, Sequence[TraceRow]]) -> tuple[str, str] | None:
    """The same as pictures, wide and narrow."""
    chart = course_chart({name: course(rows) for name, rows in sets.items()})
    return None if chart is None else (svg(chart), svg(chart, width=NARROW))
