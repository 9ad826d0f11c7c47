"""One execution of a run: workers take jobs, have them done and kept, until everything is done or something ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from context_bench.core.errors import Failed, RunTimedOut, Stop
from context_bench.core.records import Example
from context_bench.engine.alive import signs_of_life
from context_bench.engine.books import Executed
from context_bench.engine.circumstances import EVERY
from context_bench.engine.execution import Execution
from context_bench.engine.groups import Groups
from context_bench.engine.plan import Job, Outcome
from context_bench.engine.planning import Planning
from context_bench.engine.schedule import Schedule
from context_bench.engine.second_pass import judge_stored
from context_bench.engine.store.reading import stored_ids
from context_bench.engine.store.store import DONE, INTERRUPTED, STOPPED
from context_bench.engine.work import Hand, tap_lost

_ASK_EVERY = 500  # rows, then the tap is asked for requests that came late


class Runner(Execution):
    """One execution of one run, from its first example to its end."""

    async def run(self, examples: Iterable[Example], total: int | None) -> Executed:
        """Work until everything is done or something ends it."""
        planning = Planning(
            examples,
            self.writer.arms,
            self.writer,
            trials=self.settings.trials,
            seed=self.settings.seed,
            tapped=self.recorder is not None,
            reader=self.reader,
            database=self.database,
        )
        self.schedule = Schedule(planning, self.writer.arms, self.writer)
        self.books.planned = self.schedule
        self.groups = Groups(self, self.committed, self.stop)
        self.open()
        if self.progress is not None:
            self.progress.start([arm.name for arm in self.writer.arms], None if total is None else total * self.settings.trials)
            for note in self.notes:
                self.progress.note(note)
        status = INTERRUPTED
        try:
            async with signs_of_life(lambda: self.in_database(self.writer.beat)), signs_of_life(self._keep_circumstances, EVERY):
                status = await self._work()
        finally:
            executed = await self._end(status)
        return executed

    async def _work(self) -> str:
        """All workers, under the run's deadline; returns the status the run ends with."""
        try:
            async with asyncio.timeout(self.settings.run_timeout) as deadline:
                await self.executor.start(self.bench, self.workers, self.notice)
                await self._workers()
                await self._judge_afterwards()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped = RunTimedOut(
                f"the run took longer than the {self.settings.run_timeout:g} s allowed; the same run name goes on with it"
            )
        except asyncio.CancelledError:
            self.interrupted = True
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return INTERRUPTED
        except Stop as stop:
            self.stopped = stop
        return DONE if self.stopped is None and self.schedule.complete else STOPPED

    async def _workers(self) -> None:
        if self.workers == 1:
            await self._worker(0)
            return
        tasks = [asyncio.create_task(self._worker(number), name=f"context-bench-worker-{number}") for number in range(self.workers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _worker(self, number: int) -> None:
        hand = Hand(f"context-bench-system-{number}")
        try:
            while (job := await self.schedule.next()) is not None:
                self.commits.enter()
                try:
                    await self._do(job, hand)
                finally:
                    self.commits.leave()
                    self.schedule.done(job)
        finally:
            hand.close()

    async def _do(self, job: Job, hand: Hand) -> None:
        arm = self.bench.arms[job.arm]
        if arm.stateful and not all(unit.done for unit in job.units):
            await self.groups.do(arm, job, hand)
            return
        for unit in job.units:
            outcome = await self._rescored(unit, hand) if unit.done else await self.executor.perform(unit, hand)
            if not await self.committed(outcome):
                return

    async def _keep_circumstances(self) -> None:
        if self.circumstances is not None:
            await self.circumstances.keep()

    async def committed(self, outcome: Outcome, *, known: bool = False) -> bool:
        """Keep an outcome; False if it ended the run. `known`: it stands in for one that was counted before."""
        if outcome.ran and self.circumstances is not None:
            await self.circumstances.rows_are_made()
        await self.commits.put(outcome)
        if not known:
            self.books.note(outcome)
        if outcome.stop is not None:
            self.stop(outcome.stop)
            return False
        if not known:
            await self.schedule.finished(outcome)
        if self.recorder is not None and self.books.ran % _ASK_EVERY == 0:
            try:
                await self.books.collect_late(self.recorder)
            except Failed as error:
                raise tap_lost(error) from error
        return True

    def stop(self, stop: Stop) -> None:
        """End the run early."""
        self.stopped = self.stopped or stop
        self.schedule.stop()

    async def _rescored(self, unit: Any, hand: Hand) -> Outcome:
        """Only the scores that are missing of an answer in the store."""
        outcome = Outcome(unit, ran=False)
        outcome.output = await self.in_database(self.writer.stored_output, unit.output)
        missing = [scorer for scorer in self.bench.scorers if scorer.planned.id not in unit.scored]
        await self.executor.judge(outcome, missing, hand)
        return outcome

    # --- evaluators that judge when everything is answered ---

    async def _judge_afterwards(self) -> None:
        late = [each for each in self.writer.evaluators if each.after]
        if not late or self.stopped is not None or not self.schedule.complete:
            return
        stop = await judge_stored(
            self, late, await self.in_database(stored_ids, self.writer.store, self.writer.run.number), seed=self.settings.seed
        )
        self.stopped = self.stopped or stop

    # --- the end ---

    async def _end(self, status: str) -> Executed:
        try:
            await self.schedule.close()
            await self.executor.end()
            await self.commits.drain()
            if self.recorder is not None and not self.interrupted:
                await self.clock.sleep(self.settings.late_grace)
                try:
                    await self.books.collect_late(self.recorder)
                except Failed as error:  # every row is kept; what came late is not known
                    self.stopped = self.stopped or tap_lost(error)
                    status = STOPPED
            counts = self.books.told(self.schedule.tally, self.notes, interrupted=self.interrupted)
            await self._keep_circumstances()
            await self.in_database(self.writer.end, status, counts)
        finally:
            if self.progress is not None:
                self.progress.close()
        run = self.writer.run
        return Executed(run.id, run.name, status == DONE, counts, self.stopped, self.schedule.tally.examples, self.schedule.exhausted)
