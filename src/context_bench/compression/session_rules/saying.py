"""What was said in a session, text by text and sentence by sentence, with the places to point at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from context_bench.compression.probes.probe import ProbeAtom, ProbeType, Source
from context_bench.compression.session_rules.asking import question_of
from context_bench.wire.conversation import ChatMessage, message_text

#: Sentences end at full stops before a space, or at the end of a line.
_END = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？؟])|\n+")


@dataclass(frozen=True, slots=True)
class Said:
    """A text of a message: `at` in the session, `role` of who said it."""

    at: int
    role: str
    text: str

    def source(self, start: int, end: int) -> Source:
        """A piece of it as a place."""
        return Source(self.at, start, end)

    def sentences(self) -> Iterator[tuple[str, int]]:
        """Each sentence (or line) with where it begins."""
        start = 0
        for end in [*(found.span() for found in _END.finditer(self.text)), (len(self.text), len(self.text))]:
            piece = self.text[start : end[0]]
            if piece.strip():
                yield piece.strip(), start + len(piece) - len(piece.lstrip())
            start = end[1]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A probe before it is chosen and named; the lowest `rank` is asked first. `key` and `fill`: of its question (`asking`)."""

    type: ProbeType
    question: str
    truth: str
    atoms: tuple[ProbeAtom, ...]
    rank: float
    key: str = ""
    fill: tuple[str, ...] = ()


def candidate(kind: ProbeType, key: str, fill: Sequence[str], truth: str, atoms: Sequence[ProbeAtom], rank: float) -> Candidate:
    """A candidate that asks the question `key`, in English until somebody says otherwise."""
    return Candidate(kind, question_of(key, *fill), truth, tuple(atoms), rank, key, tuple(fill))


def said(messages: Sequence[ChatMessage], *roles: str) -> list[Said]:
    """The texts of these roles (all but system without any), in order."""
    wanted = roles or ("user", "assistant", "tool", "function")
    return [Said(at, str(m["role"]), text) for at, m in enumerate(messages) if m.get("role") in wanted and (text := message_text(m))]


def everything(messages: Sequence[ChatMessage]) -> str:
    """All texts and the arguments of all calls, as one text."""
    from context_bench.wire.conversation import tool_calls_of

    return "\n".join(part for m in messages for part in (message_text(m), *(call["arguments"] for call in tool_calls_of(m))) if part)
