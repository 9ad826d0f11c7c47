"""`execute`: plan, work, commit, until all that is owed is done. `rescore`: judge stored answers again."""

from __future__ import annotations

import asyncio
import itertools
import random
from array import array
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from context_bench.core import calling
from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput, Failed, RunTimedOut, Stop
from context_bench.core.protocols import Recorder, Spend
from context_bench.core.records import Example, Forwarded
from context_bench.engine.alive import signs_of_life
from context_bench.engine.circumstances import EVERY, Circumstances, Limits
from context_bench.engine.collecting import rare_collections
from context_bench.engine.commit import GroupCommit
from context_bench.engine.executors.local import Executor, Local, NodeLost, Raised, Twin, judged, load_tokenizers, offers_set_up
from context_bench.engine.limits import enough_descriptors
from context_bench.engine.manifest import blinding, continued, described
from context_bench.engine.observe import with_late
from context_bench.engine.plan import (
    Arm,
    Job,
    Outcome,
    PlannedArm,
    PlannedEvaluator,
    RunSettings,
    SetUp,
    Unit,
    planned_arms,
    planned_evaluators,
)
from context_bench.engine.progress import Progress, Step
from context_bench.engine.schedule import Schedule
from context_bench.engine.scoring import Scorer
from context_bench.engine.secrets import secrets_of
from context_bench.engine.store.reading import Stored, stored_by_id, stored_ids
from context_bench.engine.store.replies import StoredReplies, remembering
from context_bench.engine.store.store import DONE, INTERRUPTED, STOPPED, RunRecord, Store, run_of
from context_bench.engine.store.writing import Writer, identity_of
from context_bench.engine.threads import OneThread
from context_bench.engine.work import TEXT_FIELDS, Bench, Hand, refused, setup_failed, tap_lost

Reuse = Literal["none", "run", "all"]


@dataclass(slots=True)
class Executed:
    """How a run went.

    `completed`: everything owed was tried. `stopped`: what ended it early (cost cap, run deadline, a source that broke), `None` also when
    it was interrupted. `planned`: all examples were read, so that what is owed is known. `counts`: `owed`, `done`, `failed`, `reused`,
    `reused_age` (seconds since the oldest reused row was made),
    `restarted` (groups done again), `set_up_again` (groups set up once more), `unmatched`, `seconds` (wall), `interrupted`, and by system
    `systems[name]` = `done`, `failed`, `judge_failed`, `reused`, `seconds` (of work), `cost`, and where it has set-ups `setups`,
    `setups_failed`. Rows done here, not earlier.
    """

    run_id: str
    name: str
    completed: bool
    counts: dict[str, Any] = field(default_factory=dict)
    stopped: Stop | None = None
    examples: int = 0
    planned: bool = True


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
) -> Executed:
    """Have every arm answer every example in every trial, judge the answers, and keep it all in `store`.

    `name`: the same name again goes on where it stopped and does only what is new, changed or failed; `None` goes on with the latest
    unfinished run of the same content, or begins one. `reuse`: "none" always begins anew, "all" also takes answers of other runs with
    equal content.
    `examples` may be endless in principle: they are read as needed and never all held. `total`: how many there are, for progress.
    `executor`: where the work is done, default in this process. `limits`: tells what changed about how much each endpoint is asked; it is
    kept with the run as it goes on.

    A failure of a system or evaluator is an error in its row; the run goes on. Cancelling (Ctrl-C) ends the run as interrupted: what was
    finished is committed, and `Executed.completed` is false. Raises `Stop` for what cannot begin, `StoreUnusable` when the store fails.
    """
    settings.check()
    secrets = secrets_of([*(arm.system for arm in arms), *evaluators])
    planned, judges = planned_arms(arms, secrets), planned_evaluators(evaluators, secrets)
    if settings.bodies == "none" and any(each.after for each in judges):
        raise BadInput("an evaluator that judges after the run needs the examples; bodies='none' keeps none")
    writer = Writer(store, clock, secrets, reuse, settings.bodies, planned, judges, settings.trials)
    runner = _Runner(writer, settings, recorder, spend, progress, clock, executor)
    about = {"seed": settings.seed, "trials": settings.trials, "text_fields": settings.text_fields}
    identity = identity_of(planned, judges, about, manifest.get("datasets"))
    async with runner.threads():
        await runner.in_database(load_tokenizers, planned)
        begun = await runner.in_database(writer.begin, name, identity)
        told = secrets.value(described(manifest, planned, judges, settings, recorder))
        told = continued(told, begun.before)
        await runner.in_database(writer.manifest, told)
        runner.circumstances = Circumstances(told, limits, lambda manifest: runner.in_database(writer.manifest, manifest))
        replies = StoredReplies(store, secrets, clock=clock, with_calls=True)
        with rare_collections(), remembering(replies, evaluators if reuse != "none" else []):
            return await runner.run(examples, _how_many(examples) if total is None else total)


