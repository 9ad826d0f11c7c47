r"""Changes of a text, word by word: kept, dropped and new words. Words by their script, and evidence by its words.

`diff_texts(sent, forwarded)` gives spans in reading order. Exact: kept and dropped spans joined are the sent text, kept
and added ones the forwarded text, to the character. A word is a run of letters and digits, one Chinese, Japanese or
Thai character, one mark, one line end, or one run of other white space.

How it is found, and what that costs: equal ends are cut off; what is left is a longest common subsequence of words
(bit-parallel, in C) while the product of both lengths is at most `DIRECTLY`; beyond that, runs of words that occur
exactly once on both sides are anchors (the longest chain of them that keeps the order), and the rest between two
anchors is compared in the same way. Where nothing is unique, whole lines are compared instead of words, and inside a
block of changed lines that is still too large everything counts as dropped and added. Memory stays below about
`DIRECTLY` / 8 bytes beside the words; two texts of 1 MB take a second or two. Chance matches (a lone "the" kept between
two rewritten sentences) are not told as kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise, repeat
from typing import Any, Literal

Kind = Literal["kept", "dropped", "added"]
Span = tuple[Kind, str]

#: Product of two lengths up to which their longest common subsequence is worked out as a whole: 25 MB for a few
#: milliseconds.
DIRECTLY = 200_000_000
_RUNS = (12, 6, 3, 6, 3)  # words in an anchor, tried in this order, smaller ones and then again inside what is left
_SLIDE = 60  # words over which a cut is moved to a better place

_SINGLE = "\u0e00-\u0e7f\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_TOKEN = re.compile(rf"[^\W{_SINGLE}]+|\n|[^\S\n]+|[\W\w]")
_WORD = re.compile(rf"[^\W{_SINGLE}]+|[{_SINGLE}]")

#: A stretch of both sides: words i1 to i2 of the sent text, j1 to j2 of the forwarded one, and whether they are the
#: same.
_Op = tuple[int, int, int, int, bool]


def diff_texts(sent: str, forwarded: str) -> list[Span]:
    """The spans, never two of one kind in a row, dropped ones before the added ones that stand in their place."""
    if sent == forwarded:
        return [("kept", sent)] if sent else []
    a, b = _TOKEN.findall(sent), _TOKEN.findall(forwarded)
    return _spans(_slid(_sensible(_ops(a, b), a, b), a, b), a, b)


def words_of(text: str) -> list[str]:
    """The words of a text, as the diff takes it apart; white space and marks are none."""
    return _WORD.findall(text)


def count_words(text: str) -> int:
    """Number of words of a text."""
    return sum(1 for _ in _WORD.finditer(text))


# Which words are the same
# ------------------------------------------------------------------------


def _ops(a: Sequence[str], b: Sequence[str]) -> list[_Op]:
    """Stretches that are the same and stretches that are not, in turn, without gaps."""
    numbers: dict[str, int] = {}
    x = [numbers.setdefault(token, len(numbers)) for token in a]
    y = [numbers.setdefault(token, len(numbers)) for token in b]
    ends = frozenset(number for token, number in numbers.items() if "\n" in token)
    found: list[_Op] = []
    i = j = 0
    for at, to, length in [*_matches(x, y, ends, _RUNS), (len(a), len(b), 0)]:
        if at > i or to > j:
            found.append((i, at, j, to, False))
        elif found and length:  # goes on where the last one ended
            at, _, to, _, _ = found.pop()
            length += i - at
        if length:
            found.append((at, at + length, to, to + length, True))
        i, j = at + length, to + length
    return found


_Match = tuple[int, int, int]  # start, start, length


def _matches(x: list[int], y: list[int], ends: frozenset[int], runs: Sequence[int]) -> Iterator[_Match]:
    """Common words of both, in order. `ends`: the words that end a line."""
    front = _shared(x, y)
    if front:
        yield 0, 0, front
    back = _shared(x[front:][::-1], y[front:][::-1])
    inner_x, inner_y = x[front : len(x) - back], y[front : len(y) - back]
    for i, j, length in _inside(inner_x, inner_y, ends, runs):
        yield front + i, front + j, length
    if back:
        yield len(x) - back, len(y) - back, back


def _shared(x: Sequence[int], y: Sequence[int]) -> int:
    most = min(len(x), len(y))
    return next((k for k in range(most) if x[k] != y[k]), most)


def _inside(x: list[int], y: list[int], ends: frozenset[int], runs: Sequence[int]) -> Iterator[_Match]:
    if len(x) * len(y) <= DIRECTLY:
        yield from _common(x, y)
        return
    for place, length in enumerate(runs):
        if length in runs[:place]:
            continue
        if anchors := _anchors(x, y, length):
            yield from _between(x, y, anchors, ends, runs[place + 1 :])
            return
    lines_x, lines_y = _lines(x, ends), _lines(y, ends)
    if len(lines_x) * len(lines_y) <= DIRECTLY:
        yield from _by_lines(x, y, lines_x, lines_y)


def _common(x: Sequence[object], y: Sequence[object]) -> list[_Match]:
    """A longest common subsequence."""
    from rapidfuzz.distance import LCSseq

    if not x or not y:
        return []
    return [(block.a, block.b, block.size) for block in LCSseq.editops(x, y).as_matching_blocks() if block.size]


def _anchors(x: list[int], y: list[int], length: int) -> list[_Match]:
    """Runs of so many words that occur once on both sides: the longest chain of them in which both orders agree."""
    places = _once(y, length)
    pairs = [(i, j) for run, i in _once(x, length).items() if (j := places.get(run)) is not None]
    found: list[_Match] = []
    for i, j in _rising(pairs):
        at, to, size = found[-1] if found else (0, 0, 0)
        if found and i - at == j - to and i <= at + size:
            found[-1] = at, to, i + length - at
        elif i >= at + size and j >= to + size:
            found.append((i, j, length))
    return found


def _once(x: list[int], length: int) -> dict[tuple[int, ...], int]:
    runs = list(zip(*(x[k:] for k in range(length)), strict=False))
    counts = Counter(runs)
    return {run: i for i, run in enumerate(runs) if counts[run] == 1}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs with rising first places, the most whose second places rise too (patience sorting)."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for place, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        before.append(last[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(j)
            last.append(place)
        else:
            tops[pile], last[pile] = j, place
    chain, at = [], last[-1] if last else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _between(
    x: list[int], y: list[int], anchors: list[_Match], ends: frozenset[int], runs: Sequence[int]
) -> Iterator[_Match]:
    i = j = 0
    for at, to, length in [*anchors, (len(x), len(y), 0)]:
        for k, n, size in _matches(x[i:at], y[j:to], ends, runs):
            yield i + k, j + n, size
        if length:
            yield at, to, length
        i, j = at + length, to + length


def _lines(x: list[int], ends: frozenset[int]) -> list[tuple[int, ...]]:
    stops = [place + 1 for place, number in enumerate(x) if number in ends]
    return [tuple(x[a:b]) for a, b in pairwise([0, *stops, len(x)]) if b > a]


def _by_lines(
    x: list[int], y: list[int], lines_x: list[tuple[int, ...]], lines_y: list[tuple[int, ...]]
) -> Iterator[_Match]:
    starts_x, starts_y = _starts(lines_x), _starts(lines_y)
    i = j = 0
    for at, to, size in [*_common(lines_x, lines_y), (len(lines_x), len(lines_y), 0)]:
        start, other = starts_x[at], starts_y[to]
        if (start - i) * (other - j) <= DIRECTLY:
            yield from ((i + k, j + n, length) for k, n, length in _common(x[i:start], y[j:other]))
        i, j = starts_x[at + size], starts_y[to + size]
        if size:
            yield start, other, i - start


def _starts(lines: list[tuple[int, ...]]) -> list[int]:
    return list(accumulate(map(len, lines), initial=0))


# What a reader would call the same
# ------------------------------------------------------------------------


def _sensible(ops: list[_Op], a: Sequence[str], b: Sequence[str]) -> list[_Op]:
    """Without the equal stretches that are chance: shorter than what is dropped or added on either side of them, and
    than all of both.
    """
    found: list[_Op] = []
    for op in ops:
        found.append(op)
        while len(found) >= 3 and not found[-1][4] and found[-2][4] and not found[-3][4] and _by_chance(found, a, b):
            first, _, last = found[-3:]
            found[-3:] = [(first[0], last[1], first[2], last[3], False)]
    return found


def _by_chance(last: list[_Op], a: Sequence[str], b: Sequence[str]) -> bool:
    before, equal, after = last[-3:]
    kept = _size(a, equal[0], equal[1])
    if kept > 2 * _LONGEST_CHANCE:
        return False
    dropped = [_size(a, op[0], op[1]) for op in (before, after)]
    added = [_size(b, op[2], op[3]) for op in (before, after)]
    if kept > _SMALL and any(not all(pair) for pair in zip(dropped, added, strict=True)):
        return False  # beside a mere deletion or insertion only the smallest words are chance
    return max(kept, 1) <= min(sum(dropped), sum(added)) and all(
        kept < max(pair) for pair in zip(dropped, added, strict=True)
    )


_SMALL = 3
#: No more characters than this on one side of a stretch need be counted.
_LONGEST_CHANCE = 60


def _size(tokens: Sequence[str], start: int, end: int) -> int:
    """Characters of these words without white space, counted until it is enough."""
    size = 0
    for place in range(start, end):
        size += 0 if tokens[place].isspace() else len(tokens[place])
        if size > 2 * _LONGEST_CHANCE:
            break
    return size


def _slid(ops: list[_Op], a: Sequence[str], b: Sequence[str]) -> list[_Op]:
    """Move a cut to its likeliest place: words only dropped, or only added, may have been cut in several places."""
    found = list(ops)
    for place in range(1, len(found) - 1):
        i1, i2, j1, j2, same = found[place]
        if same or (i1 < i2 and j1 < j2):
            continue
        tokens, start, end = (a, i1, i2) if i1 < i2 else (b, j1, j2)
        step = _best_step(
            tokens, start, end, found[place - 1][1] - found[place - 1][0], found[place + 1][1] - found[place + 1][0]
        )
        if step:
            p, n = found[place - 1], found[place + 1]
            found[place - 1] = p[0], p[1] + step, p[2], p[3] + step, True
            found[place] = i1 + step, i2 + step, j1 + step, j2 + step, False
            found[place + 1] = n[0] + step, n[1], n[2] + step, n[3], True
    return found


def _best_step(tokens: Sequence[str], start: int, end: int, before: int, after: int) -> int:
    """By how many words to move the cut: at least one word of the equal stretches beside it stays."""
    best, step = (_cut(tokens, start, end), 0, 0), 0
    for direction, room in ((-1, min(before - 1, _SLIDE)), (1, min(after - 1, _SLIDE))):
        for k in range(1, room + 1):
            move = direction * k
            gone, come = (start + move, end + move) if direction < 0 else (start + move - 1, end + move - 1)
            if tokens[gone] != tokens[come]:
                break
            rank = (_cut(tokens, start + move, end + move), -k, direction)
            if rank > best:
                best, step = rank, move
    return step


def _cut(tokens: Sequence[str], start: int, end: int) -> int:
    """Likelihood of a cut that takes out these words: best after an empty line, then after a line, a sentence, a
    word.
    """
    before, last = tokens[start - 1], tokens[end - 1]
    if "\n" in before or "\n" in last:
        return 2 + ("\n" in before and "\n" in last) + (before.count("\n") > 1 or last.count("\n") > 1)
    return int(before.isspace() and last.isspace())


def _spans(ops: list[_Op], a: Sequence[str], b: Sequence[str]) -> list[Span]:
    found: list[Span] = []
    for i1, i2, j1, j2, same in ops:
        if same:
            found.append(("kept", "".join(a[i1:i2])))
        else:
            if i1 < i2:
                found.append(("dropped", "".join(a[i1:i2])))
            if j1 < j2:
                found.append(("added", "".join(b[j1:j2])))
    return found


# --- words by their script, and the evidence in a context ---

_SCRIPTS: dict[str, str] = {
    "latin": "0-9A-Za-z_\u00c0-\u024f\u1e00-\u1eff'’",
    "cyrillic": "\u0400-\u052f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "hebrew": "\u0590-\u05ff",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
    "cjk": "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
}
_ASCII_WORD = re.compile(r"[\w']+")
_UNSPACED = frozenset({"cjk", "thai"})


@cache
def _runs() -> re.Pattern[str]:
    """Made when a text with more than ASCII is first read: it takes milliseconds."""
    named = (f"(?P<{name}>[{letters}\ufffd]*[{letters}][{letters}\ufffd]*)" for name, letters in _SCRIPTS.items())
    return re.compile("|".join(named))


def words(text: str) -> Iterator[tuple[str, str]]:
    """(script, word) in order, in lower case. Scripts without spaces give pairs of neighbouring characters.

    A replacement character is a part of the word that it stands in, and of no script by itself.
    """
    if text.isascii():
        yield from zip(repeat("latin"), _ASCII_WORD.findall(text.lower()))
        return
    for match in _runs().finditer(text.lower()):
        script, run = str(match.lastgroup), match[0]
        if script in _UNSPACED and len(run) > 1:
            yield from ((script, run[i : i + 2]) for i in range(len(run) - 1))
        else:
            yield script, run


def script_of(text: str) -> str:
    """The script that most letters of `text` are in; `latin` where there are none."""
    if text.isascii():
        return "latin"
    counts: Counter[str] = Counter()
    for match in _runs().finditer(text):
        counts[str(match.lastgroup)] += len(match[0])
    return counts.most_common(1)[0][0] if counts else "latin"


def holds_all(texts: Iterable[str], pieces: Sequence[str]) -> bool:
    """True if each piece stands in one of the texts."""
    held = [in_words(text) for text in texts]
    return all(any(in_words(piece) in text for text in held) for piece in pieces)


def evidence_of(example: Mapping[str, Any]) -> list[str]:
    """The pieces of an example's context that hold its answer: `evidence`, as a text, a list of texts, or of places
    `[from, to]` in the context. Pieces that the context does not hold (ids, notes) are no evidence of it.
    """
    context, given = example.get("context"), example.get("evidence")
    if not isinstance(context, str) or not given:
        return []
    pieces = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    held = in_words(context)
    texts = [_piece(piece, context) for piece in pieces]
    return [text for text in texts if (own := in_words(text)).strip() and own in held]


def _piece(piece: Any, context: str) -> str:
    if isinstance(piece, str):
        return piece
    numbers = isinstance(piece, list | tuple) and len(piece) == 2 and all(type(number) is int for number in piece)
    return context[piece[0] : piece[1]] if numbers and 0 <= piece[0] <= piece[1] else ""


def in_words(text: str) -> str:
    """The words of a text in lower case, with a blank before and after each."""
    return f" {' '.join(word for _, word in words(text))} "
