"""What every format is read into: haystacks with questions, and a count of what was wrong with the data on the way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Item


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a haystack.

    `answers`: all that are accepted, best first. `evidence`: ids of the items that hold the answer, `sessions` of their sessions; empty =
    none known. `answerable` is false where the right reply is that it cannot be known. `asked`: when, ISO 8601 where it could be read.
    `choices`: letter → words, with `correct` the right letter. `rubric`: what a good answer says, for judges. `trap`: the wrong answer
    that the question leads to. `category`: the source's own code for `type`.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    type: str = "unknown"
    evidence: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    answerable: bool = True
    asked: str | None = None
    choices: Mapping[str, str] | None = None
    correct: str | None = None
    rubric: tuple[str, ...] = ()
    trap: str | None = None
    category: str | None = None


@dataclass(slots=True)
class Haystack:
    """All that is to be remembered before its questions are asked. `granularity`: what one item is."""

    id: str
    items: list[Item]
    questions: list[Question]
    granularity: str = "turn"


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON document of a source: `path` of its file, `number` in it from 0; `where` is what messages call it."""

    value: Mapping[str, Any]
    path: str = ""
    number: int = 0

    @property
    def where(self) -> str:
        return f"{self.path}, entry {self.number + 1}" if self.path else f"entry {self.number + 1}"


@dataclass(slots=True)
class Dirt:
    """What was mended, left out or found missing while reading: words → how often."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, times: int = 1) -> None:
        """Once more, or so many times."""
        if times:
            self.counts[what] += times


@dataclass(frozen=True, slots=True)
class Format:
    """A published shape. `sniff` says whether a document has it, `read` makes haystacks of documents in order or raises `BadInput`."""

    name: str
    shape: str
    sniff: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Iterable[Document], Dirt], Iterator[Haystack]]


# --- fields ---


def text_of(value: Any, where: str, *names: str) -> str:
    """The first of the named fields that is there, as text; "" if none is. Numbers are read as their digits."""
    for name in names:
        found = value.get(name)
        if isinstance(found, str):
            if found:
                return found
        elif isinstance(found, bool | int | float):
            return str(found)
        elif found is not None:
            raise BadInput(f'{where}: "{name}" is {kind(found)}; expected text')
    return ""


def said_in(value: Any, where: str, dirt: Dirt, *names: str) -> str:
    """What a turn says, of the named fields, without white space around it; a turn that says nothing is counted: it is to be left out."""
    said = text_of(value, where, *names).strip()
    if not said:
        dirt.add("empty turns left out")
    return said


def objects(value: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    """The list of objects in a field; [] if it is not there."""
    found = listed(value, name, where)
    for each in found:
        if not isinstance(each, Mapping):
            raise BadInput(f'{where}: "{name}" holds {kind(each)}; expected objects')
    return found


def listed(value: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """The list in a field; [] if it is not there."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadInput(f'{where}: "{name}" is {kind(found)}; expected a list')
    return found


def paired(questions: Sequence[Any], answers: Sequence[Any], where: str) -> list[tuple[Any, Any]]:
    """Questions and answers of two lists that must be of one length."""
    if len(questions) != len(answers):
        raise BadInput(f"{where}: {len(questions)} questions and {len(answers)} answers; expected as many")
    return list(zip(questions, answers, strict=True))


def strings(value: Any) -> list[str]:
    """Text, a number, or a list of either, as a list of texts; everything else in it is left out."""
    found = value if isinstance(value, list) else [value]
    return [str(each) for each in found if isinstance(each, str | int | float) and each != ""]


def answers_of(value: Any, dirt: Dirt, where: str) -> tuple[str, ...]:
    """Accepted answers: text, a number (counted) or a list of them. None for null, "" and []."""
    found = value if isinstance(value, list) else [value]
    accepted: list[str] = []
    for each in found:
        if each is None or each == "":
            continue
        if isinstance(each, list):  # an answer that is a list of things
            each = ", ".join(strings(each))
        if not isinstance(each, str | int | float):
            raise BadInput(f"{where}: an answer is {kind(each)}; expected text")
        if not isinstance(each, str):
            dirt.add("answers that were numbers")
        accepted.append(str(each))
    return tuple(dict.fromkeys(accepted))


def kind(value: Any) -> str:
    """What a value is, for messages."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "true or false"}
    return names.get(type(value), repr(value)[:40])


class Distinct:
    """Names made unique: the second `x` becomes `x#2`."""

    def __init__(self, dirt: Dirt, what: str) -> None:
        self._seen: Counter[str] = Counter()
        self._given: set[str] = set()
        self._dirt, self._what = dirt, what

    def __call__(self, name: str) -> str:
        """`name`, or with a number if it was there before (counted)."""
        made = name
        while made in self._given:
            self._seen[name] += 1
            made = f"{name}#{self._seen[name] + 1}"
        if made != name:
            self._dirt.add(self._what)
        self._given.add(made)
        return made


def cited(ids: Iterable[str], known: Iterable[str], dirt: Dirt, what: str = "pieces of evidence that name nothing") -> tuple[str, ...]:
    """The ids that exist, each once, in order; the others are counted."""
    there = known if isinstance(known, set | dict) else set(known)
    found = list(dict.fromkeys(ids))
    dirt.add(what, sum(each not in there for each in found))
    return tuple(each for each in found if each in there)


def sessions_of(evidence: Sequence[str], items: Iterable[Item]) -> tuple[str, ...]:
    """The sessions that hold these items, in order of the evidence."""
    session = {item.id: item.session for item in items}
    return tuple(dict.fromkeys(found for each in evidence if (found := session.get(each)) is not None))


def numbered(keys: Iterable[Any], pattern: str) -> list[tuple[int, str]]:
    """(number, key) of the keys that match, by number: 2 comes before 10."""
    found = [(match[1], key) for key in keys if isinstance(key, str) and (match := re.fullmatch(pattern, key, re.ASCII))]
    return sorted((int(number), key) for number, key in found if len(number) < 10)
