"""Work on the nodes of a Ray cluster: one actor each, fed from here in batches.

The driver holds every piece of work until its answer is in the store, so a node that is lost loses nothing but time and
the money of what it had in flight, which nobody can know: that is said, and counted with its worst case where there is
a limit.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.core.errors import BadInput, PreflightFailed, Stop, SystemFailed, describe, needed
from context_bench.engine.encoding import secrets_of
from context_bench.engine.execution import IsolatedInstance, NodeLost, Raised
from context_bench.engine.executors import Desk, Message
from context_bench.engine.executors.node import Node, Parcel, as_bytes, package_version, packed
from context_bench.engine.plan import SetUp, WorkItem, WorkOutcome
from context_bench.engine.scoring import Scorer
from context_bench.engine.work import WorkerContext, WorkerThread, refused

#: Seconds without a sign of life after which a node is given up, and for it to get ready.
SILENT, READY = 60.0, 300.0
#: Seconds between looks for nodes that joined the cluster.
LOOK = 15.0
#: Nodes that may be lost with one and the same piece of work before it is taken for the reason.
_TRIES = 3


@dataclass(slots=True)
class _Reached:
    """A node as the driver knows it. `asked`: what it has in work; `instances`: of groups that are asked there."""

    address: str
    actor: Any
    desk: Desk
    asked: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    instances: set[int] = field(default_factory=set)
    outbox: list[Message] = field(default_factory=list)
    lost: bool = False
    why: str = ""


class RayNodes:
    """An `Executor`: one actor on every node of the cluster that has a free CPU, also on those that join during the
    run.

    `address`: as Ray takes it ("auto", `host:port`, `ray://…` is not one of a driver), `None` = where RAY_ADDRESS says,
    else a cluster of this machine alone. `local_only`: what of this run can be reached from this machine only ("" =
    nothing); with nodes on other machines that is refused.
    """

    def __init__(self, address: str | None = None, *, local_only: str = "") -> None:
        _ray()
        self._address, self._local_only = address, local_only
        self._nodes: list[_Reached] = []
        self._tickets = itertools.count(1)
        self._listening: list[asyncio.Task[None]] = []
        self._known: set[str] = set()  # Ray's names of nodes that were asked to take part
        self._homes: dict[int, _Reached] = {}  # of arms whose groups share one system
        self._connected = self._ending = False

    @property
    def count(self) -> int:
        """The number of nodes that take part now."""
        return len(self._alive())

    # --- from start to end ---

    async def start(self, worker_context: WorkerContext, workers: int, notice: Callable[[str], None]) -> None:
        """Connect, start the actors and send them systems and evaluators. Raises `Stop` classes."""
        self._worker_context, self._notice = worker_context, notice
        judges = [scorer.planned for scorer in worker_context.scorers]
        secrets = secrets_of([*(arm.system for arm in worker_context.arms), *(each.evaluator for each in judges)])
        ray = _ray()
        parcel = packed(worker_context.arms, judges, self._about(worker_context), secrets.texts)
        await asyncio.to_thread(self._connect, ray)
        for found in _usable(ray):
            self._nodes.append(self._reached(ray, found, parcel))
            self._known.add(str(found["NodeID"]))
        if not self._nodes:
            raise PreflightFailed("the Ray cluster has no node with a CPU to run on")
        self._check_addresses(ray, *self._nodes)
        await asyncio.gather(*(self._begin(node, parcel) for node in self._nodes))
        if not self._alive():
            raise PreflightFailed(
                f"no node of the Ray cluster can take part: {'; '.join(node.why for node in self._nodes)}"
            )
        count = self.count
        notice(
            f"{count} Ray node{'s' if count > 1 else ''}, up to {-(-workers // count)} pieces of work at once on each"
        )
        self._listening.append(asyncio.create_task(self._look(ray, parcel), name="context-bench-ray-looking"))

    def _about(self, worker_context: WorkerContext) -> dict[str, Any]:
        if worker_context.recorder is not None and "__getstate__" not in vars(type(worker_context.recorder)):
            raise BadInput(
                "a recorder of this process cannot be asked from a node; RemoteTap can, where all are on one machine"
            )
        return {
            "run": worker_context.run,
            "recorder": worker_context.recorder,
            "example_timeout": worker_context.example_timeout,
            "text_fields": worker_context.text_fields,
            "setup_timeout": worker_context.setup_timeout,
            "paid": worker_context.spend is not None,
        }

    def _connect(self, ray: Any) -> None:
        if ray.is_initialized():
            return
        try:
            ray.init(address=self._address, log_to_driver=False, include_dashboard=None if self._address else False)
        except Exception as error:
            where = self._address or os.environ.get("RAY_ADDRESS") or "this machine"
            raise PreflightFailed(
                f"no Ray cluster at {where} ({describe(error)}); start one: ray start --head"
            ) from error
        self._connected = True

    def _reached(self, ray: Any, found: dict[str, Any], parcel: Parcel) -> _Reached:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(str(found["NodeID"]), soft=False)
        actor = (
            ray.remote(Node)
            .options(num_cpus=1, max_restarts=0, max_concurrency=1000, scheduling_strategy=there)
            .remote()
        )
        node = _Reached(str(found["NodeManagerAddress"]), actor, None)  # type: ignore[arg-type]
        node.desk = Desk(
            parcel.limiters, self._worker_context.spend, lambda message: self._say(node, message), parcel.replies
        )
        return node

    def _check_addresses(self, ray: Any, *nodes: _Reached) -> None:
        here = ray.util.get_node_ip_address()
        others = sorted({node.address for node in nodes} - {here})
        if self._local_only and others:
            raise BadInput(
                f"{self._local_only} is reached from this machine only, and the cluster has nodes elsewhere "
                f"({', '.join(others[:3])}). "
                "Start it on a host that all nodes reach (context-bench model serve) and give its URL; a tap is asked "
                "from its own machine "
                "only: --executor local"
            )

    async def _begin(self, node: _Reached, parcel: Parcel) -> None:
        try:
            # Keys travel as a small argument of their own: from process to process, in no object store, log or runtime
            # environment.
            version = await asyncio.wait_for(node.actor.begin.remote(parcel.data, parcel.keys), READY)
        except Exception as error:
            node.why, node.lost = f"{node.address}: {_last_line(error)}", True
            self._notice(f"a Ray node cannot take part: {node.why}")
            return
        if version != (here := package_version()):
            raise PreflightFailed(
                f"node {node.address} has context-bench {version}, this is {here}; results would not compare"
            )
        self._listening.append(asyncio.create_task(self._listen(node), name="context-bench-ray-node"))

    async def _look(self, ray: Any, parcel: Parcel) -> None:
        """Let nodes that join the cluster take part."""
        while True:
            await asyncio.sleep(LOOK)
            with suppress(Exception):  # the cluster is gone: whoever has work there hears of it
                for found in await asyncio.to_thread(_usable, ray):
                    if (name := str(found["NodeID"])) not in self._known:
                        self._known.add(name)
                        await self._join(ray, found, parcel)

    async def _join(self, ray: Any, found: dict[str, Any], parcel: Parcel) -> None:
        node = self._reached(ray, found, parcel)
        try:
            self._check_addresses(ray, node)
            await self._begin(node, parcel)
        except Stop as stop:
            self._notice(f"a node that joined is not used: {stop}")
            return
        if not node.lost:
            self._nodes.append(node)
            self._notice(f"node {node.address} joined, {self.count} Ray nodes now")

    async def end(self) -> None:
        """Cancel what is in work, keep what was paid for it, and let the actors go."""
        self._ending = True
        waiting = [answer for node in self._alive() for answer in node.asked.values()]
        for node in self._alive():
            for ticket in node.asked:
                self._say(node, ("cancel", ticket))
        if waiting:
            await asyncio.wait(waiting, timeout=5.0)
        for task in self._listening:
            task.cancel()
        if self._listening:
            await asyncio.wait(self._listening)
        for node in self._nodes:
            node.desk.close()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        ray = _ray()
        for node in self._nodes:
            with suppress(Exception):
                ray.kill(node.actor)
        self._nodes.clear()
        if self._connected:
            ray.shutdown()

    # --- the executor's calls ---

    async def perform(
        self, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance | None = None
    ) -> WorkOutcome:
        """Have the unit answered and judged where its instance is, or by the node with least to do."""
        try:
            sent = as_bytes((_bare(unit), None if instance is None else instance.system[1]))
        except Exception as error:
            said = f"the example cannot be sent to a node: {type(error).__name__}: {error}"
            return refused(self._worker_context, unit, describe(SystemFailed(said)))
        try:
            outcome: WorkOutcome = await self._ask(
                "perform", sent, None if instance is None else instance.system[0], unit
            )
        except Raised as error:
            return refused(self._worker_context, unit, str(error))
        outcome.unit = unit
        return outcome

    async def judge(self, outcome: WorkOutcome, scorers: Sequence[Scorer], thread: WorkerThread) -> None:
        """Have an answer of the store judged."""
        ids = {scorer.planned.id for scorer in scorers}
        found: WorkOutcome = await self._ask(
            "judge", as_bytes((_bare(outcome.unit), outcome.output, ids)), None, outcome.unit
        )
        outcome.scores, outcome.stop, outcome.calls = found.scores, found.stop, found.calls

    async def isolate(self, arm: int, name: str, thread: WorkerThread) -> IsolatedInstance:
        """An instance on one node, where the group's questions will be asked. An arm that has no isolated instances
        stays on one node as a whole.
        """
        single = not hasattr(self._worker_context.arms[arm].system, "namespace")
        home = self._homes.get(arm) if single else None
        node = home if home is not None and not home.lost else self._least()
        if single:
            self._homes[arm] = node
        ticket = next(self._tickets)
        sets_up, own = await self._at(node, ticket, "isolate", as_bytes((arm, name)))
        if own:
            node.instances.add(ticket)
        return IsolatedInstance((node, ticket), sets_up, own)

    async def set_up(self, setup: SetUp, unit: WorkItem, thread: WorkerThread, instance: IsolatedInstance) -> None:
        """Have a group set up on its instance's node."""
        node, number = instance.system
        found: SetUp = await self._ask("set_up", as_bytes((setup, _bare(unit), number)), node, unit)
        for name in ("seconds", "output", "usage", "calls", "forwarded", "error", "mark", "stop"):
            setattr(setup, name, getattr(found, name))

    async def close(self, instance: IsolatedInstance, thread: WorkerThread) -> None:
        """Close an instance on its node; with a lost node it is gone anyway."""
        node, number = instance.system
        node.instances.discard(number)
        if not node.lost:
            with suppress(NodeLost):
                await self._at(node, next(self._tickets), "close", as_bytes((number,)))

    # --- asking nodes ---

    async def _ask(self, what: str, sent: bytes, pinned: _Reached | None, unit: WorkItem) -> Any:
        """Have a node do something; another one if the first is lost, but not where it is `pinned`."""
        for _ in range(_TRIES):
            try:
                return await self._at(pinned or self._least(), next(self._tickets), what, sent, unit)
            except NodeLost:
                if pinned is not None:
                    raise
        raise Raised(
            describe(SystemFailed(f"{_TRIES} nodes were lost while they worked on this; it may be the reason"))
        )

    async def _at(self, node: _Reached, ticket: int, what: str, sent: bytes, unit: WorkItem | None = None) -> Any:
        if node.lost:
            raise NodeLost(node.address)
        answer = asyncio.get_running_loop().create_future()
        node.asked[ticket] = answer
        self._say(node, ("do", ticket, what, sent))
        try:
            return pickle.loads(await asyncio.shield(answer))
        except asyncio.CancelledError:
            if not answer.done():
                self._say(node, ("cancel", ticket))
                answer.add_done_callback(lambda done: self._left(done, unit))
            raise

    def _left(self, answer: asyncio.Future[bytes], unit: WorkItem | None) -> None:
        """Book the money that was paid for cancelled work."""
        if answer.cancelled() or answer.exception() is not None or unit is None:
            return
        found = pickle.loads(answer.result())
        for outcome in found if isinstance(found, list) else [found]:  # it may have been done just before it heard
            if isinstance(outcome, WorkOutcome) and self._worker_context.leave_behind is not None:
                calls = [*outcome.calls, *(call for score in outcome.scores for call in score.calls)]
                self._worker_context.leave_behind(WorkOutcome(unit, ran=False, calls=calls))

    def _least(self) -> _Reached:
        """The node that has least to do."""
        alive = self._alive()
        if not alive:
            raise PreflightFailed(
                "all Ray nodes are lost; what is finished is kept, and the same run name goes on with the rest"
            )
        return min(alive, key=lambda node: len(node.asked) + len(node.instances))

    def _alive(self) -> list[_Reached]:
        return [node for node in self._nodes if not node.lost]

    def _say(self, node: _Reached, message: Message) -> None:
        """Put a message with the others of this turn of the loop: they travel together."""
        if node.lost:
            return
        if not node.outbox:
            asyncio.get_running_loop().call_soon(self._flush, node)
        node.outbox.append(message)

    def _flush(self, node: _Reached) -> None:
        batch, node.outbox = node.outbox, []
        if not node.lost:
            node.actor.tell.remote(batch)

    # --- hearing from nodes ---

    async def _listen(self, node: _Reached) -> None:
        try:
            while True:
                for message in await asyncio.wait_for(_heard(node), SILENT):
                    self._hear(node, message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._lose(node, error)

    def _hear(self, node: _Reached, message: Message) -> None:
        match message:
            case ("done" | "cancelled", ticket, data):
                if (answer := node.asked.pop(ticket, None)) is not None and not answer.done():
                    answer.set_result(data)
            case ("failed", ticket, said):
                if (answer := node.asked.pop(ticket, None)) is not None and not answer.done():
                    answer.set_exception(Raised(said))
            case ("stopped", ticket, data):
                if (answer := node.asked.pop(ticket, None)) is not None and not answer.done():
                    answer.set_exception(pickle.loads(data))
            case _:
                node.desk.hear(message)

    def _lose(self, node: _Reached, error: Exception) -> None:
        """Give a node up: whatever it still says is not heard any more, and its work goes to others."""
        node.lost = True
        why = "no sign of life" if isinstance(error, TimeoutError) else type(error).__name__
        self._notice(
            f"node {node.address} is lost ({why}); {len(node.asked)} pieces of work go elsewhere, what they cost "
            "there is not known"
        )
        node.desk.close()
        with suppress(Exception):
            _ray().kill(node.actor)
        for answer in node.asked.values():
            if not answer.done():
                answer.set_exception(NodeLost(node.address))
        node.asked.clear()


def _last_line(error: Exception) -> str:
    """The message of an error; one of Ray's carries the traceback of the other process."""
    return describe(error).strip().splitlines()[-1]


async def _heard(node: _Reached) -> list[Message]:
    return await node.actor.hear.remote()  # type: ignore[no-any-return]


def _usable(ray: Any) -> list[dict[str, Any]]:
    """Nodes that may be given work; the head of a cluster often has no CPU to give."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def _bare(unit: WorkItem) -> WorkItem:
    """A unit without what the driver alone needs."""
    return replace(unit, block=None, found=None)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of this run
    ray = needed("ray", "a run on several nodes", "ray")
    return ray
