"""Which job is next. Reads examples as they are needed, plans them in chunks, and knows who waits for whom."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.engine.plan import Block, Found, Job, Outcome, PlannedArm, Unit, content_key, example_facts, ordered, output_key
from context_bench.engine.store.writing import ExampleRow, Planned, Writer
from context_bench.engine.work import context_tokens

#: Examples planned in one go: as many as workers ask for, within these bounds. A slow source gives smaller chunks: work begins at once.
CHUNK, _LARGE_CHUNK = 128, 512
_PATIENCE = 0.2
#: Group jobs of one arm that may wait for each other before reading on is put off.
_BACKLOG = 64
_END = object()


@dataclass(slots=True)
class Tally:
    """What planning found."""

    owed: int = 0
    reused: int = 0
    oldest: float | None = None  # when the oldest reused output was made, seconds since the epoch
    restarted: int = 0
    examples: int = 0
    reused_by_arm: dict[int, int] = field(default_factory=dict)
    owed_by_arm: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Group:
    """The group of a stateful arm that is being read."""

    name: str | None
    units: list[Unit] = field(default_factory=list)


class Schedule:
    """Hands out jobs. Workers call `next` and, with each outcome, `finished`; `done` when a job is over.

    Per example and trial: first the arms that depend on nobody, in random order, then, when all of those are finished, the dependent ones.
    Groups of a stateful arm without `namespace()` are handed out one at a time.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        arms: list[PlannedArm],
        writer: Writer,
        *,
        trials: int,
        seed: int,
        tapped: bool,
        reader: Executor,
        database: Executor,
    ) -> None:
        self.tally = Tally()
        self._source: Iterator[Example] = iter(examples)
        self._arms, self._writer = arms, writer
        self._trials, self._seed, self._tapped = trials, seed, tapped
        self._reader, self._database = reader, database
        self._primaries = [i for i, arm in enumerate(arms) if arm.partner is None]
        self._dependents = [i for i, arm in enumerate(arms) if arm.partner is not None]
        self._evaluators = {each.id for each in writer.evaluators if not each.after}
        self._ready: deque[Job] = deque()
        self._held: dict[int, deque[Job]] = {
            i: deque() for i, arm in enumerate(arms) if arm.stateful and not hasattr(arm.system, "namespace")
        }
        self._running: set[int] = set()
        self._groups: dict[tuple[int, int], _Group] = {}
        self._answered: list[Unit] = []
        self._closed: dict[int, set[str]] = {}
        self._numbers: dict[tuple[int, int], int] = {}  # (arm, trial) → groups so far
        self._open = 0  # jobs handed out and not over
        self._chunk = CHUNK
        self._exhausted = self._stopped = False
        self._refilling: asyncio.Task[None] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()

    # --- for workers ---

    async def next(self) -> Job | None:
        """The next job; waits while one may still come up. `None`: there is no more."""
        while not self._stopped:
            if self._ready:
                job = self._ready.popleft()
                self._open += 1
                if len(self._ready) < self._chunk // 2:
                    self._refill()
                return job
            if not self._refill() and self._open == 0 and not any(self._held.values()):
                self._wake()
                return None
            await self._change()
        return None

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True
        self._wake()

    async def finished(self, outcome: Outcome) -> None:
        """A unit is finished and committed: its block may set dependents free."""
        if outcome.ran and outcome.unit.block is not None and outcome.unit.arm not in self._dependents:
            self._settle(outcome.unit, outcome.context_tokens if outcome.error is None else None)
            await self._free([outcome.unit.block])

    def done(self, job: Job) -> None:
        """A job is over."""
        self._open -= 1
        if job.arm in self._running:
            self._running.discard(job.arm)
            self._release(job.arm)
        if self._open == 0:
            self._wake()

    async def close(self) -> None:
        """Stop reading."""
        self.stop()
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.wait([self._refilling])
            if not self._refilling.cancelled():
                self._refilling.exception()

    @property
    def complete(self) -> bool:
        """Everything was handed out, and nothing was stopped."""
        return self._exhausted and not self._stopped and not self._ready and not any(self._held.values())

    @property
    def exhausted(self) -> bool:
        """All examples were read: what is owed is known."""
        return self._exhausted

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    # --- reading and planning ---

    def _refill(self) -> bool:
        """See to it that the next chunk is being planned; False if there is none or it must wait."""
        if self._refilling is not None:
            if not self._refilling.done():
                return True
            self._refilling.result()  # raises what ended the reading
            self._refilling = None
        if self._exhausted or any(len(waiting) > _BACKLOG for waiting in self._held.values()):
            return False
        self._refilling = asyncio.create_task(self._plan_chunk())
        self._refilling.add_done_callback(lambda _: self._wake())
        return True

    async def _plan_chunk(self) -> None:
        loop = asyncio.get_running_loop()
        rows, more = await loop.run_in_executor(self._reader, self._read)
        if rows:
            planned = await loop.run_in_executor(self._database, self._writer.plan, rows)
            self.tally.examples += len(rows)
            for index, each in enumerate(self._arms):
                owed = self._trials * sum(each.arm.takes(row.position) for row in rows)
                self.tally.owed += owed
                self.tally.owed_by_arm[index] = self.tally.owed_by_arm.get(index, 0) + owed
            units = [unit for row in rows for unit in self._units(row, planned)]
            await self._match(units)
            for unit in units:
                if self._arms[unit.arm].stateful:
                    self._gather(unit)
                else:
                    self._take_in(unit)
        if not more:
            for (arm, trial), group in list(self._groups.items()):
                self._close_group(arm, trial, group)
            await loop.run_in_executor(self._database, self._writer.cut, self.tally.examples)
        await self._settle_answered()
        # Where all is answered already, there is nobody to wait for.
        wanted = self._open + len(self._waiters)
        self._chunk = max(CHUNK, min(wanted, _LARGE_CHUNK)) if self._ready or self._open else _LARGE_CHUNK
        self._exhausted = not more

    def _read(self) -> tuple[list[ExampleRow], bool]:
        """The next examples, in the reader's thread; stops early if they come slowly."""
        rows: list[ExampleRow] = []
        until = time.monotonic() + _PATIENCE
        while len(rows) < self._chunk and time.monotonic() < until:
            example: Any = next(self._source, _END)
            if example is _END:
                return rows, False
            position = self.tally.examples + len(rows)
            if not isinstance(example, dict):
                raise BadInput(f"example {position} is {type(example).__name__} {str(example)[:80]!r}; expected a dict with id and context")
            rows.append(ExampleRow(position, example, content_key(example), *example_facts(example, position)))
        return rows, True

    def _units(self, row: ExampleRow, planned: Planned) -> Iterator[Unit]:
        for trial in range(self._trials):
            taking = [index for index in self._primaries if self._arms[index].arm.takes(row.position)]
            block = Block(len(taking), []) if self._dependents else None
            for index in ordered(taking, self._seed, row.content, trial):
                key = output_key(self._arms[index], row.content, trial, row.occurrence)
                yield self._unit(index, row, trial, key, block, planned)
            if block is not None:
                due = [index for index in self._dependents if self._arms[index].arm.takes(row.position)]
                for index in ordered(due, self._seed, row.content, trial):
                    block.dependents.append(self._unit(index, row, trial, b"", block, planned))

    def _unit(self, arm: int, row: ExampleRow, trial: int, key: bytes, block: Block | None, planned: Planned) -> Unit:
        unit = Unit(arm, row.position, trial, row.example, row.content, row.occurrence, key, row.group, block=block)
        if planned:
            unit.before = planned.get((self._arms[arm].number, row.position, trial))
        return unit

    async def _match(self, units: list[Unit]) -> None:
        """Find stored outputs for these units, and let plan rows point to them."""
        if not self._writer.has_past:
            return
        loop = asyncio.get_running_loop()
        unknown = []
        for unit in units:
            if self._is_best(unit.before, unit.key):
                self._stand_for(unit, unit.before)
            else:
                unknown.append(unit)
        if unknown:
            found = await loop.run_in_executor(self._database, self._writer.lookup, [unit.key for unit in unknown])
            for unit in unknown:
                self._stand_for(unit, found.get(unit.key))
        moved = [unit for unit in units if unit.output is not None and (unit.before is None or unit.before.id != unit.output)]
        if moved:
            await loop.run_in_executor(self._database, self._writer.point, moved)

    def _is_best(self, before: Found | None, key: bytes) -> bool:
        """Does what the plan pointed to answer this key, so that no other output could answer it better?"""
        return before is not None and before.key == key and before.own and not before.failed

    def _stand_for(self, unit: Unit, found: Found | None) -> None:
        """Let a stored output answer the unit, if it is an answer (and was seen by a tap, if there is one now)."""
        if found is None:
            return
        usable = not found.failed and (found.tapped or not self._tapped)
        if not usable and not found.own:
            return
        unit.output, unit.takes, unit.done, unit.found = found.id, found.takes, usable, found
        if usable:
            unit.scored = found.scored
            self.tally.reused += 1
            self.tally.reused_by_arm[unit.arm] = self.tally.reused_by_arm.get(unit.arm, 0) + 1
            self.tally.oldest = min(found.created, self.tally.oldest or found.created)

    def _take_in(self, unit: Unit) -> None:
        if unit.done:
            self._answered.append(unit)
        self._enqueue(unit)

    def _enqueue(self, unit: Unit, *, first: bool = False) -> None:
        """Make a job of what is missing of a unit, if anything is."""
        if unit.done and self._evaluators <= set(unit.scored):
            return
        job = Job(unit.arm, [unit])
        if first:
            self._ready.appendleft(job)
        else:
            self._ready.append(job)

    # --- arms that wait for others ---

    async def _settle_answered(self) -> None:
        """Tell the blocks of units that had an answer in the store."""
        answered, self._answered = self._answered, []
        blocks = []
        for unit in answered:
            if unit.block is not None:
                self._settle(unit, await self._stored_context(unit))
                blocks.append(unit.block)
        await self._free(blocks)

    async def _stored_context(self, unit: Unit) -> int | None:
        arm, found = self._arms[unit.arm], unit.found
        if not arm.feeds or found is None:
            return None
        if found.context_tokens is not None:
            return found.context_tokens
        return await context_tokens(arm.system, unit.example, found.source, found.output_tokens, None)

    def _settle(self, unit: Unit, forwarded: int | None) -> None:
        if unit.block is not None:
            unit.block.waiting -= 1
            unit.block.forwarded[unit.arm] = forwarded

    async def _free(self, blocks: list[Block]) -> None:
        """Make jobs of the dependents whose blocks have no primary left to wait for."""
        units: list[Unit] = []
        for block in blocks:
            if block.waiting == 0:
                block.waiting = -1  # once
                units += block.dependents
        for unit in units:
            arm = self._arms[unit.arm]
            assert arm.partner is not None
            assert unit.block is not None
            unit.budget = unit.block.forwarded.get(arm.partner)
            unit.key = output_key(arm, unit.content, unit.trial, unit.occurrence, unit.budget)
        if units:
            if self._writer.has_past:
                await self._match(units)
            for unit in reversed(units):
                self._enqueue(unit, first=True)
            self._wake()

    # --- groups ---

    def _gather(self, unit: Unit) -> None:
        """Add a stateful arm's unit to its group; the group before is complete when another begins."""
        place = (unit.arm, unit.trial)
        group = self._groups.get(place)
        if group is not None and (group.name != unit.group or unit.group is None):
            self._close_group(*place, group)
            group = None
        if group is None:
            if unit.group is not None and unit.group in self._closed.get(unit.arm, ()) and unit.trial == 0:
                raise BadInput(
                    f"group {unit.group!r} comes back at example {unit.position} after another group; "
                    f"{self._arms[unit.arm].name!r} keeps state, so the examples of a group must follow one another"
                )
            group = self._groups[place] = _Group(unit.group)
        group.units.append(unit)

    def _close_group(self, arm: int, trial: int, group: _Group) -> None:
        del self._groups[arm, trial]
        number = self._numbers[arm, trial] = self._numbers.get((arm, trial), 0) + 1
        if group.name is not None:
            self._closed.setdefault(arm, set()).add(group.name)
        if all(unit.done for unit in group.units):
            for unit in group.units:
                self._take_in(unit)
            return
        job = Job(arm, group.units, group.name, number=number)
        for unit in group.units:
            if unit.done:
                self._forget(unit)
                job.restarted = True
        self.tally.restarted += job.restarted
        if arm in self._held:
            self._held[arm].append(job)
            self._release(arm)
        else:
            self._ready.append(job)

    def _forget(self, unit: Unit) -> None:
        """The unit has an answer, but the state of its group is gone: the whole group is done again."""
        unit.done, unit.scored = False, ()
        if unit.found is not None and not unit.found.own:
            unit.output = None
        self.tally.reused -= 1
        self.tally.reused_by_arm[unit.arm] -= 1

    def _release(self, arm: int) -> None:
        if arm not in self._running and self._held[arm]:
            self._running.add(arm)
            self._ready.append(self._held[arm].popleft())
            self._wake()
