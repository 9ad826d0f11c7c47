"""One node of a run: a long-lived actor that does the local engine's work and talks to its driver in batches.

Systems and evaluators are pickled for it, without keys and without members that only the driver has.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, BadReply, Stop, describe
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.engine.execution import (
    IsolatedInstance,
    close_instance,
    isolated_instance,
    judged,
    load_tokenizers,
)
from context_bench.engine.executors import DriverLink, Message, NodeReplies, SharedLimiter, SharedSpend
from context_bench.engine.plan import SetUp, WorkItem, WorkOutcome
from context_bench.engine.scoring import Scorer
from context_bench.engine.store.outcomes import StoredReplies
from context_bench.engine.work import WorkerContext, WorkerThread, perform, set_up
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter, Limiter


@dataclass(slots=True)
class Parcel:
    """`data`: everything but `keys`, texts that hold a secret and travel apart; `limiters` and `replies` stay with the
    driver.
    """

    data: bytes = b""
    keys: list[str] = field(default_factory=list)
    limiters: list[Limiter] = field(default_factory=list)
    replies: StoredReplies | None = None


def packed(arms: Sequence[Any], evaluators: Sequence[Any], about: dict[str, Any], secrets: Sequence[str]) -> Parcel:
    """Everything a node needs to do this run's work. Raises `BadInput` that names what cannot be sent."""
    parcel = Parcel()
    try:
        parcel.data = _dumped((list(arms), list(evaluators), about), parcel, secrets)
    except Exception as error:
        plugins = [("system", each.name, each.system) for each in arms]
        plugins += [("evaluator", each.name, each.evaluator) for each in evaluators]
        raise _blamed(plugins, secrets, error) from error
    return parcel


def unpacked(data: bytes, known: Callable[[tuple[str, int]], Any]) -> Any:
    """The value that was packed. `known` gives what did not travel with it: `("key", n)`, `("limiter", n)`,
    `("replies", 0)`.
    """

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return known(pid)

    return Unpickler(io.BytesIO(data)).load()


def _dumped(value: Any, parcel: Parcel, secrets: Sequence[str]) -> bytes:
    from ray import cloudpickle as untyped

    cloudpickle: Any = untyped

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def persistent_id(self, found: Any) -> tuple[str, int] | None:
            return _stays(found, parcel, secrets)

    buffer = io.BytesIO()
    carried = [name for name, module in list(sys.modules.items()) if _own(module)]
    for name in carried:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    finally:
        for name in carried:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])
    return buffer.getvalue()


def _stays(found: Any, parcel: Parcel, secrets: Sequence[str]) -> tuple[str, int] | None:
    if isinstance(found, str):
        if len(found) < 8 or not any(secret in found for secret in secrets):
            return None
        parcel.keys.append(found)
        return "key", len(parcel.keys) - 1
    if isinstance(found, AdaptiveLimiter | FixedLimiter):
        if not any(found is each for each in parcel.limiters):
            parcel.limiters.append(found)
        return "limiter", next(number for number, each in enumerate(parcel.limiters) if each is found)
    if isinstance(found, StoredReplies):
        parcel.replies = found
        return "replies", 0
    return None


def _own(module: Any) -> bool:
    """A module of the user's, in no installed package: a node has no such file, so its code goes along."""
    file = getattr(module, "__file__", None)
    if not file or getattr(module, "__name__", "").partition(".")[0] in ("context_bench", "__main__", "__mp_main__"):
        return False
    path = Path(file)
    installed = (sys.prefix, sys.base_prefix)
    return (
        path.suffix == ".py"
        and "site-packages" not in path.parts
        and not any(path.is_relative_to(place) for place in installed)
    )


