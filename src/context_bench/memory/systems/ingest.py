"""Store a group's items in a memory, and trace its hits back to them.

Items go in as batches; lost items are counted; a few are searched for until they can be found. Turns are joined to the
granularity that a memory wants, and `Provenance` names the turns that a hit came from. Hits are rendered for readers
and for rows, and the times of storing and searching are measured.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, SetupFailed, Stop, describe
from context_bench.core.machine import Clock
from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.text import normalise
from context_bench.core.tokens import VocabularyCounter
from context_bench.memory.protocol import Hit, Item, Memory, Receipt, dated, iter_packed
from context_bench.memory.systems.baselines import dated_text
from context_bench.stats.distributions import percentile


async def timed(clock: Clock, function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """Call `function`; its result and the seconds it took, without the way into its thread."""

    def measured() -> tuple[Any, float]:
        before = clock.monotonic()
        return function(*args, **options), clock.monotonic() - before

    if asyncio.iscoroutinefunction(function):
        before = clock.monotonic()
        return await function(*args, **options), clock.monotonic() - before
    found, seconds = await calling.call(measured)
    if inspect.isawaitable(found):
        before = clock.monotonic()
        return await found, seconds + clock.monotonic() - before
    return found, seconds


_MOST_FAILED = 0.05  # share of a group's items that a memory may lose before its answers say nothing about it
_BATCH = 100
_SHOWN = 5  # errors kept in the facts


@dataclass(slots=True)
class _Storing:
    """Result of handing the items over."""

    acknowledged: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    each: list[float] = field(default_factory=list)  # seconds of every call that came back
    calls: int = 0

    def lose(self, number: int, why: str) -> None:
        """Some items were not stored."""
        self.failed += number
        if len(self.errors) < _SHOWN and why not in self.errors:
            self.errors.append(why)


def _percentiles(seconds: Sequence[float]) -> dict[str, float | int] | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return {"n": len(ordered), **{f"p{p}": percentile(ordered, p / 100) for p in (50, 95, 99)}}


class Ingest:
    """A group's items on their way into `memory`. `flush_seconds`: how long they may take until they can be found."""

    def __init__(self, memory: Memory, name: str, flush_seconds: float, clock: Clock) -> None:
        self.memory, self.name, self.flush_seconds = memory, name, flush_seconds
        self._clock = clock

    async def store(self, parts: Iterator[Item], number: int) -> dict[str, Any]:
        """Hand over all parts, `number` of them, and wait; what came of it, as JSON."""
        storing = _Storing()
        batch: int | None = getattr(self.memory, "batch", _BATCH)
        handed = 0
        while some := list(islice(parts, batch or max(1, number))):
            handed += len(some)
            await self._add(some, storing)
            if storing.failed > _MOST_FAILED * number:  # no need to pay for the rest
                raise SetupFailed(
                    f"{self.name}: {storing.failed} of {handed} items were not stored; "
                    f"at most {percent(_MOST_FAILED)} of {number} may be: {'; '.join(storing.errors)}"
                )
        flushed = await self._flush()
        return {
            "parts": number,
            "acknowledged": storing.acknowledged,
            "failed": storing.failed,
            "errors": storing.errors,
            "call_count": storing.calls,
            "batch": batch,
            "seconds_add": sum(storing.each),
            "seconds_flush": flushed,
            "seconds_first": storing.each[0] if storing.each else None,
            "seconds_each": _percentiles(storing.each[1:]),
        }

    async def _add(self, parts: Sequence[Item], storing: _Storing) -> None:
        """One call of `add`; whatever it raises is a loss of all its items."""
        storing.calls += 1
        try:
            receipts, seconds = await timed(self._clock, self.memory.add, list(parts))
        except Stop:
            raise
        except Exception as error:
            storing.lose(len(parts), describe(error))
            return
        storing.each.append(seconds)
        if not isinstance(receipts, list | tuple) or not all(isinstance(receipt, Receipt) for receipt in receipts):
            storing.lose(len(parts), f"add() gave {type(receipts).__name__}, expected one Receipt an item")
            return
        if [receipt.item_id for receipt in receipts if receipt.error is None] == [part.id for part in parts]:
            storing.acknowledged += len(parts)
            return
        good = {receipt.item_id for receipt in receipts if receipt.error is None}
        why = {receipt.item_id: receipt.error for receipt in receipts if receipt.error is not None}
        for part in parts:
            if part.id in good and part.id not in why:
                storing.acknowledged += 1
            else:
                storing.lose(1, why.get(part.id) or "no receipt for the item")

    async def _flush(self) -> float | None:
        flush = calling.method(self.memory, "flush")
        if flush is None:
            return None
        try:
            async with asyncio.timeout(self.flush_seconds + 5):  # a memory should keep to its time itself
                _, seconds = await timed(self._clock, flush, self.flush_seconds)
        except Stop:
            raise
        except Exception as error:
            raise SetupFailed(
                f"{self.name}: what was added could not be found within {self.flush_seconds:g} s: {describe(error)}"
            ) from error
        return seconds

    async def size(self) -> dict[str, Any]:
        """The size that the memory reports; nothing if it does not say."""
        stats = calling.method(self.memory, "stats")
        if stats is None:
            return {}
        try:
            found = await calling.call(stats)
        except Stop:
            raise
        except Exception:  # of interest, but not what the run is for
            return {}
        names = {"items": "stored", "bytes": "bytes"}
        return {
            ours: found[theirs]
            for theirs, ours in names.items()
            if isinstance(found, dict) and isinstance(found.get(theirs), int)
        }


