"""The proxies for tests and the demonstration do what they say, on every wire, and nothing else."""

import json

import aiohttp
import pytest

from context_bench.core.errors import UnknownName
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES, build
from context_bench.testing.hostile import HABITS, MisbehavingProxy
from context_bench.wire.request import changes, facts

CONTEXT = "\n\n".join(f"Part {i} of the manual says that valve {i} opens at {i + 50} degrees." for i in range(20))
EXAMPLE = {"id": 1, "context": CONTEXT, "question": "When does valve 3 open?"}
EVERY = pytest.mark.parametrize("shape", list(SHAPES))


async def through(habit, *requests, key="k", **options):
    """What reaches a model server behind the proxy, request by request."""
    async with (
        ModelServer(Echo()) as model,
        MisbehavingProxy(habit, model.url, **options) as proxy,
        aiohttp.ClientSession() as session,
    ):
        for request in requests:
            headers = {**request.headers, "Authorization": f"Bearer {key}"}
            async with session.post(
                proxy.url + request.path, data=json.dumps(request.body).encode(), headers=headers
            ) as reply:
                assert reply.status == 200
                await reply.read()
        return list(model.requests)


def seen(request, received):
    return changes(facts(request.parsed()), facts(received.request))


def test_the_table_in_the_docs_names_them_all():
    import context_bench.testing.hostile as module

    assert all(f"| `{habit}` |" in module.__doc__ for habit in HABITS)
    with pytest.raises(UnknownName, match="halves"):
        MisbehavingProxy("halfs", "http://127.0.0.1:1")


@EVERY
async def test_nothing(shape):
    request = build(shape, EXAMPLE, "m")
    (received,) = await through("nothing", request)
    assert received.raw == json.dumps(request.body).encode()


@EVERY
async def test_halves(shape):
    request = build(shape, EXAMPLE, "m")
    (received,) = await through("halves", request)
    assert CONTEXT[: len(CONTEXT) // 2] in received.text
    assert "valve 19" not in received.text
    assert EXAMPLE["question"] in received.text
    assert seen(request, received) == []


@EVERY
async def test_user_only(shape):
    request = build(shape, EXAMPLE, "m", system_prompt="Be brief.")
    (received,) = await through("user-only", request)
    roles = {message.role for message in received.request.messages}
    if shape in ("plain-system", "plain-user", "tool-result", "openai-agent"):
        assert roles == {"user"}
    assert "system" not in roles
    assert any(change.kind == "role" for change in seen(request, received))
    assert CONTEXT in received.text


@EVERY
async def test_calls_twice(shape):
    request = build(shape, EXAMPLE, "m")
    extra, received = await through("calls-twice", request)
    assert extra.text.startswith("Summarise")
    assert extra.headers["authorization"] == "Bearer k"
    assert received.raw == json.dumps(request.body).encode()


async def test_drops_keys():
    request = build("claude-code", EXAMPLE, "m")
    (received,) = await through("drops-keys", request)
    assert not {"authorization", "x-api-key"} & received.headers.keys()
    (received,) = await through("drops-keys", request, own_key="mine")
    assert received.headers["authorization"] == "Bearer mine"
    assert received.raw == json.dumps(request.body).encode()


@EVERY
async def test_plain_only(shape):
    request = build(shape, EXAMPLE, "m")
    (received,) = await through("plain-only", request)
    assert ("valve 19" in received.text) == (not shape.startswith("plain"))


async def test_remembers_per_key():
    first = build("tool-result", EXAMPLE, "m")
    again = build("tool-result", {**EXAMPLE, "question": "And valve 4?"}, "m")
    one, two = await through("remembers", first, again)
    assert one.raw == json.dumps(first.body).encode()
    assert "Part 7" not in two.text
    assert "[as before]" in two.text

    async with (
        ModelServer(Echo()) as model,
        MisbehavingProxy("remembers", model.url) as proxy,
        aiohttp.ClientSession() as session,
    ):
        for key in ("a", "b"):
            async with session.post(proxy.url + first.path, json=first.body, headers={"Authorization": key}) as reply:
                await reply.read()
        assert model.requests[0].text == model.requests[1].text


async def test_rewrites_history():
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i} " * 20} for i in range(5)]
    long, longer = ({"id": 1, "context": "", "turns": turns[:n]} for n in (3, 5))
    one, two = await through("rewrites-history", build("plain-user", long, "m"), build("plain-user", longer, "m"))
    assert one.request.messages[0].text != two.request.messages[0].text
    assert one.request.messages[-1].text == turns[2]["content"]
    assert "[cut at message 3]" in one.text
    (single,) = await through("rewrites-history", build("plain-user", EXAMPLE, "m"))
    assert single.raw == json.dumps(build("plain-user", EXAMPLE, "m").body).encode()


@EVERY
async def test_buffers(shape):
    request = build(shape, EXAMPLE, "m")
    (received,) = await through("buffers", request)
    assert received.raw == json.dumps(request.body).encode()
    async with (
        ModelServer(Echo()) as model,
        MisbehavingProxy("buffers", model.url) as proxy,
        aiohttp.ClientSession() as session,
    ):
        replies = []
        for url in (model.url, proxy.url):
            async with session.post(url + request.path, json=request.body) as reply:
                replies.append((reply.content_type, await reply.read()))
        assert replies[0] == replies[1]


def test_from_a_plain_script():
    with MisbehavingProxy("nothing", "http://127.0.0.1:9") as proxy:
        assert proxy.url.startswith("http://127.0.0.1:")
