"""Choose the next batch. Has examples planned as they are needed, and keeps which items wait for which."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from context_bench.core.errors import BadInput
from context_bench.engine.observe import context_tokens
from context_bench.engine.plan import Batch, DependencyGroup, PlannedArm, WorkItem, WorkOutcome, output_key
from context_bench.engine.planner import Planning
from context_bench.engine.store.run_writer import Writer

#: Examples planned in one go: as many as workers ask for, within these bounds. A slow source gives smaller chunks: work
#: begins at once.
CHUNK, _LARGE_CHUNK = 128, 512
#: Group jobs of one arm that may wait for each other before reading on is put off.
_BACKLOG = 64


@dataclass(slots=True)
class _Group:
    """The group of a stateful arm that is being read."""

    name: str | None
    units: list[WorkItem] = field(default_factory=list)


class Schedule:
    """Hands out jobs. Workers call `next` and, with each outcome, `finished`; `done` when a job is over.

    Per example and trial: first the arms that wait for nobody, in random order; when the baseline is finished, those
    that are paired with it; when all of these are, those that take a budget. Groups of a stateful arm without
    `namespace()` are handed out one at a time.
    """

    def __init__(self, planning: Planning, arms: list[PlannedArm], writer: Writer) -> None:
        self.tally = planning.tally
        self._planning, self._arms, self._writer = planning, arms, writer
        self._evaluators = {each.id for each in writer.evaluators if not each.after}
        self._ready: deque[Batch] = deque()
        self._held: dict[int, deque[Batch]] = {
            i: deque() for i, arm in enumerate(arms) if arm.stateful and not hasattr(arm.system, "namespace")
        }
        self._running: set[int] = set()
        self._groups: dict[tuple[int, int], _Group] = {}
        self._answered: list[WorkItem] = []
        self._closed: dict[int, set[str]] = {}
        self._numbers: dict[tuple[int, int], int] = {}  # (arm, trial) → groups so far
        self._open = 0  # jobs handed out and not over
        self._chunk = CHUNK
        self._exhausted = self._stopped = False
        self._refilling: asyncio.Task[None] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()

    # --- for workers ---

    async def next(self) -> Batch | None:
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

    async def finished(self, outcome: WorkOutcome) -> None:
        """A unit is finished and committed: its block may set dependents free."""
        block = outcome.unit.block
        if outcome.ran and block is not None:
            if outcome.error is None:
                block.answered.add(outcome.unit.arm)
                self._settle(outcome.unit, outcome.context_tokens)
            else:
                self._settle(outcome.unit, None, failed=True)
            await self._free([block])

    def done(self, job: Batch) -> None:
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
        self._refilling.add_done_callback(self._planned)
        return True

    def _planned(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # asked for, should the run end by something else before `_refill` raises it
        self._wake()

    async def _plan_chunk(self) -> None:
        units, more = await self._planning.chunk(self._chunk)
        for unit in units:
            if self._arms[unit.arm].stateful:
                self._gather(unit)
            else:
                self._take_in(unit)
        if not more:
            for (arm, trial), group in list(self._groups.items()):
                self._close_group(arm, trial, group)
            await self._planning.end()
        await self._settle_answered()
        # Where all is answered already, there is nobody to wait for.
        wanted = self._open + len(self._waiters)
        self._chunk = max(CHUNK, min(wanted, _LARGE_CHUNK)) if self._ready or self._open else _LARGE_CHUNK
        self._exhausted = not more

    def _take_in(self, unit: WorkItem) -> None:
        if unit.done:
            self._answered.append(unit)
        self._enqueue(unit)

    def _enqueue(self, unit: WorkItem, *, first: bool = False) -> None:
        """Make a job of what is missing of a unit, if anything is."""
        if unit.done and self._evaluators <= set(unit.scored):
            return
        job = Batch(unit.arm, [unit])
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

    async def _stored_context(self, unit: WorkItem) -> int | None:
        arm, found = self._arms[unit.arm], unit.found
        if not arm.feeds or found is None:
            return None
        if found.context_tokens is not None:
            return found.context_tokens
        return await context_tokens(arm.system, unit.example, found.source, found.output_tokens, None)

    def _settle(self, unit: WorkItem, forwarded: int | None, *, failed: bool = False) -> None:
        if unit.block is not None:
            unit.block.awaited.discard(unit.arm)
            unit.block.forwarded[unit.arm] = forwarded
            if forwarded is None and not failed:
                unit.block.unsized.add(unit.arm)

    async def _free(self, blocks: list[DependencyGroup]) -> None:
        """Make jobs of the dependents that have nobody left to wait for; of those that are answered already, too, and
        so on.
        """
        while units := [unit for block in blocks for unit in self._ready_in(block)]:
            for unit in units:
                arm, block = self._arms[unit.arm], unit.block
                assert block is not None
                unit.budget = None if arm.partner is None else block.forwarded.get(arm.partner)
                unit.unsized = arm.partner in block.unsized
                unit.copies = arm.base in block.answered
                unit.key = output_key(arm, unit.content, unit.trial, unit.occurrence, unit.budget)
            if self._writer.has_past:
                await self._planning.match(units)
            blocks = []
            for unit in reversed(units):
                self._enqueue(unit, first=True)
                if unit.done and unit.block is not None:
                    self._settle(unit, await self._stored_context(unit))
                    blocks.append(unit.block)
            self._wake()

    def _ready_in(self, block: DependencyGroup) -> list[WorkItem]:
        """Take out the dependents of a block that wait for nobody any more."""
        unbudgeted = any(self._arms[index].partner is None for index in block.awaited)
        ready: list[WorkItem] = []
        left: list[WorkItem] = []
        for unit in block.dependents:
            arm = self._arms[unit.arm]
            waits = unbudgeted if arm.partner is not None else arm.base in block.awaited
            (left if waits else ready).append(unit)
        block.dependents = left
        return ready

    # --- groups ---

    def _gather(self, unit: WorkItem) -> None:
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
        job = Batch(arm, group.units, group.name, number=number)
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

    def _forget(self, unit: WorkItem) -> None:
        """The unit has an answer, but the state of its group is gone: the whole group is done again."""
        unit.done, unit.scored = False, ()
        if unit.found is not None and not unit.found.own:
            unit.output = None
        self.tally.reuse(unit.arm, -1, None)

    def _release(self, arm: int) -> None:
        if arm not in self._running and self._held[arm]:
            self._running.add(arm)
            self._ready.append(self._held[arm].popleft())
            self._wake()
