"""The tool calls of a session as moves: what each looked at, and what it changed. Tells how an agent goes on after a compression."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.compression.resuming import Move, Resumed, resumed
from context_bench.compression.session_rules.ledger import acts_of
from context_bench.wire.conversation import ChatMessage, tool_calls_of


def moves(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> list[Move]:
    """One move per tool call, in order; its round is the number of its message. Paths as the calls had them."""
    acts: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for at, number, act, path in acts_of(messages, cwd=cwd):
        acts.setdefault((at, number), []).append((act, path))
    found = []
    for at, message in enumerate(messages):
        for number in range(len(tool_calls_of(message))):
            own = acts.get((at, number), [])
            reads = tuple(path for act, path in own if act == "read")
            found.append(Move(at, reads, tuple(path for act, path in own if act not in ("read", "unread"))))
    return found


def resumed_at(messages: Sequence[ChatMessage], point: int, *, cwd: str | None = None) -> Resumed:
    """How a recorded session went on after `point`: refetches, calls, and rounds before anything new (compression.md §3.6)."""
    every = moves(messages, cwd=cwd)
    return resumed([move for move in every if move.round < point], [move for move in every if move.round >= point])
