"""What rows say about proxies of every kind: real client, real proxies, real tap, real model server, all on
loopback.
"""

import asyncio
import json

import pytest
from aiohttp import ClientSession, web

from context_bench.core.tokens import count_tokens
from context_bench.engine import Arm, RunSettings, execute, export, open_store, rows, run_of
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.systems import OpenAIProxy
from context_bench.tap import RemoteTap, Tap

MODEL = "gpt-4o"


class Bending:
    """A proxy on loopback: `bend(body)` gives the bodies to send on; the first one's reply goes back, others are sent
    besides.
    """

    def __init__(self, upstream, bend=lambda body: [body], *, authorization=True, later=0):
        self.upstream, self.bend, self.authorization, self.later = upstream, bend, authorization, later
        self.tasks = []

    async def __aenter__(self):
        self.session = ClientSession()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.handle)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*self.tasks)
        await self.runner.cleanup()
        await self.session.close()

    async def handle(self, request):
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() == "authorization" and self.authorization
        }
        first, *more = self.bend(json.loads(await request.read()))
        for extra in more:
            await self.send(extra, headers)
        reply = await self.send(first, headers)
        for _ in range(self.later):
            self.tasks.append(asyncio.create_task(self.afterwards(first, headers)))
        return web.Response(body=reply, content_type="application/json")

    async def afterwards(self, body, headers):
        await asyncio.sleep(0.05)
        await self.send(body, headers)

    async def send(self, body, headers):
        async with self.session.post(f"{self.upstream}/v1/chat/completions", json=body, headers=headers) as reply:
            return await reply.read()


