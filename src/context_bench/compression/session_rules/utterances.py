"""Texts and sentences of a session with their places, and the questions that are asked about them.

Questions are data, by key, in the language of the session.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from context_bench.compression.probe import ProbeAtom, ProbeType, Source
from context_bench.wire.conversation import ChatMessage, message_text

_GERMAN = re.compile(
    r"\b(?:und|nicht|der|die|das|ist|eine?n?|bitte|wir|auf|mit|für|noch|dann|aber|auch|wird|von)\b", re.IGNORECASE
)
_ENGLISH = re.compile(
    r"\b(?:and|not|the|is|an?|please|we|on|with|for|then|but|also|will|of|to|it|that)\b", re.IGNORECASE
)
_LOOKED_AT = 20_000


@lru_cache(maxsize=1)
def _questions() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("context_bench.compression.session_rules").joinpath("questions.toml").read_text("utf-8"))


def question_of(key: str, *fill: str, language: str = "en") -> str:
    """The question `key` in `language` (English where there is none of it), with its gaps filled."""
    known = _questions()
    return known.get(language, known["en"])[key].format(*fill)


def language_of(messages: Sequence[ChatMessage]) -> str:
    """`en`, `de`, `zh` or `ar`: what the user (else anybody) writes in, by script and small words; English where it is
    none of them.
    """
    spoken = [m for m in messages if m.get("role") == "user"] or list(messages)
    text = "\n".join(message_text(m)[:4000] for m in spoken[:40])[:_LOOKED_AT]
    letters = sum(char.isalpha() for char in text) or 1
    if sum("\u4e00" <= char <= "\u9fff" for char in text) > 0.2 * letters:
        return "zh"
    if sum("\u0600" <= char <= "\u06ff" for char in text) > 0.3 * letters:
        return "ar"
    return "de" if len(_GERMAN.findall(text)) > len(_ENGLISH.findall(text)) else "en"


#: Sentences end at full stops before a space, or at the end of a line.
_END = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？؟])|\n+")


@dataclass(frozen=True, slots=True)
class Utterance:
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
    """A probe before it is chosen and named; the lowest `rank` is asked first. `key` and `fill`: of its question
    (`asking`).
    """

    type: ProbeType
    question: str
    truth: str
    atoms: tuple[ProbeAtom, ...]
    rank: float
    key: str = ""
    fill: tuple[str, ...] = ()


def candidate(
    kind: ProbeType, key: str, fill: Sequence[str], truth: str, atoms: Sequence[ProbeAtom], rank: float
) -> Candidate:
    """A candidate that asks the question `key`, in English until somebody says otherwise."""
    return Candidate(kind, question_of(key, *fill), truth, tuple(atoms), rank, key, tuple(fill))


def utterances(messages: Sequence[ChatMessage], *roles: str) -> list[Utterance]:
    """The texts of these roles (all but system without any), in order."""
    wanted = roles or ("user", "assistant", "tool", "function")
    return [
        Utterance(at, str(m["role"]), text)
        for at, m in enumerate(messages)
        if m.get("role") in wanted and (text := message_text(m))
    ]


def everything(messages: Sequence[ChatMessage]) -> str:
    """All texts and the arguments of all calls, as one text."""
    from context_bench.wire.conversation import tool_calls_of

    return "\n".join(
        part for m in messages for part in (message_text(m), *(call["arguments"] for call in tool_calls_of(m))) if part
    )
