"""Putting a group's items into a memory: in batches, what was lost counted, waiting until they can be found, and trying some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from context_bench.core import calling
from context_bench.core.clock import Clock
from context_bench.core.errors import SetupFailed, Stop, describe
from context_bench.memory.protocol import Item, Memory, Receipt
from context_bench.memory.systems._timing import timed
from context_bench.stats.distributions import nearest_rank

_MOST_FAILED = 0.05  # share of a group's items that a memory may lose before its answers say nothing about it
_BATCH = 100
_SHOWN = 5  # errors kept in the facts


@dataclass(slots=True)
class _Storing:
    """What came of handing the items over."""

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
    """By nearest rank: the ⌈p · n⌉-th smallest."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return {"n": len(ordered), **{f"p{p}": nearest_rank(ordered, p / 100) for p in (50, 95, 99)}}


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
                    f"at most {_MOST_FAILED:.0%} of {number} may be: {'; '.join(storing.errors)}"
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
        """What the memory says about its size; nothing if it does not say."""
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
        return {ours: found[theirs] for theirs, ours in names.items() if isinstance(found, dict) and isinstance(found.get(theirs), int)}
