"""Whether an atom is still in a text: letter for letter, told with other marks, or as key and value."""

from __future__ import annotations

import re

from context_bench.wire.atoms import atoms, plain_number
from context_bench.wire.fidelity.scripts import NUMBER

_CASES = re.compile(r"[\W_]+")
_PHRASES = frozenset({"quote", "constraint", "command", "error", "date_time"})  # may be told with other marks between the words


class Survivors:
    """Answers whether an atom is in a text: letter for letter, or after case and punctuation, or (numbers) key and value both."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.kinds = atoms(text)
        self._bare: dict[str, set[str]] = {}
        self._all: str | None = None
        self._words: set[str] | None = None
        self._numbers: set[str] | None = None

    def holds(self, kind: str, atom: str) -> bool:
        """Whether the atom is still there."""
        if atom in self.kinds.get(kind, ()) or (atom in self._text and self._verbatim(atom)):
            return True
        if kind == "number":
            return self._has_number(atom)
        bare = _bare(atom)
        if not bare:
            return False
        if kind not in self._bare:
            self._bare[kind] = {_bare(other) for other in self.kinds.get(kind, ())}
        if bare in self._bare[kind]:
            return True
        if kind not in _PHRASES:
            if self._words is None:
                self._words = {_bare(word) for word in self._text.split()}
            return bare in self._words
        if self._all is None:
            self._all = f" {_CASES.sub(' ', self._text.lower())} "
        return f" {_CASES.sub(' ', atom.lower()).strip()} " in self._all

    def _verbatim(self, atom: str) -> bool:
        at = self._text.find(atom)
        while at >= 0:
            end = at + len(atom)
            if not (_joins(atom[0], self._text[at - 1 : at]) or _joins(atom[-1], self._text[end : end + 1])):
                return True
            at = self._text.find(atom, at + 1)
        return False

    def _has_number(self, atom: str) -> bool:
        """`key=value` and `value unit`: the value as a number of the text, and the other half as a word of it."""
        if self._numbers is None:
            self._numbers = {plain_number(number.rstrip(".,'")) for number in NUMBER.findall(self._text)}
        key, equals, rest = atom.partition("=")
        value = NUMBER.search(rest if equals else atom)
        if value is None or plain_number(value[0].rstrip(".,'")) not in self._numbers:
            return False
        other = key if equals else atom.replace(value[0], "").strip("- ")
        return (bool(other) and self._verbatim(other)) or other.lower() in self._text.lower().split()


def _joins(one: str, other: str) -> bool:
    """Whether two neighbours make one word or number."""
    if not other or one >= "\u2e80" or other >= "\u2e80" or (one.isdigit() and other.isalpha()):
        return False
    return (one.isalnum() or one == "_") and (other.isalnum() or other == "_")


def _bare(atom: str) -> str:
    return _CASES.sub("", atom.lower())
