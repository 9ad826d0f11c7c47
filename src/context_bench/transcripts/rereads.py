"""How much of what an agent was shown it had been shown before: the price of output that was cut too short, or forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from context_bench.core.spans import Range, Ranges, common, merged, size, without
from context_bench.transcripts.trace import Event

_ALL: Ranges = [(1, 2**53)]


@dataclass(frozen=True, slots=True)
class Rereads:
    """`reads`: texts of files that the model was shown; `again`: those of them that held nothing new. `lines`, `lines_again`: the same in
    lines, where it is known which (a whole file counts as a read, and as lines only if it was shown before).
    """

    reads: int = 0
    again: int = 0
    lines: int = 0
    lines_again: int = 0

    @property
    def redundancy(self) -> float | None:
        """Share of the known lines that had been shown before; `None` where no line is known."""
        return self.lines_again / self.lines if self.lines else None

    def __add__(self, other: Rereads) -> Rereads:
        return Rereads(self.reads + other.reads, self.again + other.again, self.lines + other.lines, self.lines_again + other.lines_again)


def rereads(events: Iterable[Event]) -> Rereads:
    """Count over the events of one run, in order. What was read before an edit of the same file is new again after it."""
    known: dict[str, Ranges] = {}
    found = Rereads()
    for event in events:
        if event.path is None or not event.ok:
            continue
        if event.kind == "edit":
            known.pop(event.path, None)
        elif event.strength == "shown" and event.ranges is not None:
            found += _read(event, known)
    return found


def _read(event: Event, known: dict[str, Ranges]) -> Rereads:
    assert event.path is not None
    before = known.get(event.path, [])
    whole = event.ranges == "all"
    shown: Ranges = _ALL if event.ranges == "all" else merged([_pair(pair) for pair in event.ranges or ()])
    if not shown:
        return Rereads()
    known[event.path] = merged([*before, *shown])
    new = without(shown, before)
    if whole:
        return Rereads(1, int(not new))
    return Rereads(1, int(not new), size(shown), size(common(shown, before)))


def _pair(pair: Iterable[int]) -> Range:
    first, last = pair
    return first, last
