"""The same run here and on the nodes of a Ray cluster: same rows, one limit for all, and nothing lost with a node."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.errors import BadInput
from context_bench.engine import Arm, RunSettings, canonical, execute, open_store, rows
from context_bench.engine.executors.ray_nodes import RayNodes
from context_bench.evaluators import AnswerQuality, LLMJudge
from context_bench.llm.limits import FixedLimiter
from context_bench.llm.responders import prompt_of
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.spend import SpendLimit
from context_bench.systems import OpenAIProxy

KEY = "sk-planted-4f1d7c0a9b2e"
EXAMPLES = [
    {
        "id": n,
        "context": f"The bridge of Ort {n} is {n + 3} m long.",
        "question": f"How long is bridge {n}?",
        "answer": f"{n + 3} m",
    }
    for n in range(24)
]
SCRIPT = {
    "default": "I do not know.",
    "answer_key": {each["question"]: {"answer": each["answer"], "evidence": each["answer"]} for each in EXAMPLES[::2]},
}
GROUPED = [{**each, "group": f"g{n // 4}"} for n, each in enumerate(EXAMPLES)]


class Diary:
    """Keeps what its group has asked: right only if all of a group is asked in order at one place."""

    name, stateful = "diary", True

    def __init__(self, group: str = "") -> None:
        self.group, self.told = group, list[str]()

    def namespace(self, name: str) -> Diary:
        return Diary(name)

    def setup(self, example: dict[str, Any]) -> dict[str, Any]:
        return {"began_with": example["id"]}

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        if example["id"] == 13:
            raise OSError("no page left")
        self.told.append(str(example["id"]))
        return {**example, "response": " ".join(self.told)}


class Journal(Diary):
    """A diary that tells a server where it is before it writes."""

    name = "journal"

    def __init__(self, url: str, group: str = "") -> None:
        super().__init__(group)
        self.url = url

    def namespace(self, name: str) -> Journal:
        return Journal(self.url, name)

    def fingerprint(self) -> dict[str, Any]:
        return {}

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        import ray

        place = ray.get_runtime_context().get_node_id()
        body = {"model": place, "messages": [{"role": "user", "content": str(example["id"])}]}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).read()
        return super().process(example)


class Priced:
    """A dollar a call."""

    def cost(self, usage: Any, model: str) -> float:
        return 1.0


def proxy(url: str, **options: Any) -> OpenAIProxy:
    return OpenAIProxy(url, model="scripted", name="proxy", api_key=KEY, identity="the proxy", **options)


async def run(
    place: Path, systems: list[Any], *, examples: Any = EXAMPLES, executor: Any = None, workers: int = 8, **more: Any
) -> Any:
    """Execute; returns how it went, and what its rows say in a fixed order."""
    with open_store(place) as store:
        executed = await execute(
            store,
            arms=[Arm(system) for system in systems],
            examples=examples,
            settings=RunSettings(max_workers=workers, late_grace=0.0),
            executor=executor,
            **{"name": "r", "evaluators": [AnswerQuality()], "manifest": {}, **more},
        )
        return executed, sorted(map(str, map(canonical, rows(store, executed.run_id))))


def _with_key(places: list[Path]) -> list[Path]:
    kept = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert len(kept) > 10
    return [file for file in kept if KEY.encode() in file.read_bytes()]


async def test_rows_are_those_of_a_local_run_and_keys_stay_out_of_ray_s_files(cluster: Any, tmp_path: Path) -> None:
    async with ModelServer(Scripted(SCRIPT), api_key=KEY) as server:

        def systems() -> list[Any]:
            return [proxy(server.url, limiter=FixedLimiter(4)), Diary()]

        here, told_here = await run(tmp_path / "here.db", systems(), examples=GROUPED)
        there, told_there = await run(tmp_path / "there.db", systems(), examples=GROUPED, executor=RayNodes())
        again, _ = await run(tmp_path / "there.db", systems(), examples=GROUPED, executor=RayNodes())
    assert there.completed
    assert told_there == told_here
    assert "no page left" in str(told_here)
    unlike = ("seconds", "cost")
    for name, counts in here.counts["systems"].items():
        assert {k: v for k, v in there.counts["systems"][name].items() if k not in unlike} == {
            k: v for k, v in counts.items() if k not in unlike
        }
    assert any("2 Ray nodes" in note for note in there.counts["notes"])
    assert again.counts["systems"]["proxy"] == {**again.counts["systems"]["proxy"], "done": 0, "reused": len(EXAMPLES)}
    assert _with_key([Path(cluster.head_node.get_session_dir_path()), tmp_path]) == []


async def test_one_limit_holds_for_all_nodes_together(cluster: Any, tmp_path: Path) -> None:
    slow = Scripted([{"text": "42", "delay": 0.05}])
    async with ModelServer(slow) as server:
        limiter = FixedLimiter(3)
        nodes = RayNodes(local_only="--proxy")  # which both nodes reach: they are on this machine
        executed, _ = await run(tmp_path / "s.db", [proxy(server.url, limiter=limiter)], executor=nodes, workers=12)
        assert executed.counts["done"] == server.seen == len(EXAMPLES)
        assert server.most_in_flight == 3
    assert limiter.in_use == limiter.in_flight == 0


async def test_the_money_limit_is_the_driver_s(cluster: Any, tmp_path: Path) -> None:
    spend = SpendLimit(5.5)
    async with ModelServer(Scripted(SCRIPT)) as server:
        executed, _ = await run(
            tmp_path / "s.db", [proxy(server.url, prices=Priced())], executor=RayNodes(), spend=spend
        )
        assert server.seen == 5
    assert executed.stopped is not None
    assert executed.stopped.exit_code == 5
    assert (spend.spent, spend.in_flight) == (5.0, 0.0)


async def test_what_cannot_be_sent_is_named(cluster: Any, tmp_path: Path) -> None:
    class Held(Diary):
        name = "held"

        def __init__(self) -> None:
            super().__init__()
            self.door = threading.Lock()

    executed, _ = await run(tmp_path / "s.db", [Held()], executor=RayNodes())
    assert isinstance(executed.stopped, BadInput)
    for said in ("system 'held'", "`door`", "lock", "--executor local"):
        assert said in str(executed.stopped)


async def test_a_judge_s_reply_that_the_store_remembers_is_not_asked_again_by_a_node(
    cluster: Any, tmp_path: Path
) -> None:
    async with ModelServer(Scripted(SCRIPT)) as server, ModelServer(Scripted([{"text": "4"}])) as model:

        def told() -> dict[str, Any]:
            return {"systems": [proxy(server.url)], "evaluators": [LLMJudge(model.url)]}

        await run(tmp_path / "s.db", **told(), name="first")
        _, here = await run(tmp_path / "s.db", **told(), name="here")
        _, there = await run(tmp_path / "s.db", **told(), name="there", executor=RayNodes())
        assert (server.seen, model.seen) == (3 * len(EXAMPLES), len(EXAMPLES))
    assert there == here
    assert "judge_score" in str(there)


async def test_a_group_whose_node_dies_begins_anew_elsewhere_and_a_node_that_joins_is_used(
    cluster: Any, add_node: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("context_bench.engine.executors.ray_nodes.LOOK", 0.2)
    nodes, asked = RayNodes(), list[tuple[str, int]]()
    (doomed,) = cluster.worker_nodes
    half, joined = asyncio.Event(), asyncio.Event()

    class Guarded(Scripted):
        async def reply(self, request: Any, headers: Any) -> Any:
            place, number = str(request.model), int(prompt_of(request))
            asked.append((place, number))
            if place == doomed.node_id and number % 4 == 2:
                half.set()
            if half.is_set():
                await joined.wait()
            return await super().reply(request, headers)

    async def until_there_are(count: int) -> None:
        while nodes.count != count:  # noqa: ASYNC110 (the cluster has no event)
            await asyncio.sleep(0.05)

    async def replace() -> None:
        await half.wait()
        await asyncio.to_thread(cluster.remove_node, doomed, False)
        await until_there_are(1)
        add_node()  # sets signal handlers: in no other thread
        await until_there_are(2)
        joined.set()

    async with ModelServer(Guarded([{"text": "42"}])) as server:
        replacing = asyncio.create_task(replace())
        executed, told = await run(
            tmp_path / "s.db", [Journal(server.url)], examples=GROUPED, executor=nodes, workers=2
        )
        assert joined.is_set(), told
        await replacing
        log = list(asked)
        _, expected = await run(tmp_path / "calm.db", [Journal(server.url)], examples=GROUPED)
    assert executed.completed
    assert executed.counts["done"] == len(EXAMPLES)
    assert told == expected
    broken = next(number // 4 for place, number in log if place == doomed.node_id and number % 4 == 2)
    there = [number % 4 for place, number in log if place == doomed.node_id and number // 4 == broken]
    elsewhere = [(place, number % 4) for place, number in log if place != doomed.node_id and number // 4 == broken]
    assert there == [0, 1, 2]
    assert [number for _, number in elsewhere] == [0, 1, 2, 3]
    assert len({place for place, _ in elsewhere}) == 1
    assert {place for place, _ in log} == {doomed.node_id, *(node.node_id for node in cluster.list_all_nodes())}
    notes = " ".join(executed.counts["notes"])
    assert "is lost" in notes
    assert "joined, 2 Ray nodes now" in notes


async def test_a_run_goes_on_when_a_node_is_killed(cluster: Any, tmp_path: Path) -> None:
    """Last: the cluster has one node less from here on."""
    busy = asyncio.Event()

    class Slow(Scripted):
        async def reply(self, request: Any, headers: Any) -> Any:
            if server.seen >= 6:
                busy.set()
            return await super().reply(request, headers)

    async with ModelServer(Slow([{"text": "42", "delay": 0.1}])) as server:

        async def kill() -> None:
            await busy.wait()
            await asyncio.to_thread(cluster.remove_node, next(iter(cluster.worker_nodes)), False)

        killing = asyncio.create_task(kill())
        executed, told = await run(
            tmp_path / "s.db", [proxy(server.url, limiter=FixedLimiter(4)), Diary()], executor=RayNodes()
        )
        await killing
    async with ModelServer(Scripted([{"text": "42"}])) as server:
        _, expected = await run(tmp_path / "calm.db", [proxy(server.url), Diary()])
    assert executed.completed
    assert executed.counts["done"] == 2 * len(EXAMPLES)
    assert told == expected
    assert any("is lost" in note for note in executed.counts["notes"])