def _blamed(plugins: Sequence[tuple[str, str, Any]], secrets: Sequence[str], error: Exception) -> BadInput:
    for kind, name, plugin in plugins:
        found = _fails(plugin, secrets)
        if found is None:
            continue
        parts = (f"its attribute `{key}`: {why}" for key, item in _attributes(plugin) if (why := _fails(item, secrets)))
        why = next(parts, found)
        return BadInput(
            f"{kind} {name!r} ({type(plugin).__qualname__}) cannot be sent to the nodes: {why}. Make such things when "
            "they are first "
            "used, or leave them out in __getstate__(); or run with --executor local"
        )
    return BadInput(f"this run cannot be sent to the nodes: {error}")


def _attributes(plugin: Any) -> list[tuple[str, Any]]:
    return list(vars(plugin).items()) if hasattr(plugin, "__dict__") else []


def _fails(value: Any, secrets: Sequence[str]) -> str | None:
    try:
        _dumped(value, Parcel(), secrets)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


#: Seconds after which a node with nothing to say shows that it is alive.
BEAT = 5.0


@dataclass(slots=True)
class _Kept:
    """A group's instance, and the thread that all its calls are made in."""

    instance: IsolatedInstance
    thread: WorkerThread


@dataclass(slots=True)
class _Work:
    """The requests of the driver that are not answered yet."""

    task: asyncio.Task[None]
    left: list[WorkOutcome | SetUp] = field(default_factory=list)  # what was paid before it was cancelled


