"""What an agent does right after its history was compressed: does it read again what it knew, and how soon is there anything new?

Only on recorded continuations: what was recorded after a compression shows what *that* compression cost. A replay cannot tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """One tool call. `round`: the assistant message that made it. `reads`, `changes`: paths, URLs or commands it looked at or changed."""

    round: int
    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """`refetches` of `calls` after the compression only read what had been read before and not been changed since. `rounds_to_resume`: the
    rounds of tool calls before the first that read something new or changed something; `None` if none did.
    """

    refetches: int
    calls: int
    rounds_to_resume: int | None

    @property
    def refetch_rate(self) -> float | None:
        """Share of the calls; `None` without any."""
        return self.refetches / self.calls if self.calls else None


def resumed(before: Sequence[Move], after: Sequence[Move]) -> Resumed:
    """Count over the calls after the compression, given those before it. A call that reads nothing known is neither a refetch nor news."""
    known: set[str] = set()
    for move in before:
        known = (known | set(move.reads)) - set(move.changes)
    refetches, resumed_in = 0, None
    rounds = list(dict.fromkeys(move.round for move in after))
    for move in after:
        news = bool(move.changes) or any(name not in known for name in move.reads)
        refetches += bool(move.reads) and not news
        if news and resumed_in is None:
            resumed_in = rounds.index(move.round)
        known = (known | set(move.reads)) - set(move.changes)
    return Resumed(refetches, len(after), resumed_in)
