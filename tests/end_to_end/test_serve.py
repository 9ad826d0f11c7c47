"""`serve`: compressors and systems as real HTTP proxies in front of a real HTTP model server."""

import asyncio
import gzip
import json
import re
import socket
import sys

import aiohttp
import pytest
import zstandard
from aiohttp import web

from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.llm.background import run_sync
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES, build
from context_bench.systems import OpenAIProxy, Served
from context_bench.wire.apis import parse_reply, stream_reader

CONTEXT = "\n\n".join(
    f"Section {i}. Pump {i} was built in {1900 + i}. It moves {i * 7} litres per minute." for i in range(80)
)
EXAMPLE = {"id": "e", "context": CONTEXT, "question": "When was pump 33 built?"}
COUNT = counter_for().count


async def send(url, request, **headers):
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            url + request.path, data=json.dumps(request.body).encode(), headers={**request.headers, **headers}
        ) as reply,
    ):
        return reply.status, await reply.read(), reply.headers


SERVED_CLIENT = """
import json, os, sys, urllib.request
body = {"model": "gpt-4o", "max_tokens": 5, "messages": [{"role": "user", "content": "Say it."}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
request.add_header("Content-Type", "application/json")
assert b"fine" in urllib.request.urlopen(request).read()
print(os.environ["ANTHROPIC_BASE_URL"], sys.argv[1:])
sys.exit(7)
"""


@pytest.mark.parametrize("port", ["0", None])
async def test_a_command_runs_once_it_serves_and_ends_it(port, tmp_path):
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
    async with ModelServer(Scripted({"default": "fine"})) as server:
        client = [sys.executable, "-c", SERVED_CLIENT, "--help", "x"]
        line = ["serve", "--system", "full", "--port", port, "--upstream", server.url, "--", *client]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "context_bench", *line, cwd=tmp_path, stdout=pipe, stderr=pipe
        )
        out, error = await process.communicate()
    assert process.returncode == 7, error.decode()
    assert re.fullmatch(rf"http://127.0.0.1:{port if port != '0' else r'[0-9]+'} \['--help', 'x'\]\n", out.decode())
    assert "full on http://127.0.0.1:" in error.decode()
    assert "ends with " in error.decode()
    assert server.seen == 1