class Node:
    """The actor's class. The driver calls `begin` once, then `hear` again and again, and `tell` whenever there is
    something to do.
    """

    async def begin(self, data: bytes, keys: list[str]) -> str:
        """Build this node's bench; returns the package's version."""
        loop = asyncio.get_running_loop()
        self._outbox: list[Message] = []
        self._news = asyncio.Event()
        self._line = DriverLink(loop, self._post)
        self._work: dict[int, _Work] = {}
        self._instances: dict[int, _Kept] = {}
        self._free: list[WorkerThread] = []
        limiters: dict[int, SharedLimiter] = {}
        replies = NodeReplies(self._line)

        def substitute(pid: tuple[str, int]) -> Any:
            kind, number = pid
            if kind == "limiter":
                return limiters.setdefault(number, SharedLimiter(self._line, number))
            return keys[number] if kind == "key" else replies

        arms, evaluators, about = unpacked(data, substitute)
        timeout, paid = about["example_timeout"], about.pop("paid")
        scorers = [Scorer(each, timeout) for each in evaluators]
        spend = SharedSpend(self._line) if paid else None
        self._worker_context = WorkerContext(
            arms=arms, scorers=scorers, clock=SYSTEM_CLOCK, spend=spend, leave_behind=self._leave_behind, **about
        )
        if recorder := self._worker_context.recorder:
            await recorder.__aenter__()  # type: ignore[attr-defined]
        await asyncio.to_thread(load_tokenizers, arms)
        return package_version()

    async def hear(self) -> list[Message]:
        """The next messages for the driver; waits until there is one, or until a heartbeat is due."""
        if not self._outbox:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), BEAT)
        said, self._outbox = self._outbox, []
        return said

    async def tell(self, messages: list[Message]) -> None:
        """Take in what the driver says."""
        for message in messages:
            match message:
                case ("told", ticket, value):
                    self._line.answered(ticket, value)
                case ("do", ticket, what, data):
                    self._work[ticket] = _Work(asyncio.create_task(self._do(ticket, what, data)))
                case ("cancel", ticket):
                    if (work := self._work.get(ticket)) is not None:
                        work.task.cancel()

    def _post(self, message: Message) -> None:
        self._outbox.append(message)
        self._news.set()

    async def _do(self, ticket: int, what: str, data: bytes) -> None:
        """One piece of work, from its pickled arguments to its pickled result."""
        try:
            result = await self._called(ticket, what, *pickle.loads(data))
            self._post(("done", ticket, self._pickled(result)))
        except asyncio.CancelledError:
            self._post(("cancelled", ticket, as_bytes(self._work[ticket].left)))
        except Stop as stop:
            self._post(("stopped", ticket, as_bytes(_portable(stop))))
        except Exception as error:
            self._post(("failed", ticket, describe(error)))
        finally:
            self._work.pop(ticket, None)

    def _called(self, ticket: int, what: str, *args: Any) -> Coroutine[Any, Any, Any]:
        actions: dict[str, Any] = {
            "perform": self._perform,
            "judge": self._judge,
            "isolate": self._isolate,
            "set_up": self._set_up,
            "close": self._close,
        }
        return actions[what](ticket, *args)  # type: ignore[no-any-return]

    def _leave_behind(self, outcome: WorkOutcome) -> None:
        """The calls of work that was cancelled go home with the news of that."""
        task = asyncio.current_task()
        for work in self._work.values():
            if work.task is task:
                outcome.unit = None  # type: ignore[assignment]
                work.left.append(outcome)

    # --- the work ---

    async def _perform(self, ticket: int, unit: WorkItem, instance: int | None) -> WorkOutcome:
        kept = None if instance is None else self._instances[instance]
        thread = kept.thread if kept is not None else self._thread()
        try:
            return await perform(self._worker_context, unit, thread, None if kept is None else kept.instance.system)
        finally:
            if kept is None:
                self._free.append(thread)

    async def _judge(self, ticket: int, unit: WorkItem, output: dict[str, Any], ids: set[int]) -> WorkOutcome:
        outcome, thread = WorkOutcome(unit, ran=False, output=output), self._thread()
        try:
            await judged(
                self._worker_context,
                outcome,
                [scorer for scorer in self._worker_context.scorers if scorer.planned.id in ids],
                thread,
            )
        finally:
            self._free.append(thread)
        outcome.output = {}  # the driver has it
        return outcome

    async def _isolate(self, ticket: int, arm: int, name: str) -> tuple[bool, bool]:
        thread = self._thread()
        instance = await isolated_instance(self._worker_context.arms[arm], name, thread)
        self._instances[ticket] = _Kept(instance, thread)
        return instance.sets_up, instance.own

    async def _set_up(self, ticket: int, setup: SetUp, unit: WorkItem, instance: int) -> SetUp:
        kept = self._instances[instance]
        try:
            await set_up(self._worker_context, setup, unit, kept.thread, kept.instance.system)
        except asyncio.CancelledError:
            self._work[ticket].left.append(setup)
            raise
        if setup.stop is not None:
            setup.stop = _portable(setup.stop)
        return setup

    async def _close(self, ticket: int, instance: int) -> None:
        kept = self._instances.pop(instance)
        try:
            await close_instance(kept.instance, kept.thread)
        finally:
            self._free.append(kept.thread)

    def _thread(self) -> WorkerThread:
        """A thread for what blocks, that no other work uses meanwhile."""
        return self._free.pop() if self._free else WorkerThread("context-bench-system")

    def _pickled(self, result: Any) -> bytes:
        """The result, pickled; an answer that cannot travel is a failure of the system that gave it, its bill is
        kept.
        """
        if not isinstance(result, WorkOutcome):
            return as_bytes(result)
        if result.stop is not None:
            result.stop = _portable(result.stop)
        result.unit = None  # type: ignore[assignment]  # the driver knows
        try:
            return as_bytes(result)
        except Exception as error:
            result.error = describe(
                BadReply(f"the answer cannot be sent from its node: {type(error).__name__}: {error}")
            )
            result.output, result.metadata, result.scores = {}, {}, []
            return as_bytes(result)


def package_version() -> str:
    """The version of context-bench installed here."""
    return str(sys.modules["context_bench"].__version__)


def _portable(stop: Stop) -> Stop:
    """The same, or if its class cannot be built again from its message, one that says the same and ends with the same
    exit code.
    """
    try:
        return pickle.loads(as_bytes(stop))  # type: ignore[no-any-return]
    except Exception:
        plain = Stop(str(stop))
        plain.exit_code = stop.exit_code
        return plain


def as_bytes(value: Any) -> bytes:
    """A value as it travels between a node and the driver."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