def _how_many(examples: Iterable[Example]) -> int | None:
    return len(examples) if isinstance(examples, Sequence) else None


#: After this many rows the tap is asked for requests that came late; rows remembered for them.
_ASK_EVERY, _REMEMBERED = 500, 2_000


@dataclass(slots=True)
class _SystemCount:
    done: int = 0
    failed: int = 0
    judge_failed: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    setups: int = 0
    setups_failed: int = 0


@dataclass(slots=True)
class _Row:
    """What is remembered of a finished row, or of a group's set-up, for requests that arrive late."""

    id: int
    wire: dict[str, Any] = field(default_factory=dict)
    tokens: int | None = None
    setup: bool = False


class _Runner:
    """One execution of one run."""

    def __init__(
        self,
        writer: Writer,
        settings: RunSettings,
        recorder: Recorder | None,
        spend: Spend | None,
        progress: Progress | None,
        clock: Clock,
        executor: Executor | None = None,
    ) -> None:
        self.executor = executor or Local()
        self.writer, self.settings, self.clock = writer, settings, clock
        self.recorder, self.progress = recorder, progress
        self.spend = spend
        # By time alone, requests can only be told apart when there is one at a time.
        asked = 1 if getattr(recorder, "marker", None) == "serial" else settings.max_workers or 1
        self.workers, self.notes = enough_descriptors(asked)
        self.counts = {arm.name: _SystemCount() for arm in writer.arms}
        self.stopped: Stop | None = None
        self.interrupted = False
        self.unmatched = 0
        self.set_up_again = 0
        self.owners: dict[str, _Row] = {}  # by mark
        self.ran = 0
        self.circumstances: Circumstances | None = None  # nor changes anything about endpoints then
        self.planned: Schedule | None = None  # nothing is planned where stored answers are judged
        self.shown_owed: tuple[int, int, bool] | None = None
        self.started = clock.monotonic()
        self.stamp = uuid4().hex[:6]  # of this execution: a twin's name is never used twice, whatever became of an earlier process

    @asynccontextmanager
    async def threads(self) -> AsyncIterator[None]:
        """The store's thread and the reader's, for as long as the run lasts."""
        self.reader = OneThread("context-bench-examples")
        with ThreadPoolExecutor(1, "context-bench-store") as self.database:
            try:
                yield
            finally:
                self.reader.shutdown(wait=False)
                self.writer.let_go()

    async def in_database(self, function: Any, *args: Any) -> Any:
        """Run `function` in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.database, function, *args)

    async def run(self, examples: Iterable[Example], total: int | None) -> Executed:
        """Work until everything is done or something ends it."""
        self.schedule = Schedule(
            examples,
            self.writer.arms,
            self.writer,
            trials=self.settings.trials,
            seed=self.settings.seed,
            tapped=self.recorder is not None,
            reader=self.reader,
            database=self.database,
        )
        self.planned = self.schedule
        self.commits = GroupCommit(self.writer.commit, self.database)
        self.bench = self._bench()
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

    def _bench(self) -> Bench:
        return Bench(
            run=self.writer.run.id,
            arms=self.writer.arms,
            scorers=[Scorer(each, self.settings.example_timeout) for each in self.writer.evaluators if not each.after],
            clock=self.clock,
            recorder=self.recorder,
            spend=self.spend,
            example_timeout=self.settings.example_timeout,
            text_fields=self.settings.text_fields or TEXT_FIELDS,
            setup_timeout=self.settings.setup_timeout,
            leave_behind=self.commits.leave_behind,
        )

    async def _work(self) -> str:
        """All workers, under the run's deadline; returns the status the run ends with."""
        try:
            async with asyncio.timeout(self.settings.run_timeout) as deadline:
                await self.executor.start(self.bench, self.workers, self._notice)
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
            await self._do_group(arm, job, hand)
            return
        for unit in job.units:
            outcome = await self._rescored(unit, hand) if unit.done else await self.executor.perform(unit, hand)
            if not await self._committed(outcome):
                return

    async def _keep_circumstances(self) -> None:
        if self.circumstances is not None:
            await self.circumstances.keep()

    async def _committed(self, outcome: Outcome, *, known: bool = False) -> bool:
        """Keep an outcome; False if it ended the run. `known`: it stands in for one that was counted before."""
        if outcome.ran and self.circumstances is not None:
            await self.circumstances.rows_are_made()
        await self.commits.put(outcome)
        if not known:
            self._note(outcome)
        if outcome.stop is not None:
            self._stop(outcome.stop)
            return False
        if not known:
            await self.schedule.finished(outcome)
        if self.recorder is not None and self.ran % _ASK_EVERY == 0:
            try:
                await self._collect_late(self.recorder)
            except Failed as error:
                raise tap_lost(error) from error
        return True

    def _notice(self, said: str) -> None:
        """Something about the run itself, for who watches and for the record."""
        self.notes.append(said)
        if self.progress is not None:
            self.progress.note(said)

    def _stop(self, stop: Stop) -> None:
        self.stopped = self.stopped or stop
        self.schedule.stop()

    async def _do_group(self, arm: PlannedArm, job: Job, hand: Hand) -> None:
        """A group of a stateful arm, from its beginning; where its state is lost with a node, all of it again."""
        kept: set[int] = set()
        for attempt in itertools.count():
            try:
                await self._try_group(arm, job, hand, f"-{attempt}" if attempt else "", kept)
                return
            except NodeLost:
                continue

    async def _try_group(self, arm: PlannedArm, job: Job, hand: Hand, again: str, kept: set[int]) -> None:
        """A group on its own twin, which is set up once, its units in order."""
        name = f"{self.writer.run.id}-{arm.number}-{job.units[0].position}-{job.units[0].trial}-{self.stamp}{again}"
        twin, failure = None, None
        try:
            twin = await self.executor.twin(job.arm, name, hand)
        except Raised as error:
            failure = setup_failed(str(error))
        try:
            setup = await self._set_up(arm, job, hand, twin, failure)
            if setup is not None and setup.stop is not None:
                self._stop(setup.stop)
                return
            failure = failure if setup is None else setup.error
            for unit in job.units:
                outcome = refused(self.bench, unit, failure) if failure else await self.executor.perform(unit, hand, twin)
                if setup is not None:
                    outcome.setup = setup.id
                    outcome.metadata["setup"] = setup.number
                if not await self._committed(outcome, known=unit.position in kept):
                    return
                kept.add(unit.position)
                unit.output, unit.takes = outcome.id, unit.takes + 1
        finally:
            if twin is not None and twin.own:
                await self._close(arm, twin, hand)

    async def _close(self, arm: PlannedArm, twin: Twin, hand: Hand) -> None:
        """Close a twin; one that cannot be closed has given its answers all the same."""
        try:
            await self.executor.close(twin, hand)
        except Raised as error:
            said = f"{arm.name}: what was made for a group could not be closed: {error}"
            if said not in self.notes:
                self._notice(said)

    # --- set-ups of groups ---

    async def _set_up(self, arm: PlannedArm, job: Job, hand: Hand, twin: Twin | None, failure: str | None) -> SetUp | None:
        """Have the group set up by a system that offers it, and keep the record of that before any row. `failure`: it has no twin."""
        if arm.played_back or not (offers_set_up(arm.system) if twin is None else twin.sets_up):
            return None
        unit = job.units[0]
        setup = SetUp(job.arm, unit.trial, unit.group, unit.position, job.number)
        await self.in_database(self.writer.begin_setup, setup)
        self._show(arm, setup, begun=True)
        self.commits.leave()  # others need not wait with their rows for this one
        try:
            if twin is not None:
                await self.executor.set_up(setup, unit, hand, twin)
            else:
                setup.error, setup.seconds = failure, 0.0
        except asyncio.CancelledError:
            setup.error = "Interrupted: the run ended while the group was being set up"
            raise
        finally:
            self.commits.enter()
            self._show(arm, setup, begun=False)
            if setup.seconds is not None:
                await self.in_database(self.writer.end_setup, setup)
                self._note_setup(setup)
        return setup

    def _note_setup(self, setup: SetUp) -> None:
        count = self.counts[self.bench.arms[setup.arm].name]
        count.setups += 1
        count.setups_failed += setup.error is not None
        count.cost += setup.usage.get("cost", 0.0)
        self.set_up_again += setup.attempt > 1
        if setup.mark is not None:
            self.owners[setup.mark] = _Row(setup.id, setup=True)

    def _show(self, arm: PlannedArm, setup: SetUp, *, begun: bool) -> None:
        """Tell who watches, if they want to know."""
        show = calling.method(self.progress, "setting_up")
        if show is not None:
            show(arm.name, setup.group, begun)

    async def _rescored(self, unit: Any, hand: Hand) -> Outcome:
        """Only the scores that are missing of an answer in the store."""
        outcome = Outcome(unit, ran=False)
        outcome.output = await self.in_database(self.writer.stored_output, unit.output)
        missing = [scorer for scorer in self.bench.scorers if scorer.planned.id not in unit.scored]
        await self.executor.judge(outcome, missing, hand)
        return outcome

    def _note(self, outcome: Outcome) -> None:
        """Count a committed outcome and show it."""
        count = self.counts[self.bench.arms[outcome.unit.arm].name]
        cost = outcome.usage.get("cost", 0.0) + sum(score.usage.get("cost", 0.0) for score in outcome.scores)
        count.cost += cost
        count.seconds += outcome.latency or 0.0
        count.judge_failed += any(score.error is not None for score in outcome.scores)
        if outcome.ran:
            count.done += 1
            count.failed += outcome.error is not None
            self.ran += 1
            if outcome.mark is not None and outcome.id is not None:
                self.owners[outcome.mark] = _Row(outcome.id, outcome.wire, outcome.output_tokens)
        if self.progress is not None:
            name = self.bench.arms[outcome.unit.arm].name
            tokens = None if outcome.input_tokens is None else (outcome.input_tokens, outcome.output_tokens)
            self._show_owed()
            self.progress.advance(Step(name, failed=outcome.error is not None, tokens=tokens, cost=cost, latency=outcome.latency))

    def _show_owed(self) -> None:
        """Tell who watches how much there is to do, whenever planning has found out more, if they want to know."""
        if self.planned is None:
            return
        tally, exhausted = self.planned.tally, self.planned.exhausted
        if (tally.owed, tally.reused, exhausted) == self.shown_owed:
            return
        self.shown_owed = (tally.owed, tally.reused, exhausted)
        show = calling.method(self.progress, "owing")
        if show is not None:
            for index, arm in enumerate(self.bench.arms):
                show(arm.name, tally.owed_by_arm.get(index, 0) if exhausted else None, tally.reused_by_arm.get(index, 0))

    # --- evaluators that judge when everything is answered ---

    async def _judge_afterwards(self) -> None:
        late = [each for each in self.writer.evaluators if each.after]
        if not late or self.stopped is not None or not self.schedule.complete:
            return
        stop = await _judge_stored(
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
                    await self._collect_late(self.recorder)
                except Failed as error:  # every row is kept; what came late is not known
                    self.stopped = self.stopped or tap_lost(error)
                    status = STOPPED
            counts = self._counts()
            await self._keep_circumstances()
            await self.in_database(self.writer.end, status, counts)
        finally:
            if self.progress is not None:
                self.progress.close()
        run = self.writer.run
        return Executed(run.id, run.name, status == DONE, counts, self.stopped, self.schedule.tally.examples, self.schedule.exhausted)

    def _counts(self) -> dict[str, Any]:
        tally = self.schedule.tally
        reused = {self.bench.arms[index].name: count for index, count in tally.reused_by_arm.items()}
        systems = {
            name: {
                "done": count.done,
                "failed": count.failed,
                "judge_failed": count.judge_failed,
                "reused": reused.get(name, 0),
                "seconds": round(count.seconds, 6),
                "cost": count.cost,
                **({"setups": count.setups, "setups_failed": count.setups_failed} if count.setups else {}),
            }
            for name, count in self.counts.items()
        }
        return {
            "owed": tally.owed,
            "done": sum(count.done for count in self.counts.values()),
            "failed": sum(count.failed for count in self.counts.values()),
            "reused": tally.reused,
            "reused_age": None if tally.oldest is None else max(0.0, self.clock.now() - tally.oldest),
            "restarted": tally.restarted,
            "set_up_again": self.set_up_again,
            "unmatched": self.unmatched,
            "seconds": round(self.clock.monotonic() - self.started, 6),
            "interrupted": self.interrupted,
            "notes": self.notes,
            "systems": systems,
        }

    async def _collect_late(self, recorder: Recorder) -> None:
        """Requests that a proxy sent on after the row was closed join their row; what nobody can be named for is kept apart."""
        late: dict[str, list[Forwarded]] = {}
        lost: list[Forwarded] = []
        for record in await recorder.late():
            if record.mark in self.owners:
                late.setdefault(str(record.mark), []).append(record)
            else:
                lost.append(record)
        for mark, records in late.items():
            row = self.owners[mark]
            if row.setup:
                await self.in_database(self.writer.join_late_to_setup, row.id, records)
                continue
            row.wire, row.tokens = with_late(row.wire, row.tokens, records)
            await self.in_database(self.writer.join_late, row.id, records, row.wire, row.tokens)
        lost += await recorder.unmatched()
        self.unmatched += len(lost)
        if lost:
            await self.in_database(self.writer.unmatched, lost)
        for mark in list(self.owners)[:-_REMEMBERED]:
            del self.owners[mark]

    # --- judging only ---

    async def judge_only(self, record: RunRecord, again: bool) -> Executed:
        """Let the writer's evaluators judge the stored answers of a run."""
        self.commits = GroupCommit(self.writer.commit, self.database)
        self.bench = self._bench()
        ids = await self.in_database(stored_ids, self.writer.store, record.number)
        if self.progress is not None:
            self.progress.start(record.systems, None)
        try:
            async with asyncio.timeout(self.settings.run_timeout) as deadline:
                self.stopped = await _judge_stored(self, self.writer.evaluators, ids, seed=self.settings.seed, again=again)
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped = RunTimedOut(
                f"judging took longer than the {self.settings.run_timeout:g} s allowed; what was judged is kept, the same command goes on"
            )
        finally:
            await self.commits.drain()
            if self.progress is not None:
                self.progress.close()
        judged = [each.name for each in self.writer.evaluators]
        before = record.manifest.get("rescored", [])
        late = {each.name: each.fingerprint for each in self.writer.evaluators if each.after}
        now = {"at": self.clock.now(), "evaluators": judged} | ({"fingerprints": late} if late else {})
        sealed = {"blinding": blinding(record.manifest)} if late else {}
        told = {**record.manifest, **sealed, "rescored": [*before, now]}
        for known in ("judge_calibration", "judge_audit"):
            if late and (told.get(known) or {}).get("judge") not in late.values():
                told.pop(known, None)  # it was about another judge
        await self.in_database(self.writer.manifest, told)
        await self.in_database(self.writer.recount)
        systems = {name: {"judge_failed": count.judge_failed, "cost": count.cost} for name, count in self.counts.items()}
        return Executed(record.id, record.name, self.stopped is None, {"answers": len(ids), "systems": systems}, self.stopped)


# --- judging stored answers ------------------------------------------------------------------------------------------------


async def _judge_stored(
    runner: _Runner, judges: Sequence[PlannedEvaluator], ids: array[int], *, seed: int, again: bool = False
) -> Stop | None:
    """Let `judges` see the stored outputs with these ids, in seeded order; those judged before are left out unless `again`."""
    random.Random(seed).shuffle(ids)
    scorers = [Scorer(each, runner.settings.example_timeout) for each in judges]
    places = iter(range(0, len(ids), 32))
    stops: list[Stop] = []

    async def worker(number: int) -> None:
        hand = Hand(f"context-bench-judge-{number}")
        try:
            for start in places:
                chunk: list[Stored] = await runner.in_database(
                    stored_by_id, runner.writer.store, runner.writer.run.number, list(ids[start : start + 32])
                )
                for item in chunk:
                    if stops:
                        return
                    stop = await _judge_one(runner, item, scorers, hand, again)
                    if stop is not None:
                        stops.append(stop)
        finally:
            hand.close()

    tasks = [asyncio.create_task(worker(number)) for number in range(min(runner.workers, max(1, len(ids))))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return stops[0] if stops else None


async def _judge_one(runner: _Runner, item: Stored, scorers: Sequence[Scorer], hand: Hand, again: bool) -> Stop | None:
    missing = [scorer for scorer in scorers if again or scorer.planned.id not in item.scored]
    if not missing or item.row.failed:
        return None
    if item.example is None:
        raise BadInput("this run was made with bodies='none', so its examples are not in the store and its answers cannot be judged again")
    arm = next(index for index, each in enumerate(runner.bench.arms) if each.name == item.system)
    unit = Unit(arm, item.position, item.row.trial, item.example, "", 0, b"", output=item.id, done=True)
    outcome = Outcome(unit, ran=False, output=item.output)
    runner.commits.enter()
    try:
        await judged(runner.bench, outcome, missing, hand)
        await runner.commits.put(outcome)
    finally:
        runner.commits.leave()
    runner._note(outcome)
    return outcome.stop


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
) -> Executed:
    """Judge the stored answers of a run (id or name) with `evaluators`; no system is called.

    Scores of evaluators with other names stay; one of the same name and another version or configuration takes the old one's place.
    What was judged by exactly this evaluator is left as it is, unless `again`; then judges are asked afresh, too. Raises `BadInput` if
    the run kept no examples.
    """
    record = run_of(store, run)
    chosen = settings or RunSettings(max_workers=1)
    secrets = secrets_of(evaluators)
    judges = planned_evaluators(evaluators, secrets)
    arms = [PlannedArm(Arm(_Named(name)), "", {}) for name in record.systems]
    writer = Writer(store, clock, secrets, "run", chosen.bodies, arms, judges)
    runner = _Runner(writer, chosen, None, spend, progress, clock)
    with remembering(StoredReplies(store, secrets, clock=clock, with_calls=True), [] if again else evaluators):
        async with runner.threads():
            await runner.in_database(writer.take_up, record.number, record.id, record.name)
            return await runner.judge_only(record, again)


@dataclass(frozen=True, slots=True)
class _Named:
    """Stands for a system of a stored run, of which only the name is needed."""

    name: str
