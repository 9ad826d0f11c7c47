"""One execution: its shared parts, its threads and workers, its load log, and the isolated instances of stateful arms.

The writer and its thread, the settings, the statistics and the workers' context are handed to every part. An `Executor`
does the work: `Local` in this process, with each worker's own thread for what blocks. The load log is kept with the run
while rows are made, so that nothing that ends the run loses it. Each group of a stateful arm gets an instance of its
own, set up once before its first question.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from context_bench.core import protocols as calling
from context_bench.core.errors import Stop, describe
from context_bench.core.keys import hash_bytes
from context_bench.core.machine import Clock
from context_bench.core.protocols import Recorder, Spend
from context_bench.core.tokens import counter_for
from context_bench.engine.commit import GroupCommit, OneThread, RunStatistics, Waiting, enough_descriptors
from context_bench.engine.encoding import dumps
from context_bench.engine.observe import TEXT_FIELDS
from context_bench.engine.plan import Batch, PlannedArm, RunSettings, SetUp, WorkItem, WorkOutcome
from context_bench.engine.progress import Progress
from context_bench.engine.scoring import Scorer
from context_bench.engine.store.run_writer import Writer
from context_bench.engine.work import (
    WorkerContext,
    WorkerThread,
    judge,
    leave_behind,
    perform,
    refused,
    set_up,
    setup_failed,
)


class NodeLost(Exception):
    """The node that kept a group's state is gone: the group begins anew elsewhere. Never leaves the engine."""


class Raised(Exception):
    """A system raised something; the text describes it. Never leaves the engine."""


@dataclass(frozen=True, slots=True)
class IsolatedInstance:
    """A system of its own for one group. `system`: it, or how the executor knows it; `sets_up`: it offers a set-up;
    `own`: to be closed.
    """

    system: Any
    sets_up: bool
    own: bool


class Executor(Protocol):
    """Does the work of a run. Calls after `start` and before `end` may overlap; what is cancelled leaves its calls to
    the bench.
    """

    async def start(self, worker_context: WorkerContext, workers: int, notice: Callable[[str], None]) -> None:
        """Get ready for at most `workers` pieces of work at once; `notice` tells the user what happened to the executor
        itself.
        """

    def perform(
        self, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance | None = None
    ) -> Awaitable[WorkOutcome]:
        """See `work.perform`. Raises `NodeLost` when the instance is lost."""

    def judge(self, outcome: WorkOutcome, scorers: Sequence[Scorer], thread: WorkerThread) -> Awaitable[None]:
        """See `work.judge`."""

    async def isolate(self, arm: int, name: str, thread: WorkerThread) -> IsolatedInstance:
        """The arm's system for one group, see `isolated_instance`. Raises `Raised`, and the `Stop` that the system
        raised.
        """

    def set_up(self, setup: SetUp, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance) -> Awaitable[None]:
        """See `work.set_up`."""

    async def close(self, instance: IsolatedInstance, thread: WorkerThread) -> None:
        """Close an instance. Raises `Raised`."""

    async def end(self) -> None:
        """Everything is done or given up."""


class Local:
    """Everything in this process, with each worker's own thread for what blocks."""

    async def start(self, worker_context: WorkerContext, workers: int, notice: Callable[[str], None]) -> None:
        self._worker_context = worker_context

    def perform(
        self, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance | None = None
    ) -> Awaitable[WorkOutcome]:
        return perform(self._worker_context, unit, thread, None if instance is None else instance.system)

    def judge(self, outcome: WorkOutcome, scorers: Sequence[Scorer], thread: WorkerThread) -> Awaitable[None]:
        return judged(self._worker_context, outcome, scorers, thread)

    async def isolate(self, arm: int, name: str, thread: WorkerThread) -> IsolatedInstance:
        with _described():
            return await isolated_instance(self._worker_context.arms[arm], name, thread)

    def set_up(self, setup: SetUp, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance) -> Awaitable[None]:
        return set_up(self._worker_context, setup, unit, thread, instance.system)

    async def close(self, instance: IsolatedInstance, thread: WorkerThread) -> None:
        with _described():
            await close_instance(instance, thread)

    async def end(self) -> None:
        """Nothing to take down."""


async def judged(
    worker_context: WorkerContext, outcome: WorkOutcome, scorers: Sequence[Scorer], thread: WorkerThread
) -> None:
    """`judge` for a stored answer: when it is cancelled, its calls stay in the books."""
    try:
        await judge(worker_context, outcome, scorers, thread)
    except asyncio.CancelledError:
        leave_behind(worker_context, outcome)
        raise


