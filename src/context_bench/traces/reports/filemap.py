"""Which lines of a file are gold, were missed, read, edited and kept: bars over a ruler of lines, as numbers for an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_bench.core.spans import Ranges, size
from context_bench.traces.rows import FileMap, TraceRow

_RESOLUTION = 600  # places of a bar; gaps below one of them are not drawn
_MOST_TICKS = 5
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Lane:
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
    """One file. `told`: its figures in words. `extent`: lines that the bars span; `known`: whether that is the file's length."""

    path: str
    told: str
    lanes: list[Lane]
    ticks: list[Tick]
    extent: int
    known: bool


def file_map(path: str, one: FileMap) -> Map | None:
    """The bars of one file; `None` where no line of it is known."""
    kinds = (one.init, one.add, one.read, one.edited, one.final)
    extent = max([one.lines or 0, *(last for ranges in kinds for _, last in ranges)])
    if not extent or not any(kinds):
        return None
    lanes: list[Lane] = []

    def lane(label: str, *marks: tuple[str, Ranges]) -> None:
        drawn = [(name, _path(ranges, len(lanes), extent)) for name, ranges in marks if ranges]
        if drawn:
            lanes.append(Lane(label, drawn))

    lane("gold", ("add", one.add), ("init", one.init))
    lane("missed", ("missed", one.missed))
    lane("read", ("read", one.read))
    lane("edited", ("edited", one.edited))
    lane("final", ("final", one.final))
    return Map(path, _told(one), lanes, ruler(extent), extent, one.lines is not None)


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
    step = next(unit * 10**power for power in range(16) for unit in _STEPS if extent / (unit * 10**power) <= _MOST_TICKS)
    between = [number for number in range(step, extent, step) if number > 1 and 0.1 * extent < number < 0.86 * extent]
    ticks = [Tick("0%", "start", "1"), *(Tick(_percent((number - 0.5) / extent), "middle", f"{number:,}") for number in between)]
    return [*ticks, Tick("100%", "end", f"{extent:,}")] if extent > 1 else ticks


def _told(one: FileMap) -> str:
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


def _path(ranges: Ranges, lane: int, extent: int) -> str:
    """Boxes one unit high, from line to line."""
    drawn: list[list[int]] = []
    gap = extent / _RESOLUTION
    for first, last in ranges:
        if drawn and first - drawn[-1][1] - 1 < gap:
            drawn[-1][1] = last
        else:
            drawn.append([first, last])
    top = f"{lane + 0.15:g}"
    return "".join(f"M{first - 1} {top}H{last}v.7H{first - 1}z" for first, last in drawn)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
