"""Model servers on real sockets: what they serve, what they remember, how they misbehave on purpose."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import aiohttp
import pytest

from context_bench.core.errors import BadInput, BadReply
from context_bench.core.records import Usage
from context_bench.core.tokens import count_tokens
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer, ResponderError, raise_descriptor_limit, upstream_of
from context_bench.llm.shapes import SHAPES, build
from context_bench.wire.apis import Reply, StreamReader, parse_reply, stream_reader
from context_bench.wire.request import WireRequest

PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}
WIRES = tuple(PATHS)
ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream_options": {"include_usage": True}}


def asked(wire: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hello", **more} if wire == "openai-responses" else {**ASK, **more}


async def post(
    server: ModelServer, wire: str = "openai-chat", headers: dict[str, str] | None = None, **more: Any
) -> tuple[int, Any, dict[str, str]]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.url + PATHS[wire], json=asked(wire, **more), headers=headers) as reply,
    ):
        return reply.status, await reply.read(), {name.lower(): value for name, value in reply.headers.items()}


async def stream(server: ModelServer, wire: str) -> tuple[StreamReader, list[bytes]]:
    reader, chunks = stream_reader(wire), list[bytes]()
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.url + PATHS[wire], json=asked(wire, stream=True)) as reply,
    ):
        assert reply.content_type == "text/event-stream"
        async for chunk, _ in reply.content.iter_chunks():
            chunks.append(chunk)
            reader.feed(chunk)
    reader.close()
    return reader, chunks


@pytest.mark.parametrize("wire", WIRES)
async def test_the_same_answer_whole_and_streamed(wire: str) -> None:
    rule = {"text": "Grüße 🎉", "reasoning": "hm", "tool_calls": [{"name": "f", "arguments": {"a": "ä"}}]}
    async with ModelServer(Scripted([rule])) as server:
        status, body, _ = await post(server, wire)
        assert status == 200
        whole = parse_reply(wire, json.loads(body))
        reader, _ = await stream(server, wire)
        assert (reader.complete, reader.error) == (True, None)
        assert reader.reply == whole
        assert whole.text == "Grüße 🎉"
        assert whole.usage is not None
        assert whole.usage.input_tokens == count_tokens("hello")


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_server_remembers_what_every_shape_sent(shape: str) -> None:
    example = {"id": 1, "context": "The gauge is 4.2 m wide.", "question": "How wide?"}
    request = build(shape, example, "gpt-4o", stream=True)
    async with ModelServer(Echo()) as server, aiohttp.ClientSession() as client:
        async with client.post(
            server.url + request.path, json=request.body, headers={**request.headers, "Authorization": "Bearer k"}
        ) as reply:
            await reply.read()
        (received,) = server.requests
        assert (received.method, received.path, received.wire) == ("POST", request.path, request.wire)
        assert received.body == request.body
        assert received.request == request.parsed()
        assert example["context"] in received.text
        assert {name: received.headers[name] for name in request.headers} == request.headers
        assert received.headers["authorization"] == "Bearer k"
        assert "Bearer" not in repr(received), "keys stay out of messages"
        assert server.seen == 1
        assert server.in_flight == 0


async def test_what_is_remembered_is_bounded() -> None:
    async with ModelServer(Echo(), keep=3) as server:
        for _ in range(5):
            await post(server)
        assert (server.seen, len(server.requests)) == (5, 3)
    async with ModelServer(Echo(), keep_bytes=5_000) as server:
        for size in (100, 3_000, 3_000):
            await post(server, x="y" * size)
        assert (server.seen, len(server.requests)) == (3, 1)


async def test_other_routes() -> None:
    async with ModelServer(Echo()) as server, aiohttp.ClientSession(server.url) as client:
        async with client.get("/v1/models") as reply:
            assert [model["id"] for model in (await reply.json())["data"]] == ["echo"]
        async with client.get("/v1/models/echo") as reply:
            assert (await reply.json())["object"] == "model"
        async with client.get("/v1/models/other") as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "model_not_found")
        async with client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}) as reply:
            assert await reply.json() == {
                "data": [{"type": "model", "id": "echo", "display_name": "echo"}],
                "has_more": False,
                "first_id": "echo",
                "last_id": "echo",
            }
        async with client.get("/health") as reply:
            assert (await reply.json())["status"] == "ok"
        count = {"model": "claude-x", "system": "be brief", "messages": [{"role": "user", "content": "hello world"}]}
        async with client.post("/v1/messages/count_tokens", json=count) as reply:
            assert await reply.json() == {"input_tokens": count_tokens("be brief") + count_tokens("hello world")}
        async with client.post("/v1/embeddings", json={"model": "e", "input": ["a b", "b a", "c"]}) as reply:
            found = await reply.json()
            assert [entry["index"] for entry in found["data"]] == [0, 1, 2]
            assert found["data"][0]["embedding"] == found["data"][1]["embedding"] != found["data"][2]["embedding"]
            assert found["usage"]["prompt_tokens"] == count_tokens("a b") + count_tokens("b a") + count_tokens("c")
        async with client.post("/v1/files", json={}) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "unknown_url")


async def test_a_model_without_embeddings_says_so() -> None:
    async with (
        ModelServer(Scripted([])) as server,
        aiohttp.ClientSession(server.url) as client,
        client.post("/v1/embeddings", json={"input": "x"}) as reply,
    ):
        assert (reply.status, (await reply.json())["error"]["message"]) == (404, "scripted offers no embeddings")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b"{}", b'{"messages": []}', b'{"messages": "x"}', b"\xff\xfe"]
)
@pytest.mark.parametrize("wire", WIRES)
async def test_bodies_that_are_no_requests_get_400_in_the_providers_form(wire: str, body: bytes) -> None:
    async with ModelServer(Echo()) as server, aiohttp.ClientSession() as client:
        async with client.post(server.url + PATHS[wire], data=body) as reply:
            error = await reply.json()
            assert reply.status == 400
            assert error["error"]["type"] == "invalid_request_error"
            assert ("type" in error) == (wire == "anthropic")
        assert server.requests[0].raw == body


async def test_a_compressed_body_is_understood() -> None:
    async with ModelServer(Echo()) as server, aiohttp.ClientSession() as client:
        async with client.post(
            server.url + PATHS["openai-chat"],
            data=gzip.compress(json.dumps(ASK).encode()),
            headers={"Content-Encoding": "gzip"},
        ) as reply:
            assert reply.status == 200
        assert server.requests[0].body == ASK


async def test_only_those_with_the_key_are_served() -> None:
    async with ModelServer(Echo(), api_key="sécret") as server:
        for wire, headers, status in [
            ("openai-chat", {}, 401),
            ("openai-chat", {"Authorization": "Bearer wrong"}, 401),
            ("anthropic", {"x-api-key": ""}, 401),
        ]:
            found, body, _ = await post(server, wire, headers)
            assert found == status
            assert json.loads(body)["error"]["type"] == (
                "authentication_error" if wire == "anthropic" else "invalid_request_error"
            )
            assert b"wrong" not in body
        assert server.seen == 0, "a refused request never reached the model"
    async with ModelServer(Echo(), api_key="secret") as server:
        assert (await post(server, "openai-chat", {"Authorization": "Bearer secret"}))[0] == 200
        assert (await post(server, "anthropic", {"x-api-key": "secret"}))[0] == 200


async def test_a_web_page_cannot_reach_it_by_a_name_of_its_own() -> None:
    async with ModelServer(Echo()) as server:
        for host, status in (
            ("evil.example", 403),
            ("evil.example:80", 403),
            ("localhost", 200),
            (f"127.0.0.1:{server.port}", 200),
            ("[::1]:5", 200),
        ):
            assert (await post(server, headers={"Host": host}))[0] == status
        assert server.seen == 3


async def test_a_taken_port_is_said_plainly() -> None:
    async with ModelServer(Echo()) as server:
        with pytest.raises(BadInput, match=str(server.port)):
            await ModelServer(Echo(), port=server.port).start()
        assert server.url == f"http://127.0.0.1:{server.port}"


class Broken:
    name = "broken"

    async def reply(self, request: WireRequest, headers: Any) -> Reply:
        raise KeyError("the model's own fault")


async def test_a_fault_of_the_responder_is_told_in_the_providers_form(caplog: pytest.LogCaptureFixture) -> None:
    async with ModelServer(Broken()) as server:
        status, body, _ = await post(server, "anthropic")
        error = json.loads(body)["error"]
        assert (status, error["type"]) == (500, "api_error")
        assert "the model's own fault" in error["message"]
        assert "broken failed on /v1/messages" in caplog.text


class Refusing:
    name = "refusing"

    async def reply(self, request: WireRequest, headers: Any) -> Reply:
        raise ResponderError(
            400, "too long", kind="exceed_context_size_error", extra={"n_ctx": 8192}, headers={"x-why": "size"}
        )


async def test_a_responder_may_refuse() -> None:
    async with ModelServer(Refusing()) as server:
        status, body, headers = await post(server)
        assert (status, headers["x-why"]) == (400, "size")
        assert json.loads(body)["error"] == {
            "message": "too long",
            "type": "exceed_context_size_error",
            "param": None,
            "code": None,
            "n_ctx": 8192,
        }


# Misbehaviour
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "openai", "claude"),
    [
        (429, "rate_limit_exceeded", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (529, "server_error", "overloaded_error"),
        (404, "invalid_request_error", "not_found_error"),
    ],
)
async def test_errors_in_the_form_of_each_provider(status: int, openai: str, claude: str) -> None:
    async with ModelServer(Scripted([{"status": status, "error": "because", "retry_after": 3}])) as server:
        for wire, kind in (("openai-chat", openai), ("openai-responses", openai), ("anthropic", claude)):
            for more in ({}, {"stream": True}):
                found, body, headers = await post(server, wire, **more)
                error = json.loads(body)["error"]
                assert (found, error["message"], error["type"], headers["retry-after"]) == (
                    status,
                    "because",
                    kind,
                    "3",
                )


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"error": {"message": "hidden", "type": "server_error"}}, "server_error: hidden"),
        ({"malformed": True}, None),
        ({"malformed": "{'single': 'quotes'}"}, None),
        ({"html": True}, None),
    ],
)
async def test_success_that_is_none(wire: str, rule: dict[str, Any], says: str | None) -> None:
    async with ModelServer(Scripted([rule])) as server:
        status, body, headers = await post(server, wire)
        assert status == 200
        if says is None:
            with pytest.raises(ValueError):
                json.loads(body)
            assert headers["content-type"].startswith("text/html" if "html" in rule else "application/json")
        else:
            with pytest.raises(BadReply, match=says):
                parse_reply(wire, json.loads(body))


async def test_replies_without_an_answer() -> None:
    async with ModelServer(Scripted([{"empty_choices": True}])) as server:
        with pytest.raises(BadReply, match="empty choices"):
            parse_reply("openai-chat", json.loads((await post(server))[1]))
    for rule, expected in [
        ({"text": None, "finish_reason": "content_filter"}, (None, "content_filter")),
        ({"text": "", "finish_reason": "length", "reasoning": "hm"}, ("", "length")),
        ({"refusal": "no"}, (None, "stop")),
    ]:
        async with ModelServer(Scripted([rule])) as server:
            reply = parse_reply("openai-chat", json.loads((await post(server))[1]))
            assert (reply.text, reply.finish_reason) == expected


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("place", "streamed"),
    [("before-headers", False), ("before-headers", True), ("mid-body", False), ("mid-stream", True)],
)
async def test_connections_break_where_they_are_told_to(place: str, streamed: bool, reset: bool) -> None:
    async with ModelServer(Scripted([{"disconnect": place, "reset": reset, "text": "x" * 5000}])) as server:
        seen = bytearray()

        async def read() -> None:
            url, body = server.url + PATHS["openai-chat"], asked("openai-chat", stream=streamed)
            async with aiohttp.ClientSession() as client, client.post(url, json=body) as reply:
                assert place != "before-headers"
                async for chunk in reply.content.iter_any():
                    seen.extend(chunk)

        with pytest.raises((aiohttp.ClientError, ConnectionError)) as caught:
            await read()
        if not reset:
            assert bool(seen) == (place != "before-headers")
            kind = aiohttp.ServerDisconnectedError if place == "before-headers" else aiohttp.ClientPayloadError
            assert isinstance(caught.value, kind)
        assert b"[DONE]" not in seen
        assert server.seen == 1
        await asyncio.sleep(0)
        assert server.in_flight == 0


async def test_a_wrong_content_length_both_ways() -> None:
    async with ModelServer(Scripted([{"content_length": 10}])) as server:
        _, body, headers = await post(server)
        assert (len(body), headers["content-length"]) == (10, "10")
    async with ModelServer(Scripted([{"content_length": 100_000}])) as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(server)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("ending", ["\r", "\r\n"])
async def test_streams_in_odd_clothes(wire: str, ending: str) -> None:
    rule = {"text": "Grüße 🎉 aus 北京", "chunk_bytes": 3, "line_end": ending, "comments": True}
    async with ModelServer(Scripted([rule])) as server:
        reader, _ = await stream(server, wire)
        assert (reader.reply.text, reader.complete) == ("Grüße 🎉 aus 北京", True)


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_in_the_middle_of_a_stream(wire: str) -> None:
    async with ModelServer(Scripted([{"text": "long " * 50, "stream_error": "overloaded"}])) as server:
        reader, _ = await stream(server, wire)
        assert "overloaded" in (reader.error or "")
        assert not reader.complete
        assert reader.started


async def test_a_refusal_in_the_words_of_each_provider() -> None:
    async with ModelServer(Scripted([{"refusal": "I will not"}])) as server:
        found = {wire: parse_reply(wire, json.loads((await post(server, wire))[1])) for wire in WIRES}
    assert [(reply.text, reply.refusal, reply.finish_reason) for reply in found.values()] == [
        (None, "I will not", "stop"),
        (None, "I will not", "stop"),
        ("I will not", None, "content_filter"),
    ]


async def test_the_end_mark_can_be_left_out() -> None:
    async with ModelServer(Scripted([{"text": "hi", "done": False}])) as server:
        reader, chunks = await stream(server, "openai-chat")
        assert b"[DONE]" not in b"".join(chunks)
        assert reader.complete
        assert not (await stream(server, "anthropic"))[0].complete


async def test_a_stalled_reply_ends_with_the_client() -> None:
    async with ModelServer(Scripted([{"delay": "forever"}])) as server:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post(server), 0.2)
        for _ in range(100):
            if not server.in_flight:
                break
            await asyncio.sleep(0.01)
        assert server.in_flight == 0, "nobody waits for a client who left"


async def test_chunks_leave_one_by_one() -> None:
    async with ModelServer(Scripted([{"text": "abcdefgh", "pieces": 4, "chunk_delay": 0.005}])) as server:
        reader, chunks = await stream(server, "openai-chat")
        assert len(chunks) >= 6
        assert reader.reply.text == "abcdefgh"


async def test_a_thousand_streams_at_once() -> None:
    """All of them are open at the same moment, and each gets its own whole answer."""
    total = min(
        1000, (raise_descriptor_limit() - 200) // 2
    )  # two descriptors each; fewer only where the system forbids it
    async with ModelServer(Meeting(total)) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def one(number: int) -> str | None:
                reader = stream_reader("openai-chat")
                body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"n{number}"}]}
                async with client.post(server.url + "/v1/chat/completions", json=body) as reply:
                    async for chunk in reply.content.iter_any():
                        reader.feed(chunk)
                reader.close()
                return reader.reply.text if reader.complete else None

            assert await asyncio.gather(*map(one, range(total))) == [f"n{number}" for number in range(total)]
        assert (server.seen, server.most_in_flight, server.in_flight) == (total, total, 0)


class Meeting:
    """Answers nobody until everybody is there, then each with its own words."""

    name = "meeting"

    def __init__(self, guests: int) -> None:
        self._guests, self._all = guests, asyncio.Event()

    async def reply(self, request: WireRequest, headers: Any) -> Reply:
        self._guests -= 1
        if not self._guests:
            self._all.set()
        await self._all.wait()
        return Reply(text=request.messages[-1].text, finish_reason="stop", usage=Usage(1, 1))


async def test_upstreams_by_name(tmp_path: Any) -> None:
    script = tmp_path / "a b.json"
    script.write_text('{"default": "from a file"}')
    found = upstream_of(f"scripted:{script}")
    assert not isinstance(found, str)
    async with ModelServer(found) as server:
        assert parse_reply("openai-chat", json.loads((await post(server))[1])).text == "from a file"
    assert isinstance(upstream_of("echo"), Echo)
    assert upstream_of("https://api.example.com/v1/") == "https://api.example.com/v1"
    for text in ("", "scripted:", "ftp://x", "localhost:8000", "http://", "Echo"):
        with pytest.raises(BadInput, match="no upstream"):
            upstream_of(text)
