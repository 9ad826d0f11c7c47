"""An agent's first steps after its history was compressed: rounds in which it reads again, and rounds before anything new.

Only recorded continuations count: they show what *that* compression cost. A replay cannot show more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_bench.compression.session_rules.ledger import acts_of
from context_bench.wire.conversation import ChatMessage, tool_calls_of


@dataclass(frozen=True, slots=True)
class ResumedCall:
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


def resumed(before: Sequence[ResumedCall], after: Sequence[ResumedCall]) -> Resumed:
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


def actions(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> list[ResumedCall]:
    """One move per tool call, in order; its round is the number of its message. Paths as the calls had them."""
    acts: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for at, number, act, path in acts_of(messages, cwd=cwd):
        acts.setdefault((at, number), []).append((act, path))
    found = []
    for at, message in enumerate(messages):
        for number in range(len(tool_calls_of(message))):
            own = acts.get((at, number), [])
            reads = tuple(path for act, path in own if act == "read")
            found.append(ResumedCall(at, reads, tuple(path for act, path in own if act not in ("read", "unread"))))
    return found


def resumed_at(messages: Sequence[ChatMessage], point: int, *, cwd: str | None = None) -> Resumed:
    """The course of a recorded session after `point`: refetches, calls, and rounds before anything new (compression.md §3.6)."""
    every = actions(messages, cwd=cwd)
    return resumed([move for move in every if move.round < point], [move for move in every if move.round >= point])
