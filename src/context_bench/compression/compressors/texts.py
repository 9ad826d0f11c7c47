"""Texts of chat messages: replacing them, cutting them up, and keeping the best within a number of tokens.

Texts are cut where a reader would: at sentences and words, never inside a character that people see as one. `keep_best`
keeps the sentences that come first in a ranking, in their old order. `result_of` reads messages from the reply of a
filter, service or system.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, overload

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
_COUNTED = 8192  # sentences that are counted at a time
_NEAR = 24  # characters within which a cut moves to a word's edge
_END = re.compile(r"[.!?…][\"'”’»)\]]{0,3}(?=\s)|[。！？｡][\"”’」』）]{0,3}|(?<!\n)(?=\n[ \t\r]*(\n)?)")
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|cf|No|Fig|Eq|Sec|Vol|approx|e\.g|i\.e))\.$")
_SOFT_END = re.compile(r"\s(?=\S)|(?<=[,;}\]|])")


def sentences(text: str) -> list[str]:
    """`text` in pieces that join to it again: sentences, list items, lines of data.

    Whitespace belongs to the piece that follows it. A line that starts with a small letter continues the sentence
    before it, so prose wrapped at a fixed width stays whole. No piece is longer than `LONGEST` characters.
    """
    return list(Sentences([text]))


class Sentences(Sequence[str]):
    """The sentences of several texts, one after the other.

    Only where each ends is kept: a large text may have a million, and as objects they would take ten times its size.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._ends = array("Q")  # of each sentence, in its text
        self._firsts = array("Q")  # of each text, its first sentence
        for text in texts:
            self._firsts.append(len(self._ends))
            self._ends.extend(_sentence_ends(text))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...
    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        at = range(len(self))[position]
        slot = self._slot(at)
        return self._texts[slot][self._begin(at, slot) : self._ends[at]]

    def __iter__(self) -> Iterator[str]:
        for slot, text in enumerate(self._texts):
            begin = 0
            for at in range(self._firsts[slot], self._after(slot)):
                end = self._ends[at]
                yield text[begin:end]
                begin = end

    def only(self, kept: Iterable[int]) -> list[str]:
        """The texts with the sentences at these positions (ascending) alone, without whitespace at their ends."""
        shown: list[list[str]] = [[] for _ in self._texts]
        for first, last in _runs(kept, set(self._firsts)):
            slot = self._slot(first)
            shown[slot].append(self._texts[slot][self._begin(first, slot) : self._ends[last]])
        return ["".join(pieces).strip() for pieces in shown]

    def first_words(self, at: int, budget: int, counter: VocabularyCounter) -> list[str]:
        """The texts with nothing but the beginning of one sentence, of at most `budget` tokens."""
        shown = ["" for _ in self._texts]
        shown[self._slot(at)] = head(self[at].strip(), budget, counter)
        return shown

    def _slot(self, at: int) -> int:
        return bisect_right(self._firsts, at) - 1

    def _begin(self, at: int, slot: int) -> int:
        return 0 if at == self._firsts[slot] else self._ends[at - 1]

    def _after(self, slot: int) -> int:
        return self._firsts[slot + 1] if slot + 1 < len(self._firsts) else len(self._ends)


def _runs(positions: Iterable[int], breaks: Container[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of positions without a gap; a run begins anew at each of `breaks`."""
    first = last = -1
    for at in positions:
        if first < 0 or at != last + 1 or at in breaks:
            if first >= 0:
                yield first, last
            first = at
        last = at
    if first >= 0:
        yield first, last


def _sentence_ends(text: str) -> Iterator[int]:
    begin = 0
    for end in _without_blanks(text):
        while end - begin > LONGEST:
            begin = _cut_up(text, begin)
            yield begin
        yield end
        begin = end


def _without_blanks(text: str) -> Iterator[int]:
    """Pieces of nothing but whitespace go in front of the next one (the last ones, behind)."""
    begin = held = 0
    for end in _cuts(text):
        if not text[begin:end].isspace():
            if held:
                yield held
            held = end
        begin = end
    if text:
        yield len(text)


def _cuts(text: str) -> Iterator[int]:
    start = 0
    for found in _END.finditer(text):
        end = found.end()
        if end > start and _ends_here(text, found):
            yield end
            start = end
    if start < len(text):
        yield len(text)


def _ends_here(text: str, found: re.Match[str]) -> bool:
    following = text[found.end() : found.end() + 40].lstrip()[:1]
    if not found.group():  # a line break, or an empty line
        return bool(found[1]) or not following.islower()
    if found.group()[0] != ".":
        return True
    return not following.islower() and not _ABBREVIATION.search(text, max(0, found.start() - 8), found.start() + 1)


def _cut_up(text: str, start: int) -> int:
    """A good end for the first piece of a sentence that is too long."""
    soft = [found.start() for found in _SOFT_END.finditer(text, start + LONGEST // 2, start + LONGEST)]
    return max(start + 1, soft[-1] if soft else cut_before(text, start + LONGEST))


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


def keep_best(
    texts: list[str], budget: int, counter: VocabularyCounter, rank: Callable[[Sequence[str]], Sequence[int]]
) -> list[str]:
    """The texts with only their best sentences left, at most `budget` tokens in all.

    `rank` gives all sentence positions, best first. One that no longer fits is passed over for the next that does. If
    not even one fits, the best that begins in the budget is cut short. Where tokens are estimated, what is left fits by
    the estimate.
    """
    found = Sentences(texts)
    costs = _costs(found, counter)
    rough = counter.estimates(texts)
    waiting = order = rank(found)
    kept = array("Q")
    total = 0
    while True:
        added, waiting = _fill(waiting, costs, budget - total)
        kept.extend(added)
        shown = found.only(sorted(kept))
        total = sum(map(counter.count, shown))
        while total > budget and kept:  # tokens of joined text can be more than the sum: rare, and never by much
            over = total - budget - costs[kept.pop()]
            while rough and over > 0 and kept:  # but an estimate can be
                over -= costs[kept.pop()]
            shown = found.only(sorted(kept))
            total = sum(map(counter.count, shown))
            waiting = []
        if not added or not waiting or rough:
            break
    return shown if kept or not found or budget <= 0 else found.first_words(order[0], budget, counter)


def _costs(found: Iterable[str], counter: VocabularyCounter) -> array[int]:
    """Tokens of each sentence; counted in groups, since the counter keeps all that it is given until it is through."""
    costs = array("Q")
    pieces = iter(found)
    while group := list(islice(pieces, _COUNTED)):
        costs.extend(counter.totals((piece,) for piece in group))
    return costs


def _fill(waiting: Iterable[int], costs: Sequence[int], room: int) -> tuple[array[int], array[int]]:
    added, left = array("Q"), array("Q")
    for position in waiting:
        cost = costs[position]
        if cost <= room:
            room -= cost
            added.append(position)
        else:
            left.append(position)
    return added, left


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