@contextmanager
def _described() -> Iterator[None]:
    try:
        yield
    except Stop:
        raise
    except Exception as error:
        raise Raised(describe(error)) from error


async def isolated_instance(arm: PlannedArm, name: str, thread: WorkerThread) -> IsolatedInstance:
    """The system for one group: an isolated instance of that name if it can have one, else itself after `reset()`, else
    as it is.
    """
    system = arm.system
    make = calling.method(system, "namespace")
    if make is not None:
        system = await calling.call(make, name, pool=thread.pool)
    elif (reset := calling.method(system, "reset")) is not None:
        await calling.call(reset, pool=thread.pool)
    return IsolatedInstance(system, offers_set_up(system), system is not arm.system)


async def close_instance(instance: IsolatedInstance, thread: WorkerThread) -> None:
    """Let an instance close what it has open, if it can."""
    close = calling.method(instance.system, "aclose", "close")
    if instance.own and close is not None:
        await calling.call(close, pool=thread.pool)


def offers_set_up(system: Any) -> bool:
    """True if groups are set up before their questions are asked."""
    return calling.method(system, "asetup", "setup") is not None


def load_tokenizers(arms: Sequence[PlannedArm]) -> None:
    """Load the vocabularies that tokens will be counted with, so that no row's latency pays for it. Answers that are
    played back have the latency that was recorded, and mostly their counts too.
    """
    for arm in (arm for arm in arms if not arm.played_back):
        named = (getattr(system, "model", None) for system in (arm.system, getattr(arm.system, "inner", None)))
        counter_for(next((model for model in named if isinstance(model, str)), None)).count("ready")


#: What changed about each endpoint's limit so far: endpoint → `[at, limit, reason]`.
Limits = Callable[[], Mapping[str, Sequence[Sequence[Any]]]]

#: Seconds between two looks at what changed; what a `kill -9` can lose.
EVERY = 2.0


def sandboxes_of(manifest: Mapping[str, Any], evaluators: Sequence[Any]) -> list[str]:
    """The sentences in a manifest on what stood around code that evaluators ran, and what these say of themselves by
    now.
    """
    said = [calling.method(evaluator, "walls") for evaluator in evaluators]
    now = [str(walls()) for walls in said if walls is not None and walls()]
    return list(dict.fromkeys([*(manifest.get("walls") or []), *now]))


class LoadLog:
    """The part of a run's manifest that is only known while it goes on, see `core.rows`.

    `manifest`: as it was when this execution began, that of earlier ones in it. `limits`: what changed in this one.
    `write` puts a manifest into the store. `evaluators`: those of the run, which may say what stands around the code
    they run.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        limits: Limits | None,
        write: Callable[[dict[str, Any]], Awaitable[object]],
        evaluators: Sequence[Any] = (),
    ) -> None:
        self._manifest, self._limits, self._write, self._evaluators = manifest, limits, write, evaluators
        self._before = list(manifest.get("limits") or [])
        self._written = ""  # digest of the changes that are in the store: they are thousands in a run of a day
        self._loaded = "load" not in manifest or manifest["load"] in (manifest.get("loads") or [])

    async def rows_are_made(self) -> None:
        """Before the first row of this execution counts: its load is one of those that the run's rows were made
        under.
        """
        if not self._loaded:
            self._loaded = True  # at once: other workers' rows are written after this
            self._manifest = {**self._manifest, "loads": [*(self._manifest.get("loads") or []), self._manifest["load"]]}
            await self._put(self._changes())

    async def keep(self) -> None:
        """Write down what changed since it was last written."""
        walls = sandboxes_of(self._manifest, self._evaluators)
        changes = self._changes()
        if walls != (self._manifest.get("walls") or []):
            self._manifest = {**self._manifest, "walls": walls}
        elif not changes or hash_bytes(dumps(changes)) == self._written:
            return
        await self._put(changes)

    def _changes(self) -> Mapping[str, Sequence[Sequence[Any]]]:
        return self._limits() if self._limits is not None else {}

    async def _put(self, changes: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Write the manifest with what changed about limits, which is not held here."""
        told = {"limits": [*self._before, changes]} if changes else {}
        await self._write({**self._manifest, **told})
        self._written = hash_bytes(dumps(changes))


