"""Turns joined to what a memory wants as one item, and which turns a hit came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from context_bench.core.errors import BadInput
from context_bench.core.text import normalise
from context_bench.memory.protocol import Hit, Item, unpacking
from context_bench.memory.systems.adapting import told

GRANULARITIES = ("turn", "pair", "session")
_SHORTEST = 12  # characters of a normalised text that may be looked for inside another; shorter ones are too common to prove anything


def joined(items: Iterable[Item], granularity: str) -> Iterator[tuple[Item, tuple[str, ...]]]:
    """What is handed to a memory, and the ids that each part stands for, one part at a time.

    `pair`: a turn and the answer of somebody else, in one session; `session`: all of a session's turns; items without a session stay alone.
    A joined item has the first one's speaker, role and time, and the id `first..last`.
    """
    if granularity not in GRANULARITIES:
        raise BadInput(f"a memory's granularity is one of {', '.join(GRANULARITIES)}, not {granularity!r}")
    if granularity == "turn":
        return ((item, (item.id,)) for item in items)
    parts = _pairs(items) if granularity == "pair" else _sessions(items)
    return ((_one(part), tuple(item.id for item in part)) for part in parts)


def _one(part: Sequence[Item]) -> Item:
    if len(part) == 1:
        return part[0]
    first = part[0]
    text = "\n".join([first.text, *(item.line for item in part[1:])])
    return replace(first, id=f"{first.id}..{part[-1].id}", text=text)


def _sessions(items: Iterable[Item]) -> Iterator[list[Item]]:
    for session, part in groupby(items, key=lambda item: item.session):
        if session is None:
            yield from ([item] for item in part)
        else:
            yield list(part)


def _pairs(items: Iterable[Item]) -> Iterator[list[Item]]:
    waiting: list[Item] = []
    for item in items:
        if waiting and waiting[0].session == item.session and _who(waiting[0]) != _who(item):
            yield [*waiting, item]
            waiting = []
        else:
            if waiting:
                yield waiting
            waiting = [item]
    if waiting:
        yield waiting


def _who(item: Item) -> tuple[str, str | None]:
    return item.role, item.speaker


class Provenance:
    """Which of a group's items (`packed`) a text comes from, by its words: for memories that do not name their sources."""

    def __init__(self, text: str) -> None:
        self._packed = text

    def of(self, hit: Hit) -> tuple[str, ...]:
        """Ids of the items that say the same; else of those whose whole text is in the hit; else of those that hold the whole hit.

        Compared as normalised words; texts under 12 characters only as a whole. Equal items are all named.
        """
        said = normalise(hit.text)
        if same := self._same.get(said):
            return tuple(dict.fromkeys(same))
        if len(said) < _SHORTEST:
            return ()
        padded = f" {said} "
        inside = [item for item, text in self._texts if len(text) >= _SHORTEST and f" {text} " in padded]
        return tuple(item for item in inside) or tuple(item for item, text in self._texts if padded in f" {text} ")

    @cached_property
    def _texts(self) -> list[tuple[str, str]]:
        return [(item.id, normalise(item.text)) for item in unpacking(self._packed)]

    @cached_property
    def _same(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for item, text in zip(unpacking(self._packed), (text for _, text in self._texts), strict=True):
            for form in {text, normalise(item.line), normalise(told(item))} - {""}:
                found.setdefault(form, []).append(item.id)
        return found
