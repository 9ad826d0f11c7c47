"""Numbers for the pictures of a run: coverage over its steps, bars of a file's lines, and reads by evidence.

A curve is drawn as SVG, alone or as the mean of sets of runs. Bars over a ruler of lines show gold, missed, read,
edited and kept lines. Provenance has three classes: a score made of guesses must look like one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from context_bench.core.ledger import Ranges, size
from context_bench.reports.charts import NARROW, svg
from context_bench.reports.page import Chart, Figure, LinePoint
from context_bench.reports.visible_text import visible
from context_bench.traces.coverage import LEVELS
from context_bench.traces.trace_rows import FileMap, StepView, TraceRow

_RESOLUTION = 600  # places of a bar; gaps below one of them are not drawn
_MOST_TICKS = 5
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class LineBar:
    """One bar. `marks`: (class of the style sheet, path in units of lines × lanes)."""

    label: str
    marks: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line number on the ruler: `at` in percent, `anchor` as SVG has it."""

    at: str
    anchor: str
    label: str


@dataclass(frozen=True, slots=True)
class Map:
    """One file. `summary`: its figures in words. `extent`: lines that the bars span; `complete`: true if that is
    the file's length.
    """

    path: str
    summary: str
    lanes: list[LineBar]
    ticks: list[Tick]
    extent: int
    complete: bool


def file_map(path: str, one: FileMap) -> Map | None:
    """The bars of one file; `None` where no line of it is known."""
    kinds = (one.init, one.add, one.read, one.edited, one.final)
    extent = max([one.lines or 0, *(last for ranges in kinds for _, last in ranges)])
    if not extent or not any(kinds):
        return None
    lanes: list[LineBar] = []

    def add_bar(label: str, *marks: tuple[str, Ranges]) -> None:
        drawn = [(name, _path(ranges, len(lanes), extent)) for name, ranges in marks if ranges]
        if drawn:
            lanes.append(LineBar(label, drawn))

    add_bar("gold", ("add", one.add), ("init", one.init))
    add_bar("missed", ("missed", one.missed))
    add_bar("read", ("read", one.read))
    add_bar("edited", ("edited", one.edited))
    add_bar("final", ("final", one.final))
    return Map(path, _in_words(one), lanes, ruler(extent), extent, one.lines is not None)


def in_order(row: TraceRow) -> list[tuple[str, FileMap]]:
    """The files of a run as a reader wants them: most gold missed, then gold, edited, read at length."""

    def weight(item: tuple[str, FileMap]) -> tuple[int, int, int, int, str]:
        path, one = item
        return -size(one.missed), -size(one.gold), -size(one.edited), -size(one.read), path

    return sorted(row.files.items(), key=weight)


def ranges_text(ranges: Sequence[tuple[int, int]], most: int = 12) -> str:
    """`3, 10–24`; how many more there are, where that are too many."""
    shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in ranges[:most])
    return f"{shown} and {len(ranges) - most} more ranges" if len(ranges) > most else shown


def ruler(extent: int) -> list[Tick]:
    """Round line numbers below the bars, the last line always among them."""
    step = next(
        unit * 10**power for power in range(16) for unit in _STEPS if extent / (unit * 10**power) <= _MOST_TICKS
    )
    between = [number for number in range(step, extent, step) if number > 1 and 0.1 * extent < number < 0.86 * extent]
    ticks = [
        Tick("0%", "start", "1"),
        *(Tick(_percent((number - 0.5) / extent), "middle", f"{number:,}") for number in between),
    ]
    return [*ticks, Tick("100%", "end", f"{extent:,}")] if extent > 1 else ticks


def _in_words(one: FileMap) -> str:
    parts = [f"{one.lines:,} lines" if one.lines is not None else "length not known"]
    if gold := size(one.gold):
        both = f" ({size(one.init):,} to edit, {size(one.add):,} to know)" if one.init and one.add else ""
        parts.append(f"gold {gold:,}{both}")
        parts.append(f"missed {size(one.missed):,}" if one.missed else "none missed")
    parts.append(f"read {size(one.read):,}" if one.read else "only its name shown" if one.listed else "not read")
    if one.edited:
        parts.append(f"edited {size(one.edited):,}")
    if one.final:
        parts.append(f"final {size(one.final):,}")
    return " · ".join(parts)


def _path(ranges: Ranges, place: int, extent: int) -> str:
    """Boxes one unit high, from line to line."""
    drawn: list[list[int]] = []
    gap = extent / _RESOLUTION
    for first, last in ranges:
        if drawn and first - drawn[-1][1] - 1 < gap:
            drawn[-1][1] = last
        else:
            drawn.append([first, last])
    top = f"{place + 0.15:g}"
    return "".join(f"M{first - 1} {top}H{last}v.7H{first - 1}z" for first, last in drawn)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


