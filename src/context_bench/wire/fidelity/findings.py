"""Findings on one pair of texts: counts of atoms, the lost and the invented ones, and the share taken from the
original.

Extracts are runs of tokens and whole lines that stand in the original as they are, and their order.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_TOKEN = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f]|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Fragments:
    """Extractiveness of a text, and the `lengths` of its runs of tokens that stand in the original too.

    `coverage`: share of its tokens in such runs; `density`: mean length of the run a token stands in (Grusky et al.
    2018); `fold` = tokens of the original per token. `None`: nothing to tell of, the text is empty.
    """

    coverage: float | None = None
    density: float | None = None
    fold: float | None = None
    lengths: tuple[int, ...] = ()


def fragments(original: str | Sequence[Any], compressed: str | Sequence[Any]) -> Fragments:
    """Greedy longest runs of tokens that the compressed text shares with the original, from left to right. Linear in
    both texts.

    Texts are taken apart into words, punctuation marks and Chinese characters, in lower case; sequences are taken as
    they are.
    """
    return SharedRuns(original).within(compressed)


class SharedRuns:
    """The tokens of a text, among which the runs of other texts are looked for."""

    def __init__(self, text: str | Sequence[Any]) -> None:
        self._tokens = _tokens(text)

    @cached_property
    def _steps(self) -> list[dict[Any, int]]:
        return _automaton(self._tokens)

    def within(self, text: str | Sequence[Any]) -> Fragments:
        """The runs of a text; see `fragments`."""
        source, made = self._tokens, _tokens(text)
        if not made:
            return Fragments()
        n = len(made)
        if made == source:
            lengths: tuple[int, ...] = (n,)
        elif len(source) * n > _WALK_FROM:
            lengths = tuple(_runs(self._steps, made))
        else:
            lengths = tuple(_runs_in_text(source, made))
        return Fragments(sum(lengths) / n, sum(length * length for length in lengths) / n, len(source) / n, lengths)


def _tokens(text: str | Sequence[Any]) -> list[Any]:
    return _TOKEN.findall(text.lower()) if isinstance(text, str) else list(text)


#: Product of lengths from which building an automaton is the faster way.
_WALK_FROM = 4_000_000


def _runs_in_text(source: list[Any], made: list[Any]) -> Iterator[int]:
    """The same, with every token written as one character, so that looking for a run is a search in a string."""
    letters = {token: chr(0x10000 + number) for number, token in enumerate(dict.fromkeys(source))}
    text = "".join(map(letters.__getitem__, source))
    other = "".join([letters.get(token, "\0") for token in made])
    start = 0
    while start < len(other):
        if other[start] == "\0":
            start += 1
            continue
        sure, step = 1, 2
        while start + sure + step <= len(other) and other[start : start + sure + step] in text:
            sure, step = sure + step, step * 2
        least, most = sure, min(sure + step - 1, len(other) - start)
        while least < most:
            middle = (least + most + 1) // 2
            if other[start : start + middle] in text:
                least = middle
            else:
                most = middle - 1
        yield least
        start += least


def _runs(step: list[dict[Any, int]], made: list[Any]) -> Iterator[int]:
    """Lengths of the greedy runs, walked along a suffix automaton of the source."""
    state = length = 0
    for token in made:
        following = step[state].get(token)
        if following is None and length:
            yield length
            length = 0
            following = step[0].get(token)
        state = following or 0
        length += following is not None
    if length:
        yield length


def _automaton(source: list[Any]) -> list[dict[Any, int]]:
    """Transitions of the smallest automaton that takes exactly the runs of `source`; state 0 is the start."""
    step: list[dict[Any, int]] = [{}]
    link, longest = [-1], [0]
    last = 0
    for token in source:
        state = len(step)
        step.append({})
        link.append(0)
        longest.append(longest[last] + 1)
        at = last
        while at >= 0 and token not in step[at]:
            step[at][token] = state
            at = link[at]
        if at >= 0:
            known = step[at][token]
            if longest[at] + 1 == longest[known]:
                link[state] = known
            else:
                copy = len(step)
                step.append(dict(step[known]))
                link.append(link[known])
                longest.append(longest[at] + 1)
                while at >= 0 and step[at].get(token) == known:
                    step[at][token] = copy
                    at = link[at]
                link[known] = link[state] = copy
        last = state
    return step


def line_order(original: str, compressed: str) -> tuple[float | None, float | None]:
    """(verbatim_lines, order): share of the lines that are lines of the original, and Kendall's tau-b of where those
    stand.
    """
    places: dict[str, deque[int]] = {}
    for place, line in enumerate(original.splitlines()):
        places.setdefault(line.strip(), deque()).append(place)
    lines = [line for line in map(str.strip, compressed.splitlines()) if line]
    matched = []
    for line in lines:
        if (held := places.get(line)) is not None:
            matched.append(held.popleft() if len(held) > 1 else held[0])
    return (len(matched) / len(lines) if lines else None), _kendall(matched)


def _kendall(values: list[int]) -> float | None:
    """Tau-b of `values` against their own order; `None` if fewer than two differ."""
    n = len(values)
    pairs = n * (n - 1) // 2
    ties = sum(count * (count - 1) // 2 for count in Counter(values).values())
    if pairs == ties:
        return None
    seen: list[int] = []
    concordant = 0
    for value in values:
        concordant += bisect_left(seen, value)
        insort(seen, value)
    return float((2 * concordant - (pairs - ties)) / (pairs * (pairs - ties)) ** 0.5)


@dataclass(slots=True)
class AtomCounts:
    """Atoms of one sort: how many there were, and what became of them."""

    total: int = 0
    retained: int = 0
    recoverable: int = 0

    @property
    def lost(self) -> int:
        """Neither there nor to be had back."""
        return self.total - self.retained - self.recoverable

    @property
    def share(self) -> float | None:
        """The share retained."""
        return self.retained / self.total if self.total else None

    def add(self, state: str, count: int = 1) -> None:
        """Count atoms of one state: `retained`, `recoverable` or `lost`."""
        self.total += count
        self.retained += count * (state == "retained")
        self.recoverable += count * (state == "recoverable")

    def plus(self, other: AtomCounts) -> None:
        """Add another tally."""
        self.total += other.total
        self.retained += other.retained
        self.recoverable += other.recoverable


@dataclass(frozen=True, slots=True)
class LostAtom:
    """An atom that is gone: its kind, who said it, in which tenth of the text (0 to 9), in which script."""

    kind: str
    atom: str
    role: str
    decile: int
    script: str


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A key that is still there with another value."""

    key: str
    before: str
    after: str


@dataclass(slots=True)
class Fidelity:
    """Findings on one text. `words`: script → (damaged, all); `fabricated`: kind → (made up, all)."""

    kinds: dict[str, AtomCounts] = field(default_factory=dict)
    roles: dict[str, AtomCounts] = field(default_factory=dict)
    deciles: dict[int, AtomCounts] = field(default_factory=dict)
    scripts: dict[str, AtomCounts] = field(default_factory=dict)
    lost: list[LostAtom] = field(default_factory=list)
    fabricated: dict[str, tuple[int, int]] = field(default_factory=dict)
    invented: list[tuple[str, str]] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    fragments: Fragments = field(default_factory=Fragments)
    verbatim_lines: float | None = None
    order: float | None = None
    words: dict[str, tuple[int, int]] = field(default_factory=dict)
    utf8_ok: bool = True
    replacement_chars: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    requested_keep: float | None = None
    json_ok: bool | None = None
    answer_in_context: bool | None = None
    answer_introduced: bool | None = None
    evidence_recall: float | None = None
    id: str = ""

    @property
    def keep(self) -> float | None:
        """Tokens after over tokens before."""
        return self.tokens_after / self.tokens_before if self.tokens_before else None
