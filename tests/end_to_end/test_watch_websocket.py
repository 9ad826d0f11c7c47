"""A watch of traffic over WebSockets: both taps chained, through what speaks them too and through what does not."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from context_bench.llm.prices import GenaiPrices
from context_bench.llm.spend import SpendLimit
from context_bench.tap import Shadow, Tap, Watch
from context_bench.tap.control_api import record_file
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.wire.turns import Turn, by_session, total

from .speaking import Speaking, calling, refused

PRICES = GenaiPrices()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def between(provider: Speaking, **options: object) -> AsyncIterator[tuple[Watch, list[Turn]]]:
    """A watch around a relay that speaks WebSockets: a tap of our own."""
    kept: list[Turn] = []

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    back = free_port()
    async with (
        Tap(f"http://127.0.0.1:{back}") as proxy,
        Watch(provider.url, via=proxy.url, back=back, prices=PRICES, keep=keep, **options) as watch,
    ):
        yield watch, kept


async def test_each_request_is_a_turn_with_its_full_prompt_and_its_bill():
    async with Speaking() as provider, between(provider) as (watch, kept):
        async with calling(watch.url) as caller:
            for text in ("look around", "a.py b.py " * 50, "print(1)"):
                await caller.turn(text)
        await watch.drain()
    figures = total(kept)
    assert (figures.turns, figures.other, figures.calls, figures.failed) == (3, 1, 4, 0)
    assert figures.unchanged == figures.compared == 3
    assert not figures.violations
    assert figures.usage.input_tokens == sum(told["input_tokens"] for told in provider.told)
    assert figures.usage.cache_read == sum(told["input_tokens_details"]["cached_tokens"] for told in provider.told)
    assert figures.sent == figures.forwarded
    assert [session for _, session in by_session(turn for turn in kept if turn.kind == "turn")] == [kept[-1].session]
    turns = [turn for turn in kept if turn.kind == "turn"]
    assert [turn.turn for turn in turns] == [1, 2, 3]
    assert turns[0].sent < turns[1].sent < turns[2].sent
    assert turns[0].added is not None
    assert turns[0].added_ttft is not None


async def test_records_of_increments_can_be_replayed(tmp_path):
    from context_bench.transcripts import read_sessions

    with record_file(tmp_path / "r.jsonl") as sink:
        async with Speaking() as provider, between(provider, record="full", sink=sink) as (watch, _):
            async with calling(watch.url) as caller:
                await caller.turn("look around", generate=False)
                for text in ("look around", "a.py", "print(1)"):
                    await caller.turn(text)
            await watch.drain()
    sessions = list(read_sessions(tmp_path / "r.jsonl"))
    assert [len(session.requests) for session in sessions] == [3]
    assert all(
        line["method"] in ("GET", "WEBSOCKET")
        for line in map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    )


async def test_a_second_arm_is_sent_the_full_request():
    offers, watchers = [], []
    kept: list[Turn] = []

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    def seen(turn: Turn) -> None:
        for one in watchers:
            one(turn)

    async with (
        Speaking() as provider,
        Watch(provider.url, prices=PRICES, keep=keep, seen=seen, mirror=lambda mirror: offers[0](mirror)) as watch,
    ):
        arm = watch.new_arm(provider.url, via=provider.url, back=None, record="meta")
        await watch.add_arm(arm)
        async with Shadow(arm, share=1.0, spend=SpendLimit(10.0), prices=PRICES) as shadow:
            offers.append(shadow.offer)
            watchers.append(shadow.seen)
            async with calling(watch.url) as caller:
                await caller.turn()
                await caller.turn("a.py")
            await watch.drain()
            await shadow.idle(10)
            await watch.drain()
    assert [body["input"] for body in provider.posted] == provider.full
    assert total(kept, "shadow").turns == 2


async def test_behind_a_proxy_that_speaks_none_the_client_falls_back_at_once():
    back = free_port()
    kept: list[Turn] = []

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    async with (
        Speaking() as provider,
        MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
        Watch(provider.url, via=proxy.url, back=back, prices=PRICES, keep=keep) as watch,
    ):
        status, _, seconds = await refused(watch.url)
        body = {"model": "gpt-4.1", "input": [{"role": "user", "content": "look around"}]}
        async with aiohttp.ClientSession() as session, session.post(f"{watch.url}/v1/responses", json=body) as reply:
            assert reply.status == 200
        await watch.drain()
    assert status == 426
    assert seconds < 1
    assert (total(kept).turns, total(kept).calls, len(provider.posted)) == (1, 1 + len(kept[0].calls), 1)


async def test_a_relay_that_asks_plainly_behind_is_compared_by_what_it_says():
    """A proxy that takes WebSockets and asks its upstream over HTTP: the full requests are compared, not the bytes of
    the increments.
    """
    history: dict[str, list] = {}

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async with aiohttp.ClientSession() as session:
            async for message in socket:
                said = json.loads(message.data)
                items = [*history.get(said.pop("previous_response_id") or "", []), *said["input"]]
                said.pop("type")
                async with session.post(
                    f"http://127.0.0.1:{back}/v1/responses", json={**said, "input": items, "stream": True}
                ) as reply:
                    response = await reply.json()
                history[response["id"]] = [*items, *response["output"]]
                for event in ("response.created", "response.completed"):
                    await socket.send_json({"type": event, "response": response})
        return socket

    back = free_port()
    kept: list[Turn] = []

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with (
            Speaking() as provider,
            Watch(provider.url, via=f"http://127.0.0.1:{runner.addresses[0][1]}", back=back, keep=keep) as watch,
        ):
            async with calling(watch.url, headers={"Authorization": ""}) as caller:
                await caller.turn("look around")
                await caller.turn("a.py")
            await watch.drain()
    finally:
        await runner.cleanup()
    turns = [turn for turn in kept if turn.kind == "turn"]
    assert [(len(turn.calls), turn.sent, turn.violations) for turn in turns] == [
        (1, turn.forwarded, {}) for turn in turns
    ]
    assert len(turns) == 2
