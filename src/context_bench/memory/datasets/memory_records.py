"""The records that every format is read into, and helpers to read fields, ids and dates.

`Dirt` counts faults of the data that were mended or left out. Dates are read in the notations that published
conversations use, as ISO 8601 with the time of day.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Item


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """A question about a haystack.

    `answers`: all that are accepted, best first. `evidence`: ids of the items that hold the answer, `sessions` of their
    sessions; empty = none known. `answerable` is false where the right reply is that it cannot be known. `asked`: when,
    ISO 8601 where it could be read. `choices`: letter → words, with `correct` the right letter. `rubric`: what a good
    answer says, for judges. `trap`: the wrong answer that the question leads to. `category`: the source's own code for
    `type`.
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
class MemoryConversation:
    """All that is to be remembered before its questions are asked. `granularity`: what one item is."""

    id: str
    items: list[Item]
    questions: list[MemoryQuestion]
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
    """Faults that were mended, left out or found missing while reading: words → how often."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, times: int = 1) -> None:
        if times:
            self.counts[what] += times


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """A published shape of memory data.

    `sniff(document)`: true for a document of this shape. `read` turns documents into haystacks, in order, or raises
    `BadInput`. `rank`: formats are tried from the lowest up; the general one has the highest.
    """

    name: str
    shape: str
    sniff: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Iterable[Document], Dirt], Iterator[MemoryConversation]]
    rank: int = 50


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


def turn_text(value: Any, where: str, dirt: Dirt, *names: str) -> str:
    """The text of a turn, from the named fields, without white space around it; an empty one is counted: it is to be
    left out.
    """
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
    parts = value if isinstance(value, list) else [value]
    return [str(part) for part in parts if isinstance(part, str | int | float) and part != ""]


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
    """Name the type of a value, for messages."""
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


def cited(
    ids: Iterable[str], known: Iterable[str], dirt: Dirt, what: str = "pieces of evidence that name nothing"
) -> tuple[str, ...]:
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
    found = [
        (match[1], key) for key in keys if isinstance(key, str) and (match := re.fullmatch(pattern, key, re.ASCII))
    ]
    return sorted((int(number), key) for number, key in found if len(number) < 10)


def type_words(types: Iterable[str] | None) -> tuple[str, ...]:
    """Types of questions as they are compared: small letters, words joined by hyphens, blank ones left out."""
    return tuple(re.sub(r"[\s_]+", "-", name.strip().lower()) for name in types or () if name.strip())


_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?"
_MONTH = r"(?P<month>[a-z]{3,9})\.?"
_YEAR = r"(?P<year>\d{4})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        # 2023/05/20 (Sat) 02:21
        rf"'?{_YEAR}[-/](?P<month>\d{{1,2}})[-/]{_DAY}(?:\s*\([a-z]+\))?(?:[t\s]\s*{_CLOCK})?'?(?:\s*\(?[a-z]+\)?)?",
        rf"{_CLOCK}\s+on\s+{_DAY}\s+{_MONTH},?\s+{_YEAR}",  # 1:56 pm on 8 May, 2023
        rf"{_MONTH}[-\s]{_DAY},?[-\s]+{_YEAR}(?:,?\s+{_CLOCK})?",  # March-15-2024
        rf"{_DAY}\s+{_MONTH},?\s+{_YEAR}(?:,?\s+{_CLOCK})?",  # 8 May, 2023
    )
]


def iso(text: str) -> str | None:
    """ISO 8601 of a date, with its time of day if it has one; `None` for what is no date.

    >>> iso("1:56 pm on 8 May, 2023"), iso("2023/05/20 (Sat) 02:21"), iso("March-15-2024")
    ('2023-05-08T13:56:00', '2023-05-20T02:21:00', '2024-03-15')
    """
    plain = " ".join(text.split())
    if re.match(r"\d{4}-\d{2}-\d{2}", plain, re.ASCII):
        try:
            found = datetime.fromisoformat(plain)
        except ValueError:
            pass
        else:
            return found.isoformat() if len(plain) > len("2023-05-20") else found.date().isoformat()
    for form in _FORMS:
        if match := form.fullmatch(plain):
            return _made({name: value for name, value in match.groupdict().items() if value})
    return None


def _made(parts: dict[str, str]) -> str | None:
    month = parts["month"]
    number = int(month) if month.isdigit() else _MONTHS.get(month[:3].lower(), 0)
    hour, half = int(parts.get("hour", 0)), parts.get("half", "").lower()[:1]
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    minute, second = int(parts.get("minute", 0)), int(parts.get("second", 0))
    try:
        moment = datetime(int(parts["year"]), number, int(parts["day"]), hour, minute, second)
    except ValueError:
        return None
    return moment.isoformat() if "hour" in parts else moment.date().isoformat()


def when(value: Any, dirt: Dirt, what: str = "dates") -> str | None:
    """A date as ISO 8601, or in the source's own words where they cannot be read (counted), or `None` where there is
    none (counted).
    """
    if not isinstance(value, str | int | float) or isinstance(value, bool) or str(value).strip() in ("", "?"):
        dirt.add(f"{what} missing")
        return None
    found = iso(str(value))
    if found is None:
        dirt.add(f"{what} that could not be read")
        return " ".join(str(value).split())
    return found
