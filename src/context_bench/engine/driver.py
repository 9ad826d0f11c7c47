"""Run a plan to its end, or judge stored answers again.

`execute` plans, answers and scores. `rescore` gives the answers of a finished run to evaluators once more.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from context_bench.core.errors import BadInput, Failed, RunTimedOut, Stop
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.protocols import Recorder, Spend
from context_bench.core.records import Call, Example
from context_bench.engine.commit import Executed, heartbeat, rare_collections
from context_bench.engine.encoding import secrets_of
from context_bench.engine.execution import (
    EVERY,
    Execution,
    Executor,
    IsolatedGroups,
    Limits,
    LoadLog,
    judged,
    load_tokenizers,
    sandboxes_of,
)
from context_bench.engine.looks import planned_looks
from context_bench.engine.manifest import continued, described, judged_again, program
from context_bench.engine.plan import (
    Arm,
    Batch,
    PlannedArm,
    PlannedEvaluator,
    RunSettings,
    WorkItem,
    WorkOutcome,
    planned_arms,
    planned_evaluators,
)
from context_bench.engine.planner import Planning, source_key
from context_bench.engine.progress import Progress
from context_bench.engine.schedule import Schedule
from context_bench.engine.scoring import Scorer
from context_bench.engine.store import Store
from context_bench.engine.store.outcomes import StoredReplies, caching_replies
from context_bench.engine.store.reading import StoredOutput, stored_by_id, stored_ids
from context_bench.engine.store.run_records import DONE, INTERRUPTED, STOPPED, RunRecord, run_of
from context_bench.engine.store.run_writer import WantedRun, Writer, identity_of
from context_bench.engine.work import WorkerThread, tap_lost

if TYPE_CHECKING:
    from context_bench.engine.store.remarks import Remark

__all__ = [
    "Executed",
    "Reuse",
    "execute",
    "rescore",
]


async def judge_stored(
    execution: Execution, judges: Sequence[PlannedEvaluator], ids: array[int], *, seed: int, again: bool = False
) -> Stop | None:
    """Let `judges` see the stored outputs with these ids, in seeded order; those judged before are left out unless
    `again`.
    """
    random.Random(seed).shuffle(ids)
    scorers = [Scorer(each, execution.settings.example_timeout) for each in judges]
    places = iter(range(0, len(ids), 32))
    stops: list[Stop] = []

    async def worker(number: int) -> None:
        thread = WorkerThread(f"context-bench-judge-{number}")
        try:
            for start in places:
                chunk: list[StoredOutput] = await execution.in_database(
                    stored_by_id, execution.writer.store, execution.writer.run.number, list(ids[start : start + 32])
                )
                for item in chunk:
                    if stops:
                        return
                    stop = await _judge_one(execution, item, scorers, thread, again)
                    if stop is not None:
                        stops.append(stop)
        finally:
            thread.close()

    tasks = [asyncio.create_task(worker(number)) for number in range(min(execution.workers, max(1, len(ids))))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return stops[0] if stops else None


async def _judge_one(
    execution: Execution, item: StoredOutput, scorers: Sequence[Scorer], thread: WorkerThread, again: bool
) -> Stop | None:
    missing = [scorer for scorer in scorers if again or scorer.planned.id not in item.scored]
    if not missing or item.row.failed or not item.whole:
        return None
    if item.example is None:
        raise BadInput(
            "this run was made with bodies='none', so its examples are not in the store and its answers cannot be "
            "judged again"
        )
    arm = next(index for index, each in enumerate(execution.worker_context.arms) if each.name == item.system)
    unit = WorkItem(arm, item.position, item.row.trial, item.example, "", 0, b"", output=item.id, done=True)
    outcome = WorkOutcome(unit, ran=False, output=item.output)
    execution.commits.enter()
    try:
        await judged(execution.worker_context, outcome, missing, thread)
        await execution.commits.put(outcome)
    finally:
        execution.commits.leave()
    execution.statistics.note(outcome)
    return outcome.stop


async def judge_only(execution: Execution, record: RunRecord, again: bool) -> Executed:
    """Let the writer's evaluators judge the stored answers of a run."""
    execution.open()
    ids = await execution.in_database(stored_ids, execution.writer.store, record.number)
    if execution.progress is not None:
        execution.progress.start(record.systems, None)
    try:
        async with asyncio.timeout(execution.settings.run_timeout) as deadline:
            execution.stopped = await judge_stored(
                execution, execution.writer.evaluators, ids, seed=execution.settings.seed, again=again
            )
    except TimeoutError:
        if not deadline.expired():
            raise
        execution.stopped = RunTimedOut(
            f"judging took longer than the {execution.settings.run_timeout:g} s allowed; what was judged is kept, the "
            "same command goes on"
        )
    finally:
        await execution.commits.drain()
        if execution.progress is not None:
            execution.progress.close()
    evaluators = execution.writer.evaluators
    walls = sandboxes_of(record.manifest, [each.evaluator for each in evaluators])
    manifest = judged_again(record.manifest, evaluators, walls, at=execution.clock.now())
    await execution.in_database(execution.writer.manifest, manifest)
    await execution.in_database(execution.writer.recount)
    systems = {
        name: {"judge_failed": count.judge_failed, "cost": count.cost}
        for name, count in execution.statistics.counts.items()
    }
    return Executed(
        record.id, record.name, execution.stopped is None, {"answers": len(ids), "systems": systems}, execution.stopped
    )


