"""Texts of chat messages: replacing them, cutting them up, and keeping the best within a number of tokens.

Texts are cut where a reader would: at sentences and words, never inside a character that people see as one. `keep_best`
keeps the sentences that come first in a ranking, in their old order. `result_of` reads messages from the reply of a
filter, service or system.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import TokenCounter, VocabularyCounter
from context_bench.systems.context import texts_of

Messages = list[dict[str, Any]]
Shorten = Callable[[list[str], int], list[str]]


def with_texts(messages: Messages, texts: list[str]) -> Messages:
    """The same messages with their texts replaced in order; nothing else is touched, the originals stay."""
    supply = iter(texts)
    return [
        {**message, "content": _replaced(message["content"], supply)} if "content" in message else message
        for message in messages
    ]


def _replaced(content: Any, supply: Any) -> Any:
    if isinstance(content, str):
        return next(supply)
    if isinstance(content, list):
        return [
            {**part, "text": next(supply)} if isinstance(part, dict) and isinstance(part.get("text"), str) else part
            for part in content
        ]
    return content


def compressed(
    prefix: Messages, budget: int | None, keep: float, counter: TokenCounter, shorten: Shorten
) -> Compressed:
    """Bring the texts of `prefix` down to `budget` tokens (or the share `keep`) with `shorten(texts, tokens)`.

    What fits already is returned as it is.
    """
    texts = texts_of(prefix)
    before = sum(map(counter.count, texts))
    allowed = math.floor(before * keep) if budget is None else budget
    if before <= allowed:
        return Compressed(prefix, before, before)
    shorter = shorten(texts, allowed)
    return Compressed(with_texts(prefix, shorter), before, sum(map(counter.count, shorter)))


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
    return [piece for sentence in _without_blanks(_cut_at_ends(text)) for piece in _not_too_long(sentence)]


def _cut_at_ends(text: str) -> Iterator[str]:
    start = 0
    for found in _END.finditer(text):
        if found.end() > start and _ends_here(text, found):
            yield text[start : found.end()]
            start = found.end()
    if start < len(text):
        yield text[start:]


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


def _without_blanks(pieces: Iterable[str]) -> Iterator[str]:
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
    """The last position ≤ `at` where cutting tears no visible character apart (`at` itself if there is none within 64
    characters).
    """
    at = min(max(at, 0), len(text))
    return next((position for position in range(at, max(-1, at - 64), -1) if _may_cut(text, position)), at)


def cut_after(text: str, at: int) -> int:
    """The first position ≥ `at` where cutting tears no visible character apart (`at` itself if there is none within 64
    characters).
    """
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


@dataclass(frozen=True, slots=True)
class PlacedSentence:
    """One sentence, and which of the texts it is from."""

    slot: int
    text: str


def keep_best(
    texts: list[str], budget: int, counter: VocabularyCounter, rank: Callable[[Sequence[PlacedSentence]], Sequence[int]]
) -> list[str]:
    """The texts with only their best sentences left, at most `budget` tokens in all.

    `rank` gives all sentence positions, best first. One that no longer fits is passed over for the next that does. If
    not even one fits, the best that begins in the budget is cut short. Where tokens are estimated, what is left fits by
    the estimate.
    """
    found = [PlacedSentence(slot, piece) for slot, text in enumerate(texts) for piece in sentences(text)]
    costs = counter.totals((sentence.text,) for sentence in found)
    rough = counter.estimates(texts)
    order = list(rank(found))
    waiting = order
    kept: list[int] = []
    total = 0
    while True:
        added, waiting = _fill(waiting, costs, budget - total)
        kept += added
        shown = _render(found, kept, len(texts))
        total = sum(map(counter.count, shown))
        while total > budget and kept:  # tokens of joined text can be more than the sum: rare, and never by much
            over = total - budget - costs[kept.pop()]
            while rough and over > 0 and kept:  # but an estimate can be
                over -= costs[kept.pop()]
            shown = _render(found, kept, len(texts))
            total = sum(map(counter.count, shown))
            waiting = []
        if not added or not waiting or rough:
            break
    return shown if kept or not found or budget <= 0 else _first_words(found, order, budget, counter, len(texts))


def _fill(waiting: list[int], costs: list[int], room: int) -> tuple[list[int], list[int]]:
    added: list[int] = []
    left: list[int] = []
    for position in waiting:
        if costs[position] <= room:
            room -= costs[position]
            added.append(position)
        else:
            left.append(position)
    return added, left


def _render(found: Sequence[PlacedSentence], kept: list[int], slots: int) -> list[str]:
    shown: list[list[str]] = [[] for _ in range(slots)]
    for position in sorted(kept):
        shown[found[position].slot].append(found[position].text)
    return ["".join(pieces).strip() for pieces in shown]


def _first_words(
    found: Sequence[PlacedSentence], order: Sequence[int], budget: int, counter: VocabularyCounter, slots: int
) -> list[str]:
    shown = ["" for _ in range(slots)]
    best = found[order[0]]
    shown[best.slot] = head(best.text.strip(), budget, counter)
    return shown


def head(text: str, tokens: int, counter: VocabularyCounter) -> str:
    """The longest beginning of `text` of at most `tokens` tokens that ends at a word's end where one is near."""
    if tokens <= 0:
        return ""
    at = word_end(text, len(counter.truncate(text, tokens)))
    less = 1
    while at > 0 and (size := counter.count(text[:at])) > tokens:
        if counter.estimates((text[:at],)):
            less = max(2 * less, at - at * tokens // size)
        at = word_end(text, at - less)
    return text[:at].rstrip()


def tail(text: str, tokens: int, counter: VocabularyCounter) -> str:
    """The longest end of `text` of at most `tokens` tokens that begins at a word's start where one is near."""
    if tokens <= 0:
        return ""
    if counter.estimates((text,)):
        reach = counter.reach(text, tokens, from_end=True)
        end = text[-2 * reach - LONGEST :]
        if counter.estimates((end,)):
            return _estimated_tail(text, reach, tokens, counter)
        text = end
    reach = min(len(text), 4 * tokens)
    while reach < len(text) and counter.count(text[-reach:]) <= tokens:
        reach = min(len(text), 2 * reach)
    fits, too_long = len(text), len(text) - reach
    while fits - too_long > 1:
        middle = (fits + too_long) // 2
        if counter.count(text[middle:]) <= tokens:
            fits = middle
        else:
            too_long = middle
    start = word_start(text, fits)
    while start < len(text) and counter.count(text[start:].lstrip()) > tokens:
        start = word_start(text, start + 1)
    return text[start:].lstrip()


def _estimated_tail(text: str, reach: int, tokens: int, counter: VocabularyCounter) -> str:
    less = 0
    while reach > 0:
        end = text[word_start(text, len(text) - reach) :].lstrip()
        if (size := counter.count(end)) <= tokens:
            return end
        less = max(2 * less, 1, reach - reach * tokens // size)
        reach -= less
    return ""


def result_of(value: Any, who: str) -> Messages:
    """A text, a list of messages, or `{"messages": …}` or `{"text": …}`; anything else is `BadReply`."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}] if value.strip() else []
    if isinstance(value, Mapping):
        for name in ("messages", "text"):
            if value.get(name) is not None:
                return result_of(value[name], who)
        raise BadReply(
            f"{who} gave an object without messages or text; it has {', '.join(map(str, value)) or 'nothing'}"
        )
    if not isinstance(value, list):
        raise BadReply(f"{who} gave {type(value).__name__}, expected messages or a text")
    for number, message in enumerate(value, 1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadReply(f"{who}: message {number} is {str(message)[:80]!r}, expected an object with a role")
        if not isinstance(message.get("content"), str | list | None):
            raise BadReply(
                f"{who}: the content of message {number} is {type(message['content']).__name__}, expected a text or "
                "parts"
            )
    return [dict(message) for message in value]
