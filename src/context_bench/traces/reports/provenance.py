"""Where lines are known from, in three classes: a score made of guesses must look like one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from context_bench.traces.rows import TraceRow

#: provenance → (class, in words), the most reliable first
KNOWN_FROM: dict[str, tuple[str, str]] = {
    "structured": ("seen", "fields of the tool's result"),
    "output_numbered": ("seen", "line numbers in the output"),
    "output_matched": ("seen", "output found in the file"),
    "args": ("inferred", "the request's arguments"),
    "command": ("inferred", "the shell command"),
    "self_report": ("claimed", "the agent's own words"),
    "edit": ("edit", "an edit"),
}
ABOUT = (
    "Seen: the tool's output shows the lines (structured, output_numbered, output_matched). Inferred: only the request says what was read "
    "(args, command). Claimed: the agent says so (self_report). Inferred and claimed lines are guesses."
)


def kind_of(provenance: str) -> str:
    """`seen`, `inferred`, `claimed` or `edit`."""
    return KNOWN_FROM.get(provenance, ("claimed", ""))[0]


@dataclass(frozen=True, slots=True)
class Evidence:
    """How many reads rest on what; edits are none."""

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


def evidence(rows: Iterable[TraceRow]) -> Evidence:
    """What the reads of these runs rest on, by provenance, the most reliable first."""
    totals: dict[str, int] = {}
    for row in rows:
        told = row.statistics.get("provenance")
        for name, count in told.items() if isinstance(told, Mapping) else ():
            if name != "edit" and isinstance(count, int):
                totals[name] = totals.get(name, 0) + count
    order = list(KNOWN_FROM)
    return Evidence({name: totals[name] for name in sorted(totals, key=lambda name: (order.index(name) if name in order else 99, name))})
