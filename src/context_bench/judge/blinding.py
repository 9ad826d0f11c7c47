"""Judging without knowing whose work it is: opaque ids, texts without the marks of a method, and how much such marks
give away.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

VISIBILITIES = ("context", "normalised", "response_only")

#: What betrays a method in a compressed text → pattern. Each is anchored or bounded, so that hostile text costs linear
#: time.
_MARKS = {
    "heading": re.compile(r"^[ \t]*(?:#{1,6}[ \t]+\S|\*\*[^*\n]{1,60}\*\*:?[ \t]*$)", re.MULTILINE),
    "wrapper": re.compile(
        r"</?(?:summary|conversation_summary|compacted|compaction|compressed|context|memory|state|session_summary|history)(?:\s[^<>\n]{0,200})?>",
        re.IGNORECASE,
    ),
    "retrieval marker": re.compile(
        r"\[[^\[\]\n]{0,200}(?:compressed to|retrieve|hash=|cached as|expand with)[^\[\]\n]{0,200}\]", re.IGNORECASE
    ),
    "elision marker": re.compile(
        r"[\[(<][^\[\]()<>\n]{0,80}\b(?:omitted|left out|elided|truncated|filtered|removed|masked|trimmed|snipped)\b"
        r"[^\[\]()<>\n]{0,80}[\])>]",
        re.IGNORECASE,
    ),
    "opaque": re.compile(r"\[opaque, \d+ tokens\]"),
}
_PROSE = re.compile(
    r"^[ \t]*[A-Za-z0-9' ,.;:-]{40,}$", re.MULTILINE
)  # code has other characters, and few function words anyway
_WORDS = re.compile(r"[A-Za-z]+")
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "the a an of to in on at for and or but is are was were be been it its this that with as by from not we i you "
        "they",
    )
)
_SPARSE, _ENOUGH = 0.06, 80  # share of function words below which prose was thinned out, and words it takes to tell

#: Headings as different methods write them → one word for all of them.
_SECTIONS = {
    "goal": r"goal|intent|objective|task|request|primary request",
    "changed files": r"files? (?:modified|changed|edited|created)|modified files|changes|artifacts?",
    "read files": r"files? (?:read|examined|viewed|seen)|read files",
    "decisions": r"decisions?|choices|rationale|key decisions",
    "errors": r"errors?|problems?|issues|errors and fixes",
    "state": r"state|status|current work|progress|where we are",
    "next": r"next|next steps?|to-?dos?|pending|pending tasks|open|remaining|plan",
    "facts": r"facts?|notes|key (?:facts|details|technical concepts)|details",
}
_HEADING_LINE = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+([^\n]{1,200})|\*\*([^*\n]{1,60})\*\*:?[ \t]*)$", re.MULTILINE)
_CANONICAL = [
    (name, re.compile(rf"\W*(?:\d+\W+)?(?:the )?(?:{pattern})\W*", re.IGNORECASE))
    for name, pattern in _SECTIONS.items()
]


def opaque_id(run_key: str, system: str, session: str, point: object, probe: str) -> str:
    """Twelve hex digits by which an item is known while it is judged: HMAC-SHA256 of who made it and what it
    answers.
    """
    told = "|".join((system, session, str(point), probe)).encode("utf-8", "surrogatepass")
    return hmac.new(run_key.encode("utf-8", "surrogatepass"), told, hashlib.sha256).hexdigest()[:12]


def fingerprints(text: str) -> list[str]:
    """Kinds of marks in a compressed text that tell how it was made; `thinned` = hardly a function word is left. In a
    fixed order.
    """
    found = [name for name, pattern in _MARKS.items() if pattern.search(text)]
    words = [word.lower() for line in _PROSE.findall(text) for word in _WORDS.findall(line)]
    if len(words) >= _ENOUGH and sum(word in _FUNCTION_WORDS for word in words) < _SPARSE * len(words):
        found.append("thinned")
    return found


def normalised(text: str) -> str:
    """The text with its marks made alike: headings as `Section: name` under common names, wrappers gone, every marker
    as `[...]`.
    """
    text = _MARKS["wrapper"].sub("", text)
    text = _MARKS["retrieval marker"].sub("[...]", text)
    text = _MARKS["elision marker"].sub("[...]", text)
    text = _HEADING_LINE.sub(lambda found: f"Section: {_section(found[1] or found[2])}", text)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in text.strip().split("\n")))


def _section(heading: str) -> str:
    return next(
        (name for name, pattern in _CANONICAL if pattern.fullmatch(heading)), heading.strip().strip("#*: ").lower()
    )


def leak(accuracy: float, choices: int) -> float | None:
    """(acc − 1/K) / (1 − 1/K): 0 where the judge guesses which of K methods made an item, 1 where it always knows;
    `None` for K < 2.
    """
    return None if choices < 2 else (accuracy - 1 / choices) / (1 - 1 / choices)


@dataclass(frozen=True, slots=True)
class MarkRates:
    """Share of a system's compressed texts with any mark, and by kind."""

    any: float
    kinds: dict[str, float]
    n: int


def mark_rates(texts_by_system: Mapping[str, Iterable[str]]) -> dict[str, MarkRates]:
    """Rate at which each system's compressed texts carry marks of their method: the leak that needs no judge to be
    seen.
    """
    rates = {}
    for system, texts in texts_by_system.items():
        found = [fingerprints(text) for text in texts]
        counts = {kind: sum(kind in each for each in found) for kind in (*_MARKS, "thinned")}
        if found:
            rates[system] = MarkRates(
                sum(map(bool, found)) / len(found),
                {kind: n / len(found) for kind, n in counts.items() if n},
                len(found),
            )
    return rates