GRANULARITIES = ("turn", "pair", "session")
# Characters of a normalised text that may be looked for inside another; shorter ones are too common to prove anything
_SHORTEST = 12


def joined(items: Iterable[Item], granularity: str) -> Iterator[tuple[Item, tuple[str, ...]]]:
    """Parts to hand to a memory, and the ids that each part stands for, one part at a time.

    `pair`: a turn and the answer of somebody else, in one session; `session`: all of a session's turns; items without a
    session stay alone. A joined item has the first one's speaker, role and time, and the id `first..last`.
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
    text = "\n".join([part[0].text, *(item.line for item in part[1:])])
    return replace(part[0], id=f"{part[0].id}..{part[-1].id}", text=text)


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
    """Find the items of a group (`packed`) that a text comes from, by its words: for memories that do not name their
    sources.
    """

    def __init__(self, text: str) -> None:
        self._packed = text

    def of(self, hit: Hit) -> tuple[str, ...]:
        """Ids of the items that say the same; else of those whose whole text is in the hit; else of those that hold the
        whole hit.

        Compared as normalised words; texts under 12 characters only as a whole. Equal items are all named.
        """
        said = normalise(hit.text)
        if same := self._same.get(said):
            return tuple(dict.fromkeys(same))
        if len(said) < _SHORTEST:
            return ()
        padded = f" {said} "
        inside = tuple(item for item, text in self._texts if len(text) >= _SHORTEST and f" {text} " in padded)
        return inside or tuple(item for item, text in self._texts if padded in f" {text} ")

    @cached_property
    def _texts(self) -> list[tuple[str, str]]:
        return [(item.id, normalise(item.text)) for item in iter_packed(self._packed)]

    @cached_property
    def _same(self) -> dict[str, list[str]]:
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for item, (_, text) in zip(iter_packed(self._packed), self._texts, strict=True):
            for form in {text, normalise(item.line), normalise(dated_text(item))} - {""}:
                ids[form].append(item.id)
        return ids


@dataclass(slots=True)
class Shown:
    """A hit with what is known of it."""

    hit: Hit
    sources: tuple[str, ...]
    own: bool  # the memory named the sources itself
    text: str
    counter: VocabularyCounter
    tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.counter.count(self.text)

    def as_dict(self) -> dict[str, Any]:
        fields = {
            "text": self.hit.text,
            "score": real(self.hit.score),
            "source_ids": list(self.sources),
            "memory_id": self.hit.memory_id,
            "tokens": self.tokens,
        }
        return fields | ({"time": self.hit.time} if self.hit.time else {})


def rendered(hit: Hit) -> str:
    """A hit as a reader sees it: with its date, if the memory kept one."""
    return dated(hit.text, hit.time)
