"""Whose call was it, through real proxies of every kind on loopback; and nothing of ours reaches the provider."""

import asyncio
import json
from collections import Counter

import aiohttp
import pytest
from aiohttp import web

from context_bench.core.ledger import Mark
from context_bench.core.protocols import Recorder
from context_bench.core.records import Forwarded
from context_bench.core.tokens import counter_for
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.tap import RemoteTap, Tap
from context_bench.wire.apis import parse_request
from context_bench.wire.request import changes, facts

CHAT = "/v1/chat/completions"
KEY = "the-real-upstream-key"
COUNT = counter_for("gpt-4o").count


class Proxy:
    """A proxy under test: forwards to the tap with whatever its kind does to a request. Kinds that misbehave are small
    methods.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.seen_by_key: Counter[str] = Counter()
        self.url = ""

    async def __aenter__(self) -> "Proxy":
        self.session = aiohttp.ClientSession()
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()
        await self.session.close()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        headers = {
            k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length", "accept-encoding")
        }
        return await self.forward(request.path, headers, body)

    async def forward(self, path: str, headers: dict, body: dict) -> web.Response:
        async with self.session.post(self.upstream + path, json=body, headers=headers) as reply:
            return web.Response(status=reply.status, body=await reply.read(), content_type=reply.content_type)


class Halver(Proxy):
    async def forward(self, path, headers, body):
        for message in body["messages"]:
            message["content"] = message["content"][: len(message["content"]) // 2]
        return await super().forward(path, headers, body)


class EverybodyIsUser(Proxy):
    async def forward(self, path, headers, body):
        for message in body["messages"]:
            message["role"] = "user"
        return await super().forward(path, headers, body)


class Twice(Proxy):
    async def forward(self, path, headers, body):
        await super().forward(path, headers, {**body, "messages": [{"role": "user", "content": "summarise"}]})
        return await super().forward(path, headers, body)


class StripsAuthorization(Proxy):
    async def forward(self, path, headers, body):
        return await super().forward(path, {k: v for k, v in headers.items() if k.lower() != "authorization"}, body)


class StripsAllOfOurs(StripsAuthorization):
    async def forward(self, path, headers, body):
        return await super().forward(path, {k: v for k, v in headers.items() if k.lower() != "x-context-bench"}, body)


class OwnKey(Proxy):
    async def forward(self, path, headers, body):
        return await super().forward(path, {**headers, "Authorization": "Bearer proxy-own-key-1"}, body)


class ToAnthropic(Proxy):
    """Speaks another wire behind than in front, and moves the key to where that wire has it."""

    async def forward(self, path, headers, body):
        key = headers["Authorization"].removeprefix("Bearer ")
        messages = [m for m in body["messages"] if m["role"] != "system"]
        system = "\n".join(m["content"] for m in body["messages"] if m["role"] == "system")
        sent = {"model": body["model"], "max_tokens": 10, "system": system, "messages": messages}
        return await super().forward("/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}, sent)


class Background(Proxy):
    """Answers its client at once and calls the provider again afterwards."""

    async def forward(self, path, headers, body):
        self.answered = asyncio.Event()
        self.task = asyncio.create_task(self.afterwards(path, headers, body))
        return await super().forward(path, headers, body)

    async def afterwards(self, path, headers, body):
        await self.answered.wait()
        await super().forward(path, headers, {**body, "messages": [{"role": "user", "content": "learn from this"}]})


class Stateful(Proxy):
    """Remembers per key what it has forwarded before and replaces it by a reference: what production proxies do with
    history.
    """

    async def forward(self, path, headers, body):
        session = headers.get("Authorization", "")
        seen = self.memory.setdefault(session, {})
        for message in body["messages"]:
            reference = seen.setdefault(message["content"], f"[seen {len(seen)}]")
            if reference not in (message["content"], f"[seen {len(seen) - 1}]"):
                message["content"] = reference
        return await super().forward(path, headers, body)

    memory: dict[str, dict[str, str]]

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.memory = {}


def body(*texts: str) -> dict:
    system = {"role": "system", "content": "Be brief, please."}
    return {
        "model": "gpt-4o",
        "temperature": 0,
        "messages": [system, *({"role": "user", "content": text} for text in texts)],
    }


def marked(mark: Mark) -> dict[str, str]:
    if mark.mode == "key":
        return {"Authorization": f"Bearer {mark.token}"}
    return {"x-context-bench": mark.token, "Authorization": "Bearer key-of-the-proxy"} if mark.mode == "header" else {}


async def call(url: str, mark: Mark | None, sent: dict) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + CHAT, json=sent, headers=marked(mark) if mark else {}) as reply,
    ):
        assert reply.status == 200, await reply.text()


async def once(recorder: Recorder, url: str, sent: dict, conversation: str = "c") -> list[Forwarded]:
    mark = await recorder.begin(conversation)
    await call(url, mark, sent)
    return await recorder.end(mark)


def assert_nothing_of_ours(server: ModelServer) -> None:
    for received in server.requests:
        everything = json.dumps(received.headers) + received.path + received.raw.decode()
        assert "cb-" not in everything
        assert "x-context-bench" not in everything


async def test_a_proxy_that_changes_nothing():
    async with (
        ModelServer(Echo(), api_key=KEY) as server,
        Tap(server.url, upstream_key=KEY) as tap,
        Proxy(tap.url) as proxy,
    ):
        sent = body("What is the capital of France? " * 20)
        (record,) = await once(tap, proxy.url, sent)
        assert record.matched_by == "key"
        assert record.authorization is True
        assert record.tokens == COUNT("Be brief, please.") + COUNT("What is the capital of France? " * 20)
        assert record.exact
        assert record.request == sent
        assert record.usage is not None
        assert changes(facts(parse_request("openai-chat", sent)), record.facts) == []
        assert_nothing_of_ours(server)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert await tap.unmatched() == []
        assert await tap.late() == []


async def test_a_proxy_that_halves():
    async with Tap("echo") as tap, Halver(tap.url) as proxy:
        text = "The pump was built in 1912 by hand. " * 30
        (record,) = await once(tap, proxy.url, body(text))
        assert record.tokens == COUNT("Be brief, please."[:8]) + COUNT(text[: len(text) // 2])


async def test_a_proxy_that_turns_every_role_into_user():
    async with Tap("echo") as tap, EverybodyIsUser(tap.url) as proxy:
        (record,) = await once(tap, proxy.url, body("hello"))
        found = changes(facts(parse_request("openai-chat", body("hello"))), record.facts)
        assert [(change.kind, change.detail) for change in found] == [("role", "message 1: system → user")]


async def test_a_proxy_that_calls_twice():
    async with Tap("echo") as tap, Twice(tap.url) as proxy:
        records = await once(tap, proxy.url, body("hello"))
        assert [record.tokens for record in records] == [
            COUNT("summarise"),
            COUNT("Be brief, please.") + COUNT("hello"),
        ]
        assert {record.window for record in records} == {1}
        assert await tap.unmatched() == []


@pytest.mark.parametrize("kind", [StripsAuthorization, OwnKey])
async def test_a_lost_key_falls_back_to_time_and_is_told(kind):
    async with ModelServer(Echo()) as server, Tap(server.url) as tap, kind(tap.url) as proxy:
        (record,) = await once(tap, proxy.url, body("hello"))
        assert (record.matched_by, record.authorization) == ("serial", False)
        assert_nothing_of_ours(server)


async def test_a_lost_key_with_two_windows_open_is_unmatched():
    async with Tap("echo") as tap, StripsAuthorization(tap.url) as proxy:
        other = await tap.begin("other")
        assert await once(tap, proxy.url, body("hello")) == []
        (record,) = await tap.unmatched()
        assert (record.matched_by, record.mark, record.window, record.authorization) == ("none", None, 0, None)
        assert await tap.unmatched() == []  # each is given once
        assert await tap.end(other) == []


async def test_header_mode():
    async with (
        ModelServer(Echo(), api_key=KEY) as server,
        Tap(server.url, marker="header", upstream_key=KEY) as tap,
        Proxy(tap.url) as proxy,
    ):
        (record,) = await once(tap, proxy.url, body("hello"))
        assert (record.matched_by, record.authorization) == ("header", None)
        assert (
            server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        )  # the proxy's own key was replaced as well
        assert_nothing_of_ours(server)


@pytest.mark.parametrize("marker", ["key", "header", "serial"])
async def test_serial_mode_needs_nothing_in_the_request(marker):
    async with Tap("echo", marker=marker) as tap, StripsAllOfOurs(tap.url) as proxy:
        for number in range(3):
            (record,) = await once(tap, proxy.url, body(f"question {number}"), f"c{number}")
            assert record.matched_by == "serial"
            assert record.request["messages"][1]["content"] == f"question {number}"
        assert await tap.unmatched() == []


async def test_another_wire_behind_the_proxy():
    async with (
        ModelServer(Echo(), api_key=KEY) as server,
        Tap(server.url, upstream_key=KEY) as tap,
        ToAnthropic(tap.url) as proxy,
    ):
        (record,) = await once(tap, proxy.url, body("hello"))
        assert (record.wire, record.matched_by, record.authorization) == ("anthropic", "key", True)
        assert server.requests[0].headers["x-api-key"] == KEY
        assert_nothing_of_ours(server)


async def test_late_calls_join_their_conversation():
    async with Tap("echo") as tap, Background(tap.url) as proxy:
        (record,) = await once(tap, proxy.url, body("hello"))
        assert not record.late
        proxy.answered.set()
        await proxy.task
        (late,) = await tap.late()
        assert (late.late, late.mark, late.window) == (True, record.mark, record.window)
        assert late.tokens == COUNT("learn from this")
        assert await tap.late() == []
        assert await tap.unmatched() == []


async def test_a_call_still_under_way_at_the_end_comes_with_late(monkeypatch):
    monkeypatch.setattr("context_bench.tap.tap_server.PATIENCE", 0.05)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.json_response({})

    app = web.Application()
    app.router.add_post(CHAT, slow)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with Tap(f"http://127.0.0.1:{runner.addresses[0][1]}") as tap:
        mark = await tap.begin("c")
        calling = asyncio.create_task(call(tap.url, mark, body("hello")))
        await asyncio.wait_for(asked.wait(), 10)
        assert await tap.end(mark) == []
        go_on.set()
        await calling
        await tap.settle(1)
        (record,) = await tap.late()
        assert (record.late, record.mark, record.status) == (False, mark.token, 200)
    await runner.cleanup()


async def test_an_abandoned_window_comes_out_as_late():
    async with Tap("echo") as tap:
        mark = await tap.begin("c")
        await call(tap.url, mark, body("first"))
        await tap.settle(1)
        records = await once(tap, tap.url, body("second"))
        assert [r.request["messages"][1]["content"] for r in records] == ["second"]
        assert [r.request["messages"][1]["content"] for r in await tap.late()] == ["first"]


async def test_many_conversations_at_once_are_told_apart():
    async with Tap("echo") as tap, Halver(tap.url) as proxy:
        texts = [f"conversation {n} says " + "word " * n for n in range(40)]
        found = await asyncio.gather(*(once(tap, proxy.url, body(text), f"c{n}") for n, text in enumerate(texts)))
        for text, records in zip(texts, found, strict=True):
            assert [record.request["messages"][1]["content"] for record in records] == [text[: len(text) // 2]]
        assert await tap.unmatched() == []


async def test_turns_of_one_conversation_show_their_shared_prefix():
    async with Tap("echo") as tap, Proxy(tap.url) as proxy:
        (first,) = await once(tap, proxy.url, body("one " * 50))
        (second,) = await once(tap, proxy.url, body("one " * 50, "two"))
        (elsewhere,) = await once(tap, proxy.url, body("one " * 50, "two"), "another conversation")
        assert (first.prefix_tokens, second.prefix_tokens, elsewhere.prefix_tokens) == (None, first.tokens, None)
        assert (first.mark, first.window) != (second.mark, second.window)
        assert first.mark == second.mark


async def test_a_foreign_or_forged_mark_gets_neither_a_window_nor_the_key():
    async with (
        ModelServer(Echo(), api_key=KEY) as server,
        Tap(server.url, upstream_key=KEY) as tap,
        aiohttp.ClientSession() as session,
    ):
        await tap.begin("c")
        for key in ("cb-" + "0" * 40, "somebody-elses-key"):
            async with session.post(
                tap.url + CHAT, json=body("hi"), headers={"Authorization": f"Bearer {key}", "x-context-bench": "x"}
            ) as reply:
                assert reply.status == 401
        assert_nothing_of_ours(server)
        assert {record.matched_by for record in await tap.unmatched()} == {"none"}


async def test_live_traffic_keeps_its_own_key():
    async with (
        ModelServer(Echo(), api_key="users-own-key") as server,
        Tap(server.url, upstream_key=KEY) as tap,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(
            tap.url + CHAT, json=body("hi"), headers={"Authorization": "Bearer users-own-key"}
        ) as reply:
            assert reply.status == 200
        (record,) = await tap.unmatched()
        assert "users-own-key" not in repr(record)


@pytest.mark.parametrize("marker", ["key", "header", "serial"])
async def test_a_stateful_proxy_forwards_the_same_bytes_with_and_without_marks(marker):
    """Two conversations, interleaved turns: once through a tap with marks, once with two ordinary keys and no tap at
    all.
    """
    turns = [("a", ["long text of a " * 20]), ("b", ["long text of a " * 20])]
    turns += [
        ("a", ["long text of a " * 20, "more a"]),
        ("b", ["long text of a " * 20, "more b"]),
        ("a", ["more a", "end a"]),
    ]

    async with ModelServer(Echo()) as plain, Stateful(plain.url) as proxy:
        for conversation, texts in turns:
            if marker == "key":
                headers = {"Authorization": f"Bearer ordinary-key-of-{conversation}"}
            else:
                headers = {"Authorization": "Bearer key-of-the-proxy"} if marker == "header" else {}
            async with (
                aiohttp.ClientSession() as session,
                session.post(proxy.url + CHAT, json=body(*texts), headers=headers) as reply,
            ):
                assert reply.status == 200
        expected = [received.raw for received in plain.requests]

    async with ModelServer(Echo()) as server, Tap(server.url, marker=marker) as tap, Stateful(tap.url) as proxy:
        for conversation, texts in turns:
            assert len(await once(tap, proxy.url, body(*texts), conversation)) == 1
        assert [received.raw for received in server.requests] == expected
        assert_nothing_of_ours(server)
    assert any(b"[seen" in raw for raw in expected)  # the proxy did something


async def test_the_tap_of_another_process_gives_the_same():
    sent = body("hello there " * 10)
    async with Tap("echo") as tap, Twice(tap.url) as proxy, RemoteTap(tap.url) as remote:
        here, there = await once(tap, proxy.url, sent), await once(remote, proxy.url, sent, "d")
        assert [r.facts for r in here] == [r.facts for r in there]
        assert [(r.tokens, r.request, r.reply, r.usage) for r in here] == [
            (r.tokens, r.request, r.reply, r.usage) for r in there
        ]
        assert there == [r for r in tap.records if r.window == 2]
