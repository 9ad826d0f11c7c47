"""Patterns of shells and searching tools, as Python's regular expressions.

The cost of a regular expression is bounded from the expression: the number of ways in which its parts can share a text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from re import _constants as names, _parser as parser  # type: ignore[attr-defined]  # Python's own reader of patterns
from typing import Any

from context_bench.shell.model import UNKNOWN, Budget, Unknown, give_up_if

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s", "blank": r" \t",  # noqa: E501
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w",
}  # fmt: skip
_LONGEST = 2000
_MOST_DOUBLED = 4
_FOLDERS = "(?:.*/)?"
#: So many steps of matching are nothing to think about.
_QUICK = 20_000
#: More steps than this are not taken to find out whether a line matches.
_SLOW = 3_000_000
#: More steps than this are never taken for one line.
_SLOWEST = 100_000_000
_LARGE = 1 << 20
_CLASS = re.compile(r"\\[a-zA-Z]|\(\?i\)")
_ONLY_PYTHON = re.compile(r"\\[1-9]|\(\?[^:]|\\\\Z")


@lru_cache(4096)
def glob(pattern: str, stars_cross: bool = False) -> re.Pattern[str]:
    r"""A shell's file name pattern; `\\` quotes; with `stars_cross`, `*` and `?` also stand for `/` (as in
    `find -path`).
    """
    give_up_if(len(pattern) > _LONGEST)
    any_char = "." if stars_cross else "[^/]"
    out, at = [""], 0  # parts, each behind a star
    doubled = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\" and at < len(pattern):
            out[-1] += re.escape(pattern[at])
            at += 1
        elif char == "*":
            star = any_char + "*?"
            if pattern[at : at + 1] == "*":
                while pattern[at : at + 1] == "*":
                    at += 1
                star = ".*?"
                doubled += not stars_cross
                if pattern[at : at + 1] == "/":
                    at += 1
                    doubled += stars_cross
                    star = _FOLDERS
            out.append(star)
        elif char == "?":
            out[-1] += any_char
        elif (
            char == "["
            and (end := pattern.find("]", at + 1 + (pattern[at : at + 1] in "!^" and at < len(pattern)))) > 0
        ):
            inner = pattern[at:end]
            negated = inner[:1] in ("!", "^")
            out[-1] += "[" + ("^" if negated else "") + re.sub(r"([\\\[&~|^])", r"\\\1", inner[negated:]) + "]"
            at = end + 1
        else:
            out[-1] += re.escape(char)
    give_up_if(doubled > _MOST_DOUBLED)
    # The first place behind a star is as good as any later one where another star follows: none is tried again.
    out[1:-1] = [part if _FOLDERS in (part[:8], after[:8]) else f"(?>{part})" for part, after in pairwise(out[1:])]
    try:
        return re.compile("".join(out) + r"\Z", re.S)
    except re.error:
        raise Unknown from None


#: (c, k): a part matches from one place in at most c·nᵏ ways, n being the length of the text; c infinite:
#: exponentially many.
_Bound = tuple[float, int]
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
        #: Texts that every match holds.
        self.needed: list[str] = [] if compiled.flags & re.I else list(_needed(tree))

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
        return (max if _distinct(value[1]) else sum)(counts), power
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


def _distinct(branches: list[Any]) -> bool:
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


class Pattern:
    """A regular expression, and the care that is taken with it: Python's matching backtracks, and logs are hostile.

    A line that has not all that a match must hold is no match. Where the backtracking could take long, RE2 looks
    instead, which takes a time in proportion to the line; `Unknown` where RE2 does not know the pattern, or might mean
    something else by it.
    """

    def __init__(self, compiled: re.Pattern[str], ways: Ways, linear: str | None) -> None:
        """`linear`: the same pattern for RE2, if it can be written so."""
        self._search = compiled.search
        self._subn = compiled.subn
        self._linear = linear
        self._ways = ways
        self._budget = Budget()
        #: True if it matches somewhere in a text.
        self.found: Callable[[str], object] = self._found

    def prepare(self, texts: list[str], size: int, budget: Budget) -> Callable[[str], object]:
        """Pay for a look at these texts of `size` letters in all; gives what tells whether it matches somewhere in one
        of them.
        """
        self._budget = budget
        budget.step(size)
        quick = self._ways.steps(size) <= _QUICK or self._ways.steps(max(map(len, texts), default=0)) <= _QUICK
        self.found = self._search if quick else self._found
        return self.found

    def _found(self, text: str) -> bool:
        if any(part not in text for part in self._ways.needed):
            return False
        steps = self._ways.steps(len(text))
        if steps <= _QUICK or (steps <= _SLOW and steps <= self._budget.steps // 64):
            self._budget.step(min(int(steps), 64 * len(text)))
            return self._search(text) is not None
        return self._found_linearly(text)

    def replaced(self, replacement: str, text: str, once: bool) -> tuple[str, int]:
        """The text with the replacement where it matches, and how often that is; `Unknown` if that could take long, for
        RE2 is not asked.
        """
        if any(part not in text for part in self._ways.needed):
            return text, 0
        steps = self._ways.steps(len(text))
        give_up_if(steps > _SLOWEST)
        self._budget.step(int(steps))
        most = (len(text) + 1) * len(replacement) + replacement.count("\\g") * len(text)
        if most > _LARGE:
            self._budget.make(most)
        try:
            made, times = self._subn(replacement, text, count=int(once))
        except (re.error, IndexError):
            raise Unknown from None
        self._budget.make(len(made), 1)
        return made, times

    def _found_linearly(self, text: str) -> bool:
        self._budget.step(20 * len(text) + 1000)
        if self._linear is None or not (text.isascii() or _CLASS.search(self._linear) is None):
            raise Unknown
        try:
            import pyarrow as pa
            from pyarrow import compute
        except ImportError:
            raise Unknown from None
        try:
            return bool(compute.match_substring_regex(pa.scalar(text, pa.large_string()), self._linear).as_py())
        except (pa.ArrowInvalid, UnicodeEncodeError):
            raise Unknown from None


def regex(pattern: str, kind: str, ignore_case: bool = False, word: bool = False, line: bool = False) -> Pattern:
    """A pattern of kind "basic", "extended", "perl" (also ripgrep's) or "fixed"; `Unknown` where the two dialects may
    part.
    """
    give_up_if(UNKNOWN in pattern or len(pattern) > _LONGEST)
    return Pattern(*_regex(pattern, kind, ignore_case, word, line))


@lru_cache(1024)
def _regex(
    pattern: str, kind: str, ignore_case: bool, word: bool, line: bool
) -> tuple[re.Pattern[str], Ways, str | None]:
    if kind == "fixed":
        body = "|".join(re.escape(one) for one in pattern.split("\n"))
    elif kind == "perl":
        body = _perl(pattern)
    else:
        body = "|".join(_posix(one, kind == "basic") for one in pattern.split("\n"))
    linear = body
    if word:
        body, linear = rf"(?<!\w)(?:{body})(?!\w)", rf"(?:^|\W)(?:{body})(?:\W|$)"
    if line:
        body, linear = rf"^(?:{body})$".replace("$)", r"\Z)"), rf"^(?:{linear})$"
    try:
        compiled = re.compile(body, re.I if ignore_case else 0)
    except (re.error, OverflowError, RecursionError):
        raise Unknown from None
    linear = "" if _ONLY_PYTHON.search(linear) else "(?i)" * ignore_case + linear.replace(r"\Z", r"\z")
    return compiled, Ways(compiled), linear or None


#: Perl's syntax that Python does not have, or has for something else.
_PERL_ALONE = re.compile(r"\\[pPQEKGRXhHvVCzZ]|\(\?[<>|#&PR]|\(\?[a-zA-Z]*[^:=!a-zA-Z)]|[*+?}]\+|\[\[:")


def _perl(pattern: str) -> str:
    give_up_if(_PERL_ALONE.search(pattern))
    return pattern


def _posix(pattern: str, basic: bool) -> str:
    """A POSIX regular expression. Longest-match against first-match does not matter: only whether a line matches
    does.
    """
    out, at, start = [], 0, True
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            give_up_if(at >= len(pattern))
            char = pattern[at]
            at += 1
            if char in "(){}|+?" and basic:
                out.append(char)
                start = char in "(|"
                continue
            if char in "wWsSbB":
                out.append("\\" + char)
            elif char in "<>":
                out.append(r"\b")
            elif char.isalnum():
                raise Unknown
            else:
                out.append(re.escape(char))
        elif char == "[":
            text, at = _bracket(pattern, at)
            out.append(text)
        elif char == "*" and start:
            out.append(r"\*")
        elif char in "(){}|+?" and basic:
            out.append("\\" + char)
        elif char == "{" and not re.match(r"\d*,?\d*\}", pattern[at:]):
            out.append(r"\{")
        elif char == "^" and basic and not start:
            out.append(r"\^")
        elif char == "$" and basic and at < len(pattern) and pattern[at : at + 2] not in (r"\)", r"\|"):
            out.append(r"\$")
        elif char in ".*+?()|^{}":
            out.append(char)
            start = char in "(|" or (char == "^" and start)
            continue
        elif char == "$":
            out.append(r"\Z")
        else:
            out.append(re.escape(char))
        start = False
    return "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    out = "["
    if pattern[at : at + 1] == "^":
        out, at = "[^", at + 1
    first = True
    while at < len(pattern):
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at)
            name = _CLASSES.get(pattern[at + 2 : end])
            if end < 0 or name is None:
                raise Unknown
            out, at = out + name, end + 2
        elif pattern[at : at + 2] in ("[.", "[="):
            raise Unknown
        elif pattern[at] == "]" and not first:
            return out + "]", at + 1
        else:
            out += "\\" + pattern[at] if pattern[at] in r"\[]&~|^" else pattern[at]
            at += 1
        first = False
    raise Unknown