class Halver:
    name = "halver"

    def process(self, example):
        return {**example, "context": example["context"][: len(example["context"]) // 2]}


class Oracle:
    name = "oracle"

    async def process(self, example):
        return {
            **example,
            "response": f"asked {example['question']!r} of {len(example['context'])} characters",
            "api_usage": {"prompt_tokens": 7, "completion_tokens": 2},
        }


class Broken:
    name = "broken"

    def process(self, example):
        raise ZeroDivisionError("oh no")


async def test_full_passes_every_byte_on():
    raw = (
        b'{ "model":"m" ,"temperature":1.10, "odd": '
        b'{"z":[1e400]},"messages":[{"role":"user","content":"a\\u00e9\\n\\nb"}] }'
    )
    headers = {
        "Authorization": "Bearer secret-1",
        "X-Context-Bench": "tok",
        "Accept-Encoding": "zstd, br",
        "X-Odd": "é",
        "content-type": "application/json",
    }
    async with ModelServer(Echo()) as model, Served("full", model.url) as served, aiohttp.ClientSession() as session:
        async with session.post(
            served.url + "/v1/chat/completions?beta=%2Fx&y=a+b", data=raw, headers=headers
        ) as reply:
            assert reply.status == 200
        received = model.requests[-1]
        assert received.raw == raw
        assert {name: received.headers[name.lower()] for name in headers} == headers


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("spec", ["head_tail:budget=150", "bm25:budget=150", "random_drop:budget=150,seed=1"])
async def test_the_context_of_every_shape_is_brought_down_and_the_rest_stays(shape, spec):
    request = build(shape, EXAMPLE, "m", params={"x_unknown": {"a": [1]}})
    async with ModelServer(Echo()) as model, Served(spec, model.url) as served:
        status, _, _ = await send(served.url, request, authorization="Bearer k")
        got = model.requests[-1]
    assert status == 200
    assert got.headers["authorization"] == "Bearer k"
    sent, kept = request.parsed(), got.request
    assert [m.role for m in kept.messages] == [m.role for m in sent.messages]
    assert (kept.tools, kept.params, kept.model, kept.stream) == (sent.tools, sent.params, sent.model, sent.stream)
    assert [[p.cache_control for p in m.parts] for m in kept.messages] == [
        [p.cache_control for p in m.parts] for m in sent.messages
    ]
    assert EXAMPLE["question"] in got.text
    full, left = (sum(COUNT(p.text) for m in r.messages for p in m.parts if p.text) for r in (sent, kept))
    assert full - left >= COUNT(CONTEXT) - 150 - 5
    assert full - left <= COUNT(CONTEXT) - 150 + 30
    if spec.startswith("bm25"):
        assert "Pump 33 was built in 1933" in got.text


async def test_none_leaves_the_question():
    async with ModelServer(Echo()) as model, Served("none", model.url) as served:
        await send(served.url, build("plain-user", EXAMPLE, "m"))
        assert model.requests[-1].text == f"Question: {EXAMPLE['question']}"


@pytest.mark.parametrize("shape", ["plain-user", "codex", "claude-code"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_system_that_returns_a_context_or_answers_itself(shape, stream):
    request = build(shape, EXAMPLE, "m", stream=stream)
    request.body["stream"] = stream
    async with (
        ModelServer(Echo()) as model,
        Served(Halver(), model.url) as halved,
        Served(Oracle(), model.url) as oracle,
    ):
        await send(halved.url, request)
        assert CONTEXT[: len(CONTEXT) // 2] in model.requests[-1].text
        assert "Section 79" not in model.requests[-1].text
        seen = model.seen
        _, raw, headers = await send(oracle.url, request)
        assert model.seen == seen
    if stream:
        reader = stream_reader(request.wire)
        reader.feed(raw)
        reader.close()
        reply = reader.reply
        assert reader.complete
        assert headers["Content-Type"].startswith("text/event-stream")
    else:
        reply = parse_reply(request.wire, json.loads(raw))
    assert reply.text.startswith("asked 'When was pump 33 built?' of ")
    assert reply.usage.input_tokens == 7


async def test_a_system_by_its_import_path():
    async with (
        ModelServer(Echo()) as model,
        Served("py:context_bench.compression.compressors.ranked_sentences:BM25:budget=40", model.url) as served,
    ):
        await send(served.url, build("plain-user", EXAMPLE, "m"))
        assert served.name == "bm25"
        assert COUNT(model.requests[-1].text) < 70


async def test_a_plugins_failure_is_an_error_in_the_providers_form():
    async with ModelServer(Echo()) as model, Served(Broken(), model.url) as served:
        status, raw, _ = await send(served.url, build("plain-user", EXAMPLE, "m"))
        assert (status, model.seen) == (500, 0)
        assert "broken: ZeroDivisionError: oh no" in json.loads(raw)["error"]["message"]
        status, raw, _ = await send(served.url, build("claude-code", EXAMPLE, "m"))
        assert json.loads(raw)["type"] == "error"


class Waiting:
    """An upstream that sends the first half of a stream and the second only when told."""

    def __init__(self):
        self.go_on, self.left = asyncio.Event(), asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.handle)
        self.runner = web.AppRunner(app, handler_cancellation=True)

    async def handle(self, request):
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"data: first\n\n")
            await self.go_on.wait()
            await response.write(b"data: second\n\n")
            return response
        finally:
            self.left.set()

    async def __aenter__(self):
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error):
        await self.runner.cleanup()


async def test_streams_are_passed_on_as_they_come():
    async with (
        Waiting() as upstream,
        Served("head_tail", upstream.url) as served,
        aiohttp.ClientSession() as session,
        session.post(served.url + "/v1/chat/completions", json={"stream": True}) as reply,
    ):
        assert await reply.content.readuntil(b"\n\n") == b"data: first\n\n"
        upstream.go_on.set()
        assert await reply.content.read() == b"data: second\n\n"


async def test_a_client_that_leaves_ends_the_call_upstream():
    async with Waiting() as upstream, Served("full", upstream.url) as served:
        async with aiohttp.ClientSession() as session:
            reply = await session.post(served.url + "/v1/chat/completions", json={})
            await reply.content.readuntil(b"\n\n")
            reply.close()
        await asyncio.wait_for(upstream.left.wait(), 10)
        assert not upstream.go_on.is_set()


async def test_errors_and_their_headers_are_passed_on():
    script = {"rules": [{"status": 429, "error": "slow down", "retry_after": 7}]}
    async with ModelServer(Scripted(script)) as model, Served("head_tail", model.url) as served:
        status, raw, headers = await send(served.url, build("plain-user", EXAMPLE, "m"))
        direct = await send(model.url, build("plain-user", EXAMPLE, "m"))
    assert (status, raw, headers["Retry-After"]) == (429, direct[1], "7")


@pytest.mark.parametrize("where", ["before-headers", "mid-body", "mid-stream"])
async def test_a_broken_upstream_is_a_broken_reply_never_a_whole_one(where):
    script = {"rules": [{"text": "half of this " * 50, "disconnect": where}]}
    request = build("plain-user", EXAMPLE, "m", stream=where == "mid-stream")
    async with ModelServer(Scripted(script)) as model, Served("full", model.url) as served:
        if where == "before-headers":
            status, raw, _ = await send(served.url, request)
            assert status == 502
            assert "gave no reply" in json.loads(raw)["error"]["message"]
        else:
            with pytest.raises(aiohttp.ClientError):
                await send(served.url, request)


async def test_no_upstream_is_a_502_that_names_it():
    async with ModelServer(Echo()) as model:
        gone = model.url
    async with Served("full", gone) as served:
        status, raw, _ = await send(served.url, build("claude-code", EXAMPLE, "m"))
    assert status == 502
    assert gone in json.loads(raw)["error"]["message"]


async def test_compressed_bodies_both_ways():
    request = build("plain-user", EXAMPLE, "m")
    plain = json.dumps(request.body).encode()
    async with ModelServer(Echo()) as model, aiohttp.ClientSession() as session:
        async with Served("head_tail:budget=60", model.url) as served:
            for coding, packed in (("gzip", gzip.compress(plain)), ("zstd", zstandard.compress(plain))):
                headers = {**request.headers, "Content-Encoding": coding}
                async with session.post(served.url + request.path, data=packed, headers=headers) as reply:
                    assert reply.status == 200
                assert "content-encoding" not in model.requests[-1].headers
                assert COUNT(model.requests[-1].text) < 90
        async with (
            Served("full", model.url) as served,
            session.post(
                served.url + request.path, data=gzip.compress(plain), headers={"Content-Encoding": "gzip"}
            ) as reply,
        ):
            assert reply.status == 200


async def test_models_counts_and_unknown_routes_are_relayed():
    async with ModelServer(Echo()) as model, Served("none", model.url) as served, aiohttp.ClientSession() as session:
        async with session.get(served.url + "/v1/models") as reply:
            assert (await reply.json())["data"][0]["id"] == "echo"
        request = build("claude-code", EXAMPLE, "m")
        async with session.post(served.url + "/v1/messages/count_tokens", json=request.body) as reply:
            assert (await reply.json())["input_tokens"] > COUNT(CONTEXT)
        async with session.put(served.url + "/anything/else?x=1", data=b"\x00\xff") as reply:
            assert reply.status == 404
        assert (model.requests[-1].method, model.requests[-1].path, model.requests[-1].raw) == (
            "PUT",
            "/anything/else",
            b"\x00\xff",
        )
        async with session.head(served.url + "/v1/models") as reply:
            assert reply.status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[1,2]",
        b'{"messages":"x"}',
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\\ud800\\n\\nx"}]}',
    ],
)
async def test_bodies_that_make_no_sense_reach_the_upstream_which_may_refuse_them(body):
    async with (
        ModelServer(Echo()) as model,
        Served("head_tail:budget=500", model.url) as served,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(served.url + "/v1/chat/completions", data=body) as reply:
            await reply.read()
        assert model.requests[-1].raw == body


async def test_an_upstream_key_replaces_the_clients():
    async with ModelServer(Echo(), api_key="real") as model, Served("full", model.url, upstream_key="real") as served:
        chat, agent = build("plain-user", EXAMPLE, "m"), build("claude-code", EXAMPLE, "m")
        assert (await send(served.url, chat, authorization="Bearer one-time"))[0] == 200
        assert (await send(served.url, agent, **{"x-api-key": "one-time"}))[0] == 200
        assert (await send(served.url, agent))[0] == 200
        assert all("one-time" not in str(received.headers) for received in model.requests)


async def test_a_login_in_the_upstreams_url_goes_with_requests_that_bring_no_key_and_is_told_nobody():
    server = ModelServer(Echo())
    await server.start()
    url = server.url.replace("://", "://user:hunter%202@")
    async with Served("full", url) as served, aiohttp.ClientSession() as session:
        for given, sent in ({}, "Basic dXNlcjpodW50ZXIgMg=="), ({"Authorization": "Bearer own"}, "Bearer own"):
            async with session.get(served.url + "/v1/models", headers=given) as reply:
                assert reply.status == 200
            assert server.requests[-1].headers["authorization"] == sent
        await server.stop()
    async with Served("full", url) as served:
        status, raw, _ = await send(served.url, build("plain-user", EXAMPLE, "m"))
    assert status == 502
    assert b"hunter" not in raw


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_upstreams_with_and_without_v1(suffix):
    async with ModelServer(Echo()) as model, Served("full", model.url + suffix) as served:
        await send(served.url, build("plain-user", EXAMPLE, "m"))
        assert model.requests[-1].path == "/v1/chat/completions"


async def test_a_web_page_cannot_reach_it_by_another_name():
    async with ModelServer(Echo()) as model, Served("full", model.url) as served:
        status, _, _ = await send(served.url, build("plain-user", EXAMPLE, "m"), host="evil.example")
        assert (status, model.seen) == (403, 0)


async def test_long_headers_pass():
    async with ModelServer(Echo()) as model, Served("full", model.url) as served:
        status, _, _ = await send(served.url, build("plain-user", EXAMPLE, "m"), **{"x-long": "v" * 7000})
        assert status == 200
        assert model.requests[-1].headers["x-long"] == "v" * 7000


async def test_many_at_once_keep_apart():
    async def ask(i):
        example = {"id": i, "context": f"The code of box {i} is {i * i}. " * 40, "question": f"Box {i}?"}
        _, raw, _ = await send(served.url, build("plain-user", example, "m"))
        return raw

    async with ModelServer(Echo()) as model, Served("head_tail:budget=40", model.url) as served:
        await asyncio.gather(*map(ask, range(40)))
        for received in model.requests:
            number = received.text.rpartition("Box ")[2].rstrip("?")
            assert f"code of box {number} is" in received.text
            assert received.text.count("Question") == 1


@pytest.mark.parametrize(
    ("spec", "upstream"),
    [
        ("full", "not a url"),
        ("full", "ftp://x"),
        ("head_tail:keep=7", "http://127.0.0.1:1"),
        (object(), "http://127.0.0.1:1"),
    ],
)
def test_what_cannot_work_is_said_at_once(spec, upstream):
    with pytest.raises(BadInput):
        Served(spec, upstream)


async def test_a_taken_port_is_named():
    async with ModelServer(Echo()) as model:
        with pytest.raises(BadInput, match=str(model.port)):
            await Served("full", model.url, port=model.port).start()


def test_from_a_plain_script():
    with ModelInThread() as model, Served("none", model.url) as served:
        output = OpenAIProxy(served.url, shape="plain-user", max_retries=0).process(EXAMPLE)
        assert output["response"].startswith("echo ")
        assert model.server.requests[-1].text == f"Question: {EXAMPLE['question']}"


class ModelInThread:
    """A model server on the background loop, for tests without a loop of their own."""

    def __enter__(self):
        self.server = ModelServer(Echo())
        run_sync(self.server.start())
        self.url = self.server.url
        return self

    def __exit__(self, *error):
        run_sync(self.server.stop())
