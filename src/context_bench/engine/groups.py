"""Groups of stateful arms: each on a twin of its own, set up once before its first question."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from uuid import uuid4

from context_bench.core.errors import Stop
from context_bench.engine.execution import Execution
from context_bench.engine.executors.local import NodeLost, Raised, Twin, offers_set_up
from context_bench.engine.plan import Job, PlannedArm, SetUp
from context_bench.engine.work import Hand, refused, setup_failed


class Groups:
    """Does the groups of one execution. `committed` keeps an outcome and tells whether the run goes on, `stop` ends it."""

    def __init__(self, execution: Execution, committed: Callable[..., Awaitable[bool]], stop: Callable[[Stop], None]) -> None:
        self.execution, self.committed, self.stop = execution, committed, stop
        self.stamp = uuid4().hex[:6]  # of this execution: a twin's name is never used twice, whatever became of an earlier process

    async def do(self, arm: PlannedArm, job: Job, hand: Hand) -> None:
        """A group of a stateful arm, from its beginning; where its state is lost with a node, all of it again."""
        kept: set[int] = set()
        for attempt in itertools.count():
            try:
                await self._try(arm, job, hand, f"-{attempt}" if attempt else "", kept)
                return
            except NodeLost:
                continue

    async def _try(self, arm: PlannedArm, job: Job, hand: Hand, again: str, kept: set[int]) -> None:
        """A group on its own twin, which is set up once, its units in order."""
        name = f"{self.execution.writer.run.id}-{arm.number}-{job.units[0].position}-{job.units[0].trial}-{self.stamp}{again}"
        twin, failure = None, None
        try:
            twin = await self.execution.executor.twin(job.arm, name, hand)
        except Raised as error:
            failure = setup_failed(str(error))
        try:
            setup = await self._set_up(arm, job, hand, twin, failure)
            if setup is not None and setup.stop is not None:
                self.stop(setup.stop)
                return
            failure = failure if setup is None else setup.error
            for unit in job.units:
                outcome = (
                    refused(self.execution.bench, unit, failure) if failure else await self.execution.executor.perform(unit, hand, twin)
                )
                if setup is not None:
                    outcome.setup = setup.id
                    outcome.metadata["setup"] = setup.number
                if not await self.committed(outcome, known=unit.position in kept):
                    return
                kept.add(unit.position)
                unit.output, unit.takes = outcome.id, unit.takes + 1
        finally:
            if twin is not None and twin.own:
                await self._close(arm, twin, hand)

    async def _close(self, arm: PlannedArm, twin: Twin, hand: Hand) -> None:
        """Close a twin; one that cannot be closed has given its answers all the same."""
        try:
            await self.execution.executor.close(twin, hand)
        except Raised as error:
            said = f"{arm.name}: what was made for a group could not be closed: {error}"
            if said not in self.execution.notes:
                self.execution.notice(said)

    async def _set_up(self, arm: PlannedArm, job: Job, hand: Hand, twin: Twin | None, failure: str | None) -> SetUp | None:
        """Have the group set up by a system that offers it, and keep the record of that before any row. `failure`: it has no twin."""
        if arm.played_back or not (offers_set_up(arm.system) if twin is None else twin.sets_up):
            return None
        unit = job.units[0]
        setup = SetUp(job.arm, unit.trial, unit.group, unit.position, job.number)
        await self.execution.in_database(self.execution.writer.begin_setup, setup)
        self.execution.books.show(arm, setup, begun=True)
        self.execution.commits.leave()  # others need not wait with their rows for this one
        try:
            if twin is not None:
                await self.execution.executor.set_up(setup, unit, hand, twin)
            else:
                setup.error, setup.seconds = failure, 0.0
        except asyncio.CancelledError:
            setup.error = "Interrupted: the run ended while the group was being set up"
            raise
        finally:
            self.execution.commits.enter()
            self.execution.books.show(arm, setup, begun=False)
            if setup.seconds is not None:
                await self.execution.in_database(self.execution.writer.end_setup, setup)
                self.execution.books.note_setup(setup)
        return setup
