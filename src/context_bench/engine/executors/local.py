"""What an executor is, and the one that does everything right here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from context_bench.core import calling
from context_bench.core.errors import Stop, describe
from context_bench.core.tokens import counter_for
from context_bench.engine.plan import Outcome, PlannedArm, SetUp, Unit
from context_bench.engine.scoring import Scorer
from context_bench.engine.work import Bench, Hand, judge, leave_behind, perform, set_up


class NodeLost(Exception):
    """The node that kept a group's state is gone: the group begins anew elsewhere. Never leaves the engine."""


class Raised(Exception):
    """A system raised something; the text describes it. Never leaves the engine."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A system of its own for one group. `system`: it, or how the executor knows it; `sets_up`: it offers a set-up; `own`: to be closed."""

    system: Any
    sets_up: bool
    own: bool


class Executor(Protocol):
    """Does the work of a run. Calls after `start` and before `end` may overlap; what is cancelled leaves its calls to the bench."""

    async def start(self, bench: Bench, workers: int, notice: Callable[[str], None]) -> None:
        """Get ready for at most `workers` pieces of work at once; `notice` tells the user what happened to the executor itself."""

    def perform(self, unit: Unit, hand: Hand, twin: Twin | None = None) -> Awaitable[Outcome]:
        """See `work.perform`. Raises `NodeLost` when the twin is lost."""

    def judge(self, outcome: Outcome, scorers: Sequence[Scorer], hand: Hand) -> Awaitable[None]:
        """See `work.judge`."""

    async def twin(self, arm: int, name: str, hand: Hand) -> Twin:
        """The arm's system for one group, see `twin_of`. Raises `Raised`, and the `Stop` that the system raised."""

    def set_up(self, setup: SetUp, unit: Unit, hand: Hand, twin: Twin) -> Awaitable[None]:
        """See `work.set_up`."""

    async def close(self, twin: Twin, hand: Hand) -> None:
        """Close a twin. Raises `Raised`."""

    async def end(self) -> None:
        """Everything is done or given up."""


class Local:
    """Everything in this process, with each worker's own thread for what blocks."""

    async def start(self, bench: Bench, workers: int, notice: Callable[[str], None]) -> None:
        self._bench = bench

    def perform(self, unit: Unit, hand: Hand, twin: Twin | None = None) -> Awaitable[Outcome]:
        return perform(self._bench, unit, hand, None if twin is None else twin.system)

    def judge(self, outcome: Outcome, scorers: Sequence[Scorer], hand: Hand) -> Awaitable[None]:
        return judged(self._bench, outcome, scorers, hand)

    async def twin(self, arm: int, name: str, hand: Hand) -> Twin:
        with _told():
            return await twin_of(self._bench.arms[arm], name, hand)

    def set_up(self, setup: SetUp, unit: Unit, hand: Hand, twin: Twin) -> Awaitable[None]:
        return set_up(self._bench, setup, unit, hand, twin.system)

    async def close(self, twin: Twin, hand: Hand) -> None:
        with _told():
            await close_twin(twin, hand)

    async def end(self) -> None:
        """Nothing to take down."""


async def judged(bench: Bench, outcome: Outcome, scorers: Sequence[Scorer], hand: Hand) -> None:
    """`judge` for a stored answer: when it is cancelled, its calls stay in the books."""
    try:
        await judge(bench, outcome, scorers, hand)
    except asyncio.CancelledError:
        leave_behind(bench, outcome)
        raise


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Stop:
        raise
    except Exception as error:
        raise Raised(describe(error)) from error


async def twin_of(arm: PlannedArm, name: str, hand: Hand) -> Twin:
    """The system for one group: a twin of that name if it can have one, else itself after `reset()`, else as it is."""
    system = arm.system
    make = calling.method(system, "namespace")
    if make is not None:
        system = await calling.call(make, name, pool=hand.pool)
    elif (reset := calling.method(system, "reset")) is not None:
        await calling.call(reset, pool=hand.pool)
    return Twin(system, offers_set_up(system), system is not arm.system)


async def close_twin(twin: Twin, hand: Hand) -> None:
    """Let a twin close what it has open, if it can."""
    close = calling.method(twin.system, "aclose", "close")
    if twin.own and close is not None:
        await calling.call(close, pool=hand.pool)


def offers_set_up(system: Any) -> bool:
    """Whether groups are set up before their questions are asked."""
    return calling.method(system, "asetup", "setup") is not None


def load_tokenizers(arms: Sequence[PlannedArm]) -> None:
    """Load the vocabularies that tokens will be counted with, so that no row's latency pays for it."""
    for arm in arms:
        named = (getattr(system, "model", None) for system in (arm.system, getattr(arm.system, "inner", None)))
        counter_for(next((model for model in named if isinstance(model, str)), None)).count("ready")
