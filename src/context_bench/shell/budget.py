"""A bound on the cost of reading one command, and all commands of a log. It is spent before anything is made or
searched.

Logs are hostile: a line of a hundred letters can stand for more words than there is memory. The cost of a regular
expression is bounded from the expression: the number of ways in which its parts can share a text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from re import _constants as names  # type: ignore[attr-defined]  # the only reader of Python's own syntax there is
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

PIECE = 100
"""Characters that a word or a line of its own counts for, beside its text."""
LINE = 8
"""Steps that a look at one line counts for."""


class BudgetSpent(Exception):
    """The command would cost more to read than it may: what it shows is unknown."""


@dataclass(slots=True)
class Budget:
    """Budget left for one command."""

    made: int = 64 << 20
    """Characters of words, values and lines that may be made."""
    steps: int = 500_000_000
    """Characters and lines that may be looked at, and statements that may be run; about so many, ten to a millisecond
    at the slowest.
    """
    over: bool = False
    """More was asked for than there was."""

    @classmethod
    def of_log(cls) -> Budget:
        """Budget for all commands of a log."""
        return cls(made=4 << 30, steps=10_000_000_000)

    def lend(self) -> Budget:
        """Budget for the next command of this log; the unspent part is given back."""
        lent = Budget()
        lent.made, lent.steps = min(lent.made, self.made), min(lent.steps, self.steps)
        self.made -= lent.made
        self.steps -= lent.steps
        return lent

    def take_back(self, left: Budget) -> None:
        """Take back what a command did not spend."""
        self.made += left.made
        self.steps += left.steps

    def make(self, characters: int, pieces: int = 0) -> None:
        """Pay for characters about to be made, and for words or lines about to be (`pieces`)."""
        self.made -= characters + PIECE * pieces
        if self.made < 0:
            self.over = True
            raise BudgetSpent

    def step(self, number: int) -> None:
        """Pay for a look at so many characters."""
        self.steps -= number
        if self.steps < 0:
            self.over = True
            raise BudgetSpent

    def look(self, lines: int) -> None:
        """Pay for a look at so many lines."""
        self.step(LINE * lines)


_Bound = tuple[float, int]
"""(c, k): a part matches from one place in at most c·nᵏ ways, n being the length of the text; c infinite: exponentially
many.
"""
_ONE: _Bound = (1.0, 0)
_ENDLESS: _Bound = (math.inf, 0)
_REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)
_SINGLE = (names.LITERAL, names.NOT_LITERAL, names.ANY, names.IN, names.AT)


class Ways:
    """Facts about matching that a pattern's syntax gives."""

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
    """True if the first letter says which branch it is."""
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