def halved(body):
    text = body["messages"][0]["content"]
    context, _, question = text.rpartition("\n\n")
    body["messages"][0]["content"] = context[: len(context) // 2] + "\n\n" + question
    return [body]


def all_user(body):
    for message in body["messages"]:
        message["role"] = "user"
    return [body]


def other_parameters(body):
    return [{**body, "temperature": 0, "model": "gpt-4o-mini"}]


def summarised_first(body):
    return [
        body,
        {"model": MODEL, "messages": [{"role": "user", "content": "summarise: " + body["messages"][-1]["content"]}]},
    ]


def examples(n=3):
    return [
        {
            "id": i,
            "context": f"{i}: " + "The lamp of the old tower was lit at dusk. " * 20,
            "question": "When?",
            "answer": "dusk",
        }
        for i in range(n)
    ]


async def measure(store, proxy, tap, *, system_prompt="Be brief.", shape="plain-user", workers=2, more=(), **settings):
    system = OpenAIProxy(proxy, model=MODEL, name="proxy", shape=shape, system_prompt=system_prompt)
    done = await execute(
        store,
        name="r",
        arms=[Arm(system), *more],
        examples=examples(),
        evaluators=[],
        manifest={},
        settings=RunSettings(max_workers=workers, **settings),
        recorder=tap,
    )
    await system.aclose()
    assert done.completed
    return list(rows(store, "r", "proxy"))


async def row_behind(store, *, model=None, workers=2, **proxy):
    async with ModelServer(model or Echo()) as server, Tap(server.url) as tap, Bending(tap.url, **proxy) as bending:
        return await measure(store, bending.url, tap, workers=workers)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store.db") as opened:
        yield opened


async def test_a_proxy_that_changes_nothing(store):
    for row in await row_behind(store):
        sent = f"{row.example_id}: " + "The lamp of the old tower was lit at dusk. " * 20 + "\n\nQuestion: When?"
        assert row.input_tokens == row.output_tokens == count_tokens(sent) + count_tokens("Be brief.")
        assert row.metadata["forwarded_source"] == row.wire["source"] == "tap"
        assert (row.wire["calls"], row.wire["extra_calls"], row.wire["role_changes"], row.wire["param_changes"]) == (
            1,
            0,
            0,
            0,
        )
        assert row.wire["authorization_forwarded"]
        assert not row.wire["text_changed"]
        assert not row.wire["truncated"]
        assert row.wire["exact"]
        assert row.wire["billed"] == row.usage["input_tokens"] == row.output_tokens


async def test_a_proxy_that_halves_the_context(store):
    found = await row_behind(store, bend=lambda body: halved({**body, "messages": body["messages"][1:]}))
    items = list(export(store, "r"))
    for row, item in zip(found, items, strict=True):
        (record,) = item["forwarded"]
        assert row.output_tokens == count_tokens(record["request"]["messages"][0]["content"]) < 0.6 * row.input_tokens
        assert row.wire["text_changed"]
        assert {change["kind"] for change in row.wire["changes"]} == {"messages", "role"}


async def test_a_proxy_that_turns_every_role_into_user(store):
    for row in await row_behind(store, bend=all_user):
        assert row.wire["role_changes"] == 1
        assert row.wire["changes"] == [{"kind": "role", "detail": "message 1: system → user"}]
        assert row.output_tokens == row.input_tokens


async def test_a_proxy_that_changes_parameters_and_model(store):
    for row in await row_behind(store, bend=other_parameters):
        assert row.wire["param_changes"] == 1
        assert {change["detail"] for change in row.wire["changes"]} == {"temperature added", "gpt-4o → gpt-4o-mini"}


async def test_a_proxy_that_calls_the_provider_twice(store):
    for row in await row_behind(store, bend=summarised_first):
        assert (row.wire["calls"], row.wire["client_calls"], row.wire["extra_calls"]) == (2, 1, 1)
        assert row.wire["changes"] == []
        assert row.output_tokens > 1.9 * row.input_tokens


async def test_a_proxy_that_keeps_the_key_to_itself(store):
    for row in await row_behind(store, authorization=False, workers=1):
        assert row.wire["matched_by"] == "serial"  # there was only one it could be
        assert row.wire["authorization_forwarded"] is False
        assert row.output_tokens == row.input_tokens


async def test_where_nobody_can_be_named_nobody_is(store):
    class Together(Echo):
        waiting, all_here = 0, asyncio.Event()

        async def reply(self, request, headers):
            self.waiting += 1
            if self.waiting == 3:
                self.all_here.set()
            await self.all_here.wait()
            return await super().reply(request, headers)

    found = await row_behind(store, model=Together(), authorization=False, workers=3)
    assert run_of(store, "r").counts["unmatched"] == 3
    for row in found:
        assert row.wire["calls"] == 0
        assert row.metadata["forwarded_source"] == row.wire["source"] == "usage"
        assert row.output_tokens == row.usage["input_tokens"]


async def test_requests_that_come_after_the_answer_join_their_row(store):
    found = await row_behind(store, later=1)
    for row in found:
        assert (row.wire["calls"], row.wire["late"], row.wire["extra_calls"]) == (2, 1, 1)
        assert row.output_tokens == 2 * row.input_tokens
    assert [len(item["forwarded"]) for item in export(store, "r")] == [2, 2, 2]
    assert run_of(store, "r").counts["unmatched"] == 0


async def test_a_provider_that_cuts_the_prompt_without_saying_so(store):
    class Cuts(Echo):
        async def reply(self, request, headers):
            reply = await super().reply(request, headers)
            reply.usage.input_tokens //= 2
            return reply

    async with ModelServer(Cuts()) as model, Tap(model.url) as tap:
        for row in await measure(store, tap.url, tap):
            assert row.wire["truncated"]
            assert row.wire["billed"] == row.wire["forwarded"] // 2


async def test_without_a_tap_the_providers_usage_counts_and_says_so(store):
    async with ModelServer(Echo()) as model, Bending(model.url, halved_after_system) as bending:
        for row in await measure(store, bending.url, None):
            assert row.output_tokens == row.usage["input_tokens"] < 0.6 * row.input_tokens
            assert row.metadata["forwarded_source"] == "usage"
            assert row.wire == {}


def halved_after_system(body):
    return halved({**body, "messages": body["messages"][1:]})


class Budgeted:
    """Keeps what it was told to see."""

    name = "head@proxy"

    def __init__(self):
        self.budgets = {}

    def process(self, example):
        self.budgets[example["id"]] = example["budget"]
        return {**example, "response": "x"}


@pytest.mark.parametrize("tapped", [True, False])
async def test_a_budget_is_what_the_proxy_forwarded_of_the_context(store, tapped):
    control = Budgeted()
    async with (
        ModelServer(Echo()) as model,
        Tap(model.url) as tap,
        Bending(tap.url if tapped else model.url, halved) as bending,
    ):
        await measure(
            store, bending.url, tap if tapped else None, system_prompt=None, more=[Arm(control, budget_from="proxy")]
        )
    proxy = OpenAIProxy("http://127.0.0.1:1", model=MODEL, shape="plain-user")
    for row in rows(store, "r", "proxy"):
        rest = proxy.shaped({**examples()[row.example_id], "context": ""})
        assert control.budgets[row.example_id] == row.output_tokens - rest.tokens()
        assert 50 < control.budgets[row.example_id] < count_tokens(examples()[0]["context"]) * 0.6


async def test_by_time_alone_there_is_one_request_at_a_time(store):
    most = together = 0

    class Watches(Echo):
        async def reply(self, request, headers):
            nonlocal most, together
            together += 1
            most = max(most, together)
            await asyncio.sleep(0.01)
            together -= 1
            return await super().reply(request, headers)

    async with (
        ModelServer(Watches()) as model,
        Tap(model.url, marker="serial") as tap,
        Bending(tap.url, authorization=False) as bending,
    ):
        found = await measure(store, bending.url, tap, workers=8)
    assert most == 1
    assert [row.wire["matched_by"] for row in found] == ["serial"] * 3
    assert [row.wire["calls"] for row in found] == [1, 1, 1]


async def test_a_run_whose_tap_is_gone_stops_and_goes_on_later(store):
    async with ModelServer(Echo()) as model, Tap(model.url) as tap:
        system = OpenAIProxy(tap.url, model=MODEL, name="proxy")
        async with RemoteTap(tap.url) as remote:
            await execute(
                store,
                name="r",
                arms=[Arm(system)],
                examples=examples(1),
                evaluators=[],
                manifest={},
                settings=RunSettings(),
                recorder=remote,
            )
            await tap.stop()
            done = await execute(
                store,
                name="r",
                arms=[Arm(system)],
                examples=examples(3),
                evaluators=[],
                manifest={},
                settings=RunSettings(),
                recorder=remote,
            )
        await system.aclose()
    assert "the tap cannot be asked any more (Unreachable" in str(done.stopped)
    assert [row.example_id for row in rows(store, "r")] == [0]
    assert run_of(store, "r").status == "stopped"


async def test_a_dead_provider_is_a_failed_row_with_its_call(store):
    async with ModelServer(Echo()) as model:
        url = model.url
    system = OpenAIProxy(url, model=MODEL, name="proxy", max_retries=0)
    await execute(
        store, name="r", arms=[Arm(system)], examples=examples(1), evaluators=[], manifest={}, settings=RunSettings()
    )
    await system.aclose()
    (row,) = rows(store, "r")
    assert row.errors["system"].startswith("Unreachable: ")
    assert row.output_tokens is None
    assert row.input_tokens > 100
    assert row.usage["calls"] == 1