Reuse = Literal["none", "run", "all"]
_ASK_EVERY = 500  # rows, then the tap is asked for requests that came late


class Runner(Execution):
    """One execution of one run, from its first example to its end.

    Its loop is `_worker`. A worker takes the next batch from the schedule, which has examples planned as they are
    needed. The executor has each unit answered and judged. The outcome goes to the group commit; when it is durable,
    `committed` tells the schedule, which may set units free that waited for it. Groups of a stateful arm go through
    `IsolatedGroups`, which does the same on an instance of their own.
    """

    to_go_on = False

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
        self.statistics.planned = self.schedule
        self.groups = IsolatedGroups(self, self.committed, self.stop)
        self.open()
        if self.progress is not None:
            self.progress.start(
                [arm.name for arm in self.writer.arms], None if total is None else total * self.settings.trials
            )
            for note in self.notes:
                self.progress.note(note)
        status = INTERRUPTED
        try:
            async with heartbeat(lambda: self.in_database(self.writer.beat)), heartbeat(self._keep_load_log, EVERY):
                status = await self._work()
        finally:
            executed = await self._end(status)
        return executed

    async def _work(self) -> str:
        """All workers, under the run's deadline; returns the status the run ends with."""
        try:
            async with asyncio.timeout(self.settings.run_timeout) as deadline:
                await self.executor.start(self.worker_context, self.workers, self.notice)
                await self._workers()
                await self._judge_afterwards()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped = RunTimedOut(
                f"the run took longer than the {self.settings.run_timeout:g} s allowed; the same run name goes on "
                "with it"
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
        tasks = [
            asyncio.create_task(self._worker(number), name=f"context-bench-worker-{number}")
            for number in range(self.workers)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _worker(self, number: int) -> None:
        thread = WorkerThread(f"context-bench-system-{number}")
        try:
            while (job := await self.schedule.next()) is not None:
                self.commits.enter()
                try:
                    await self._do(job, thread)
                finally:
                    self.commits.leave()
                    self.schedule.done(job)
        finally:
            thread.close()

    async def _do(self, job: Batch, thread: WorkerThread) -> None:
        arm = self.worker_context.arms[job.arm]
        if arm.stateful and not all(unit.done for unit in job.units):
            await self.groups.do(arm, job, thread)
            return
        for unit in job.units:
            outcome = await self._rescored(unit, thread) if unit.done else await self.executor.perform(unit, thread)
            if not await self.committed(outcome):
                return

    async def _keep_load_log(self) -> None:
        if self.load_log is not None:
            await self.load_log.keep()

    async def committed(self, outcome: WorkOutcome, *, known: bool = False) -> bool:
        """Keep an outcome; False if it ended the run. `known`: it stands in for one that was counted before."""
        if outcome.ran and self.load_log is not None:
            await self.load_log.rows_are_made()
        await self.commits.put(outcome)
        if not known:
            self.statistics.note(outcome)
        if outcome.stop is not None:
            self.stop(outcome.stop)
            return False
        if not known:
            await self.schedule.finished(outcome)
        if self.recorder is not None and self.statistics.ran % _ASK_EVERY == 0:
            try:
                await self.statistics.collect_late(self.recorder)
            except Failed as error:
                raise tap_lost(error) from error
        return True

    def stop(self, stop: Stop) -> None:
        """End the run early."""
        self.stopped = self.stopped or stop
        self.schedule.stop()

    async def _rescored(self, unit: Any, thread: WorkerThread) -> WorkOutcome:
        """Only the scores that are missing of an answer in the store."""
        outcome = WorkOutcome(unit, ran=False)
        outcome.output = await self.in_database(self.writer.stored_output, unit.output)
        missing = [scorer for scorer in self.worker_context.scorers if scorer.planned.id not in unit.scored]
        await self.executor.judge(outcome, missing, thread)
        return outcome

    # --- evaluators that judge when everything is answered ---

    async def _judge_afterwards(self) -> None:
        late = [each for each in self.writer.evaluators if each.after]
        if not late or self.stopped is not None or not self.schedule.complete:
            return
        stop = await judge_stored(
            self,
            late,
            await self.in_database(stored_ids, self.writer.store, self.writer.run.number),
            seed=self.settings.seed,
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
                    await self.statistics.collect_late(self.recorder)
                except Failed as error:  # every row is kept; what came late is not known
                    self.stopped = self.stopped or tap_lost(error)
                    status = STOPPED
            counts = self.statistics.totals(self.schedule.tally, self.notes, interrupted=self.interrupted)
            await self._keep_load_log()
            await self.in_database(self.writer.end, INTERRUPTED if status == DONE and self.to_go_on else status, counts)
        finally:
            if self.progress is not None:
                self.progress.close()
        run = self.writer.run
        return Executed(
            run.id,
            run.name,
            status == DONE,
            counts,
            self.stopped,
            self.schedule.tally.examples,
            self.schedule.exhausted,
        )


async def execute(
    store: Store,
    *,
    name: str | None,
    arms: Sequence[Arm],
    examples: Iterable[Example],
    evaluators: Sequence[Any],
    manifest: dict[str, Any],
    settings: RunSettings,
    recorder: Recorder | None = None,
    spend: Spend | None = None,
    progress: Progress | None = None,
    reuse: Reuse = "run",
    clock: Clock = SYSTEM_CLOCK,
    total: int | None = None,
    executor: Executor | None = None,
    limits: Limits | None = None,
    overhead: list[Call] | None = None,
    to_go_on: bool = False,
    remark: Remark | None = None,
) -> Executed:
    """Have every arm answer every example in every trial, judge the answers, and keep it all in `store`.

    `name`: the same name again goes on where it stopped and does only what is new, changed or failed; `BadInput` where
    the stored run is of another kind, or has no system or no data in common. `None` goes on with the latest unfinished
    run of the same content, or begins one. `reuse`: "none" always begins anew, "all" also takes answers of other runs
    with equal content.
    `examples` may be endless in principle: they are read as needed and never all held. `total`: how many there are, for
    progress. `executor`: where the work is done, default in this process. `limits`: tells what changed about how much
    each endpoint is asked; it is kept with the run as it goes on. `overhead`: attempts that are made for the run and
    for none of its rows, before it begins or while its examples are made; they are written down, and taken out of the
    list, before examples are worked on. `to_go_on`: these are the first examples of a run that more may follow, so it
    is not called done. `remark`: title and tags of the run, which change nothing of it.

    A failure of a system or evaluator is an error in its row; the run goes on. Cancelling (Ctrl-C) ends the run as
    interrupted: what was finished is committed, and `Executed.completed` is false. Raises `Stop` for what cannot begin,
    `StoreUnusable` when the store fails.
    """
    settings.check()
    secrets = secrets_of([*(arm.system for arm in arms), *evaluators])
    planned, judges = planned_arms(arms, secrets), planned_evaluators(evaluators, secrets)
    if settings.bodies == "none" and any(each.after for each in judges):
        raise BadInput("an evaluator that judges after the run needs the examples; bodies='none' keeps none")
    paid = [] if overhead is None else overhead
    writer = Writer(store, clock, secrets, reuse, settings.bodies, planned, judges, settings.trials, paid)
    runner = Runner(writer, settings, recorder, spend, progress, clock, executor)
    runner.to_go_on = to_go_on
    about: dict[str, Any] = {"seed": settings.seed, "trials": settings.trials, "text_fields": settings.text_fields}
    if (looks := planned_looks(manifest)) is not None:
        about["looks"] = looks
    identity = identity_of(planned, judges, about, manifest.get("datasets"))
    async with runner.threads():
        await runner.in_database(load_tokenizers, planned)
        source = await runner.in_database(source_key, examples, planned, program())
        wanted = WantedRun(name, identity, manifest, [arm.name for arm in planned])
        begun = await runner.in_database(writer.begin, wanted, source)
        if remark is not None:
            from context_bench.engine.store.remarks import label_run

            await runner.in_database(label_run, store, begun.id, remark)
        await runner.in_database(writer.book)
        manifest = continued(secrets.value(described(manifest, planned, judges, settings, recorder)), begun.before)
        if secrets.notes:
            manifest["notes"] = list(dict.fromkeys([*manifest.get("notes", []), *secrets.notes]))
        await runner.in_database(writer.manifest, manifest)
        runner.load_log = LoadLog(
            manifest, limits, lambda changed: runner.in_database(writer.manifest, changed), evaluators
        )
        replies = StoredReplies(store, secrets, clock=clock, with_calls=True)
        with rare_collections(), caching_replies(replies, evaluators if reuse != "none" else []):
            return await runner.run(examples, _how_many(examples) if total is None else total)


def _how_many(examples: Iterable[Example]) -> int | None:
    return len(examples) if isinstance(examples, Sequence) else None


async def rescore(
    store: Store,
    run: str,
    evaluators: Sequence[Any],
    *,
    settings: RunSettings | None = None,
    spend: Spend | None = None,
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
    again: bool = False,
    overhead: list[Call] | None = None,
) -> Executed:
    """Judge the stored answers of a run (id or name) with `evaluators`; no system is called.

    Scores of evaluators with other names stay; one of the same name and another version or configuration takes the old
    one's place. What was judged by exactly this evaluator is left as it is, unless `again`; then judges are asked
    afresh, too. `overhead`: as in `execute`. Raises `BadInput` if
    the run kept no examples.
    """
    record = run_of(store, run)
    chosen = settings or RunSettings(max_workers=1)
    secrets = secrets_of(evaluators)
    judges = planned_evaluators(evaluators, secrets)
    arms = [PlannedArm(Arm(_Named(name)), "", {}) for name in record.systems]
    writer = Writer(
        store, clock, secrets, "run", chosen.bodies, arms, judges, overhead=[] if overhead is None else overhead
    )
    execution = Execution(writer, chosen, None, spend, progress, clock)
    with caching_replies(StoredReplies(store, secrets, clock=clock, with_calls=True), [] if again else evaluators):
        async with execution.threads():
            await execution.in_database(writer.take_up, record.number, record.id, record.name)
            await execution.in_database(writer.book)
            return await judge_only(execution, record, again)


@dataclass(frozen=True, slots=True)
class _Named:
    """Stands for a system of a stored run, of which only the name is needed."""

    name: str