SHARES = tuple(percent / 100 for percent in range(0, 101, 5))
#: How levels are called where numbers are read; the paper's blocks are symbols, the seed's are spans.
LEVEL_NAMES = {"file": "file", "symbol": "symbol (“block”)", "span": "span (bytes)", "line": "line"}
_MOST_EDITS = 80


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """One run. `lines`: (level, path in units of steps × percent). `edits`: steps (x) after which files were
    changed.
    """

    steps: int
    lines: list[tuple[str, str]]
    edits: str
    ticks: list[Tick]
    label: str


def run_curve(row: TraceRow) -> DrawnCurve | None:
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
    return DrawnCurve(len(steps), known, _edits(row.steps, len(steps)), _ticks(len(steps)), label)


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
    "A curve that rises early found the right code early. AUC: the mean of a run's coverage after each of its steps."
)


#: Level → the mean coverage at each of `SHARES`, 0 to 1; `None` where no run has the level.
Course = Mapping[str, Sequence[float | None]]


def course(rows: Sequence[TraceRow]) -> dict[str, list[float | None]]:
    """The mean course of a set of runs; levels that no run has are left out."""
    found = {level: [mean_after(rows, level, share)[0] for share in SHARES] for level in LEVELS}
    return {level: means for level, means in found.items() if any(mean is not None for mean in means)}


def course_chart(sets: Mapping[str, Course]) -> Chart | None:
    """The mean course of each set: lines by level, or, for several sets, a plot per level with a line for each. `None`:
    nothing scored.
    """
    several = len(sets) > 1
    points = [
        LinePoint(
            visible(name, 40) if several else LEVEL_NAMES[level],
            100 * share,
            Figure(mean, "score"),
            LEVEL_NAMES[level] * several,
        )
        for level in LEVELS
        for name, own in sets.items()
        for share, mean in zip(SHARES, own.get(level, ()), strict=False)
        if mean is not None
    ]
    if not points:
        return None
    title = "Coverage in the course of the run"
    return Chart(
        "coverage", "coverage", title, ABOUT_COURSE, x="share of the run's steps, %", y="mean coverage", data=points
    )


def course_svg(sets: Mapping[str, Sequence[TraceRow]]) -> tuple[str, str] | None:
    """The same as pictures, wide and narrow."""
    chart = course_chart({name: course(rows) for name, rows in sets.items()})
    return None if chart is None else (svg(chart), svg(chart, width=NARROW))


#: provenance → (class, in words), the most reliable first
PROVENANCES: dict[str, tuple[str, str]] = {
    "structured": ("seen", "fields of the tool's result"),
    "output_numbered": ("seen", "line numbers in the output"),
    "output_matched": ("seen", "output found in the file"),
    "args": ("inferred", "the request's arguments"),
    "command": ("inferred", "the shell command"),
    "self_report": ("claimed", "the agent's own words"),
    "edit": ("edit", "an edit"),
}
ABOUT = (
    "Seen: the tool's output shows the lines (structured, output_numbered, output_matched). Inferred: only the "
    "request says what was read "
    "(args, command). Claimed: the agent says so (self_report). Inferred and claimed lines are guesses."
)


def kind_of(provenance: str) -> str:
    """`seen`, `inferred`, `claimed` or `edit`."""
    return PROVENANCES.get(provenance, ("claimed", ""))[0]


@dataclass(frozen=True, slots=True)
class ReadEvidence:
    """Numbers of reads by evidence; edits are not reads."""

    counts: dict[str, int]

    @property
    def reads(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @property
    def guesses(self) -> int:
        """Those that no output of a tool shows."""
        return sum(count for name, count in self.counts.items() if kind_of(name) != "seen")

    @property
    def guessed(self) -> float | None:
        """The share of guesses; `None` without reads."""
        return self.guesses / self.reads if self.reads else None

    def of_kind(self, kind: str) -> int:
        """Reads of one class."""
        return sum(count for name, count in self.counts.items() if kind_of(name) == kind)


def evidence(rows: Iterable[TraceRow]) -> ReadEvidence:
    """Count the reads of these runs by provenance, the most reliable first."""
    totals: dict[str, int] = {}
    for row in rows:
        told = row.statistics.get("provenance")
        for name, count in told.items() if isinstance(told, Mapping) else ():
            if name != "edit" and isinstance(count, int):
                totals[name] = totals.get(name, 0) + count
    order = list(PROVENANCES)
    return ReadEvidence(
        {
            name: totals[name]
            for name in sorted(totals, key=lambda name: (order.index(name) if name in order else 99, name))
        }
    )
