"""Cutting text where a reader would: sentences, words, never inside a character that people see as one."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator

LONGEST = 320  # characters of one sentence; longer ones (tables, JSON on one line, text without spaces) are cut up
_NEAR = 24  # characters within which a cut moves to a word's edge
_END = re.compile(r"[.!?…][\"'”’»)\]]{0,3}(?=\s)|[。！？｡][\"”’」』）]{0,3}|(?<!\n)(?=\n[ \t\r]*(\n)?)")
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|cf|No|Fig|Eq|Sec|Vol|approx|e\.g|i\.e))\.$")
_SOFT_END = re.compile(r"\s(?=\S)|(?<=[,;}\]|])")


def sentences(text: str) -> list[str]:
    """`text` in pieces that join to it again: sentences, list items, lines of data.

    Whitespace belongs to the piece that follows it. A line that starts with a small letter continues the sentence
    before it, so prose wrapped at a fixed width stays whole. No piece is longer than `LONGEST` characters.
    """
    cuts = [0]
    for found in _END.finditer(text):
        if found.end() > cuts[-1] and _ends_here(text, found):
            cuts.append(found.end())
    cuts.append(len(text))
    whole = [text[a:b] for a, b in itertools.pairwise(cuts) if b > a]
    return [piece for sentence in _without_blanks(whole) for piece in _not_too_long(sentence)]


def _ends_here(text: str, found: re.Match[str]) -> bool:
    following = _first_visible(text, found.end())
    if not found.group():  # a line break, or an empty line
        return bool(found[1]) or not following.islower()
    if found.group()[0] != ".":
        return True
    return not following.islower() and not _ABBREVIATION.search(text, max(0, found.start() - 8), found.start() + 1)


def _first_visible(text: str, start: int) -> str:
    for char in text[start : start + 40]:
        if not char.isspace():
            return char
    return ""


def _without_blanks(pieces: list[str]) -> Iterator[str]:
    """Pieces of nothing but whitespace go in front of the next one (the last ones, behind)."""
    held: list[str] = []
    last: str | None = None
    for piece in pieces:
        if not piece.strip():
            held.append(piece)
            continue
        if last is not None:
            yield last
        last, held = "".join([*held, piece]), []
    if last is not None or held:
        yield "".join([last or "", *held])


def _not_too_long(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > LONGEST:
        soft = [found.start() for found in _SOFT_END.finditer(sentence, start + LONGEST // 2, start + LONGEST)]
        end = max(start + 1, soft[-1] if soft else cut_before(sentence, start + LONGEST))
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def cut_before(text: str, at: int) -> int:
    """The last position ≤ `at` where cutting tears no visible character apart (`at` itself if there is none within 64 characters)."""
    at = min(max(at, 0), len(text))
    return next((position for position in range(at, max(-1, at - 64), -1) if _may_cut(text, position)), at)


def cut_after(text: str, at: int) -> int:
    """The first position ≥ `at` where cutting tears no visible character apart (`at` itself if there is none within 64 characters)."""
    at = min(max(at, 0), len(text))
    return next((position for position in range(at, min(len(text), at + 64) + 1) if _may_cut(text, position)), at)


def _may_cut(text: str, at: int) -> bool:
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before == "\u200d" or "\ud800" <= before <= "\udbff" or (before == "\r" and after == "\n"):
        return False
    if _is_flag(before) and _is_flag(after):
        start = at
        while start > max(0, at - 1024) and _is_flag(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 0
    return not _joins_left(after)


def _joins_left(char: str) -> bool:
    return (
        char == "\u200d"
        or "\ufe00" <= char <= "\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\udc00" <= char <= "\udfff"
        or (char > "\u02ff" and unicodedata.category(char).startswith("M"))
    )


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def word_end(text: str, at: int) -> int:
    """A good end for a kept head: a word's end at most 24 characters before `at`, else a character's."""
    if at >= len(text) or text[at].isspace():
        return cut_before(text, at)
    for position in range(at, max(0, at - _NEAR), -1):
        if text[position - 1].isspace():
            return position
    return cut_before(text, at)


def word_start(text: str, at: int) -> int:
    """A good start for a kept tail: a word's start at most 24 characters after `at`, else a character's."""
    if at <= 0 or text[at - 1 : at].isspace():
        return cut_after(text, at)
    for position in range(at, min(len(text), at + _NEAR)):
        if text[position].isspace():
            return position
    return cut_after(text, at)