class Execution:
    """One execution of one run, or of judging one."""

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
        self.notes += writer.secrets.notes
        self.stopped: Stop | None = None
        self.interrupted = False
        self.statistics = RunStatistics(writer, self.in_database, progress, clock)
        self.load_log: LoadLog | None = None  # nor changes anything about endpoints then

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

    def open(self) -> None:
        """Make what all workers share."""
        self.commits = GroupCommit(self.writer.commit, self.database)
        self.worker_context = WorkerContext(
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
            waiting=None if self.progress is None else Waiting(self.progress.note, self.clock.monotonic),
        )

    def notice(self, said: str) -> None:
        """Something about the run itself, for who watches and for the record."""
        self.notes.append(said)
        if self.progress is not None:
            self.progress.note(said)


class IsolatedGroups:
    """Does the groups of one execution. `committed` keeps an outcome and tells whether the run goes on, `stop` ends
    it.
    """

    def __init__(
        self, execution: Execution, committed: Callable[..., Awaitable[bool]], stop: Callable[[Stop], None]
    ) -> None:
        self.execution, self.committed, self.stop = execution, committed, stop
        self.stamp = uuid4().hex[
            :6
        ]  # of this execution: an instance's name is never used twice, whatever became of an earlier process

    async def do(self, arm: PlannedArm, job: Batch, thread: WorkerThread) -> None:
        """A group of a stateful arm, from its beginning; where its state is lost with a node, all of it again."""
        kept: set[int] = set()
        for attempt in itertools.count():
            try:
                await self._try(arm, job, thread, f"-{attempt}" if attempt else "", kept)
                return
            except NodeLost:
                continue

    async def _try(self, arm: PlannedArm, job: Batch, thread: WorkerThread, again: str, kept: set[int]) -> None:
        """A group on its own instance, which is set up once, its units in order."""
        run, first = self.execution.writer.run.id, job.units[0]
        name = f"{run}-{arm.number}-{first.position}-{first.trial}-{self.stamp}{again}"
        instance, failure = None, None
        try:
            instance = await self.execution.executor.isolate(job.arm, name, thread)
        except Raised as error:
            failure = setup_failed(str(error))
        try:
            setup = await self._set_up(arm, job, thread, instance, failure)
            if setup is not None and setup.stop is not None:
                self.stop(setup.stop)
                return
            failure = failure if setup is None else setup.error
            for unit in job.units:
                outcome = (
                    refused(self.execution.worker_context, unit, failure)
                    if failure
                    else await self.execution.executor.perform(unit, thread, instance)
                )
                if setup is not None:
                    outcome.setup = setup.id
                    outcome.metadata["setup"] = setup.number
                if not await self.committed(outcome, known=unit.position in kept):
                    return
                kept.add(unit.position)
                unit.output, unit.takes = outcome.id, unit.takes + 1
        finally:
            if instance is not None and instance.own:
                await self._close(arm, instance, thread)

    async def _close(self, arm: PlannedArm, instance: IsolatedInstance, thread: WorkerThread) -> None:
        """Close an instance; one that cannot be closed has given its answers all the same."""
        try:
            await self.execution.executor.close(instance, thread)
        except Raised as error:
            said = f"{arm.name}: what was made for a group could not be closed: {error}"
            if said not in self.execution.notes:
                self.execution.notice(said)

    async def _set_up(
        self, arm: PlannedArm, job: Batch, thread: WorkerThread, instance: IsolatedInstance | None, failure: str | None
    ) -> SetUp | None:
        """Have the group set up by a system that offers it, and keep the record of that before any row. `failure`: it
        has no instance.
        """
        if arm.played_back or not (offers_set_up(arm.system) if instance is None else instance.sets_up):
            return None
        unit = job.units[0]
        setup = SetUp(job.arm, unit.trial, unit.group, unit.position, job.number)
        await self.execution.in_database(self.execution.writer.begin_setup, setup)
        self.execution.statistics.show(arm, setup, begun=True)
        self.execution.commits.leave()  # others need not wait with their rows for this one
        try:
            if instance is not None:
                await self.execution.executor.set_up(setup, unit, thread, instance)
            else:
                setup.error, setup.seconds = failure, 0.0
        except asyncio.CancelledError:
            setup.error = "Interrupted: the run ended while the group was being set up"
            raise
        finally:
            self.execution.commits.enter()
            self.execution.statistics.show(arm, setup, begun=False)
            if setup.seconds is not None:
                await self.execution.in_database(self.execution.writer.end_setup, setup)
                self.execution.statistics.note_setup(setup)
        return setup
