"""The protocol of executors, and the one that does everything in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from context_bench.core import calling
from context_bench.core.errors import Stop, describe
from context_bench.core.tokens import counter_for
from context_bench.engine.plan import Outcome, PlannedArm, SetUp, WorkItem
from context_bench.engine.scoring import Scorer
from context_bench.engine.work import WorkerContext, WorkerThread, judge, leave_behind, perform, set_up


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

    def perform(self, unit: WorkItem, thread: WorkerThread, twin: IsolatedInstance | None = None) -> Awaitable[Outcome]:
        """See `work.perform`. Raises `NodeLost` when the twin is lost."""

    def judge(self, outcome: Outcome, scorers: Sequence[Scorer], thread: WorkerThread) -> Awaitable[None]:
        """See `work.judge`."""

    async def twin(self, arm: int, name: str, thread: WorkerThread) -> IsolatedInstance:
        """The arm's system for one group, see `twin_of`. Raises `Raised`, and the `Stop` that the system raised."""

    def set_up(self, setup: SetUp, unit: WorkItem, thread: WorkerThread, twin: IsolatedInstance) -> Awaitable[None]:
        """See `work.set_up`."""

    async def close(self, twin: IsolatedInstance, thread: WorkerThread) -> None:
        """Close a twin. Raises `Raised`."""

    async def end(self) -> None:
        """Everything is done or given up."""


class Local:
    """Everything in this process, with each worker's own thread for what blocks."""

    async def start(self, worker_context: WorkerContext, workers: int, notice: Callable[[str], None]) -> None:
        self._worker_context = worker_context

    def perform(self, unit: WorkItem, thread: WorkerThread, twin: IsolatedInstance | None = None) -> Awaitable[Outcome]:
        return perform(self._worker_context, unit, thread, None if twin is None else twin.system)

    def judge(self, outcome: Outcome, scorers: Sequence[Scorer], thread: WorkerThread) -> Awaitable[None]:
        return judged(self._worker_context, outcome, scorers, thread)

    async def twin(self, arm: int, name: str, thread: WorkerThread) -> IsolatedInstance:
        with _told():
            return await isolated_instance(self._worker_context.arms[arm], name, thread)

    def set_up(self, setup: SetUp, unit: WorkItem, thread: WorkerThread, twin: IsolatedInstance) -> Awaitable[None]:
        return set_up(self._worker_context, setup, unit, thread, twin.system)

    async def close(self, twin: IsolatedInstance, thread: WorkerThread) -> None:
        with _told():
            await close_instance(twin, thread)

    async def end(self) -> None:
        """Nothing to take down."""


async def judged(
    worker_context: WorkerContext, outcome: Outcome, scorers: Sequence[Scorer], thread: WorkerThread
) -> None:
    """`judge` for a stored answer: when it is cancelled, its calls stay in the books."""
    try:
        await judge(worker_context, outcome, scorers, thread)
    except asyncio.CancelledError:
        leave_behind(worker_context, outcome)
        raise


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Stop:
        raise
    except Exception as error:
        raise Raised(describe(error)) from error


async def isolated_instance(arm: PlannedArm, name: str, thread: WorkerThread) -> IsolatedInstance:
    """The system for one group: a twin of that name if it can have one, else itself after `reset()`, else as it is."""
    system = arm.system
    make = calling.method(system, "namespace")
    if make is not None:
        system = await calling.call(make, name, pool=thread.pool)
    elif (reset := calling.method(system, "reset")) is not None:
        await calling.call(reset, pool=thread.pool)
    return IsolatedInstance(system, offers_set_up(system), system is not arm.system)


async def close_instance(twin: IsolatedInstance, thread: WorkerThread) -> None:
    """Let a twin close what it has open, if it can."""
    close = calling.method(twin.system, "aclose", "close")
    if twin.own and close is not None:
        await calling.call(close, pool=thread.pool)


def offers_set_up(system: Any) -> bool:
    """True if groups are set up before their questions are asked."""
    return calling.method(system, "asetup", "setup") is not None


def load_tokenizers(arms: Sequence[PlannedArm]) -> None:
    """Load the vocabularies that tokens will be counted with, so that no row's latency pays for it."""
    for arm in arms:
        named = (getattr(system, "model", None) for system in (arm.system, getattr(arm.system, "inner", None)))
        counter_for(next((model for model in named if isinstance(model, str)), None)).count("ready")
