"""How long Python's matching of a regular expression may take, told from the expression: in how many ways its parts can share a text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from re import _constants as names  # type: ignore[attr-defined]  # the only reader of Python's own syntax there is
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_Bound = tuple[float, int]
"""(c, k): a part matches from one place in at most c·nᵏ ways, n being the length of the text; c infinite: exponentially many."""
_ONE: _Bound = (1.0, 0)
_ENDLESS: _Bound = (math.inf, 0)
_REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)
_SINGLE = (names.LITERAL, names.NOT_LITERAL, names.ANY, names.IN, names.AT)


class Ways:
    """What a pattern's syntax tells of its matching."""

    def __init__(self, compiled: re.Pattern[str]) -> None:
        tree = list(parser.parse(compiled.pattern, compiled.flags & re.I))
        self._most = _sequence(tree)
        self._anchored = bool(tree) and tree[0] == (names.AT, names.AT_BEGINNING)
        self.needed: list[str] = [] if compiled.flags & re.I else list(_needed(tree))
        """Texts that every match holds."""

    def steps(self, length: int) -> float:
        """The most steps a search through a text of this length may take, as far as it goes about."""
        count, power = self._most
        ways = count * float(length + 1) ** power
        return length + ways if self._anchored else (length + 1) * ways


def _sequence(tree: Iterable[Any]) -> _Bound:
    count, power = _ONE
    for part in tree:
        more, by = _part(part)
        count, power = min(count * more, math.inf), power + by
    return count, power


def _part(part: tuple[Any, Any]) -> _Bound:
    kind, value = part
    if kind in _SINGLE:
        return _ONE
    if kind is names.SUBPATTERN:
        return _sequence(value[3])
    if kind is names.BRANCH:
        bounds = [_sequence(one) for one in value[1]]
        power = max(by for _, by in bounds)
        counts = [count for count, _ in bounds]
        return (max if _told_apart(value[1]) else sum)(counts), power
    if kind in _REPEATS:
        low, high, inside = value
        return _repeated(int(low), None if high is names.MAXREPEAT else int(high), _sequence(inside))
    return _ENDLESS  # what looks around or refers back


def _repeated(low: int, high: int | None, inside: _Bound) -> _Bound:
    if inside == _ONE:
        return (1.0, 1) if high is None else (float(high - low + 1), 0)
    if high is None or high > 9:
        return _ENDLESS
    count, power = inside
    return count**high * (high - low + 1), power * high


def _told_apart(branches: list[Any]) -> bool:
    """Whether the first letter says which branch it is."""
    firsts = [one[0] if len(one) else None for one in branches]
    if any(first is None or first[0] is not names.LITERAL for first in firsts):
        return False
    return len({first[1] for first in firsts if first is not None}) == len(firsts)


def _needed(tree: Iterable[Any]) -> Iterable[str]:
    letters: list[str] = []
    for kind, value in tree:
        if kind is names.LITERAL:
            letters.append(chr(value))
            continue
        if letters:
            yield "".join(letters)
            letters = []
        if kind is names.SUBPATTERN and not value[1] and not value[2]:
            yield from _needed(value[3])
        elif kind in _REPEATS and value[0] > 0:
            yield from _needed(value[2])
    if letters:
        yield "".join(letters)
