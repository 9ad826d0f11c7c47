"""The tap as a relay, on real sockets: what goes in comes out, byte for byte, also when things break."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import brotli
import pytest
import zstandard

from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import ChatClient
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.tap.masking import failure_of
from context_bench.wire.apis import chat_request
from context_bench.wire.request import count_request

CHAT = "/v1/chat/completions"
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello there"}]}


class Upstream:
    """A provider made of bytes: sees the exact request, answers exactly what `answer` writes."""

    def __init__(self, answer: Callable[["Upstream", asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.gone = asyncio.Event()  # a connection was closed by the other side
        self.sent = 0
        self.read_body = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if self.read_body:
                    self.bodies.append(await read_body(reader, head))
                await self.answer(self, writer)
                await writer.drain()
                if writer.is_closing():
                    break
        self.gone.set()
        writer.close()

    def lines(self, number: int = -1) -> list[str]:
        return self.heads[number].decode().split("\r\n")[1:-2]


async def read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
    if b"content-length" in headers:
        return await reader.readexactly(int(headers[b"content-length"]))
    body = b""
    if headers.get(b"transfer-encoding") == b"chunked":
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return body


@contextlib.asynccontextmanager
async def upstream(
    answer: Callable[[Upstream, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[tuple[Upstream, str]]:
    made = Upstream(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=2**20)
    async with server:
        yield made, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


def fixed(reply: bytes) -> Callable[[Upstream, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    return answer


def ok(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""])
    return head.encode() + body


async def talk(url: str, request: bytes, *, until: bytes = b"") -> bytes:
    """Say `request`, hear everything until the connection closes (or until `until` came)."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    writer.write(request)
    heard = b""
    with contextlib.suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(65_536), 10):
            heard += piece
            if until and heard.endswith(until):
                break
    writer.close()
    return heard


def ask(body: bytes = b"{}", *headers: str, line: str = f"POST {CHAT} HTTP/1.1") -> bytes:
    head = [line, "Host: localhost", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + body


async def test_the_request_arrives_as_it_was_sent():
    async with upstream(fixed(ok(b"{}"))) as (seen, url), Tap(url) as tap:
        body = json.dumps(BODY, indent=3).encode()
        await talk(
            tap.url, ask(body, "X-Twice: 1", "x-TWICE: 2", "Cookie: a=b; c=d", "Authorization: Bearer own-key-123")
        )
        assert seen.heads[0].startswith(f"POST {CHAT} HTTP/1.1\r\n".encode())
        host = url.removeprefix("http://")
        expected = [
            f"Content-Length: {len(body)}",
            "X-Twice: 1",
            "X-Twice: 2",
            "Cookie: a=b; c=d",
            "Authorization: Bearer own-key-123",
        ]
        assert [
            line for line in seen.lines() if not line.startswith("Host:")
        ] == expected  # nothing added, nothing lost, in order
        assert f"Host: {host}" in seen.lines()
        assert seen.bodies == [body]


async def test_the_answer_comes_back_as_it_was_given():
    reply = (
        b"HTTP/1.1 418 I'm a Teapot\r\nX-B: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nx-a: "
        b"2\r\nContent-Length: 3\r\n\r\nabc"
    )
    async with upstream(fixed(reply)) as (_, url), Tap(url) as tap:
        heard = await talk(tap.url, ask())
    head, _, body = heard.partition(b"\r\n\r\n")
    assert body == b"abc"
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 418 I'm a Teapot"
    assert [line for line in head.split(b"\r\n")[1:] if line != b"Connection: close"] == [
        b"X-B: 1",
        b"Set-Cookie: a=1",
        b"Set-Cookie: b=2",
        b"x-a: 2",
        b"Content-Length: 3",
    ]


async def test_hop_by_hop_headers_end_here():
    reply = ok(
        b"{}",
        "Connection: X-Hop, keep-alive",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authenticate: Basic",
        "X-Kept: 1",
    )
    async with upstream(fixed(reply)) as (seen, url), Tap(url) as tap:
        heard = await talk(
            tap.url,
            ask(
                b"{}",
                "Connection: close, X-Mine",
                "X-Mine: 1",
                "TE: trailers",
                "Upgrade: websocket",
                "Proxy-Authorization: x",
                "X-Kept: 2",
            ),
        )
    assert not [
        line
        for line in seen.lines()
        if line.split(":")[0].lower() in ("connection", "x-mine", "te", "upgrade", "proxy-authorization")
    ]
    assert "X-Kept: 2" in seen.lines()
    assert b"X-Kept: 1" in heard
    for gone in (b"X-Hop", b"Keep-Alive", b"Proxy-Authenticate"):
        assert gone not in heard


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "POST", "PROPFIND"])
async def test_every_method_and_unknown_routes_pass(method):
    async with upstream(fixed(ok(b"" if method == "HEAD" else b"ok"))) as (seen, url), Tap(url) as tap:
        await talk(tap.url, ask(b"", line=f"{method} /some/route?x=%2F HTTP/1.1"))
        await tap.settle(1)
        (record,) = tap.records
    assert seen.heads[0].startswith(f"{method} /some/route?x=%2F HTTP/1.1".encode())
    assert (record.wire, record.method, record.path, record.tokens) == ("other", method, "/some/route", None)


@pytest.mark.parametrize("path", ["", "/v1", "/v1/"])
async def test_the_upstream_may_be_given_with_or_without_v1(path):
    async with upstream(fixed(ok(b"{}"))) as (seen, url), Tap(url + path) as tap:
        await talk(tap.url, ask())
    assert seen.heads[0].startswith(f"POST {CHAT} ".encode())


async def test_chunks_pass_one_by_one_as_they_arrive():
    """Each event is sent only after the client has confirmed the one before: nothing is held back."""
    confirmed = asyncio.Queue[None]()
    events = [b"data: %d\r\n\r\n" % n for n in range(20)] + [b"data: \xf0\x9f", b"\x98\x80\n\n", b"data: [DONE]\n\n"]

    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.wait_for(confirmed.get(), 10)
        writer.write(b"0\r\n\r\n")

    async with upstream(answer) as (_, url), Tap(url) as tap, aiohttp.ClientSession() as session:
        async with session.post(tap.url + CHAT, json=BODY) as reply:
            assert reply.headers["Content-Type"] == "text/event-stream"
            for event in events:
                assert await reply.content.readexactly(len(event)) == event
                confirmed.put_nowait(None)
            assert await reply.read() == b""
        await tap.settle(1)
        assert tap.records[0].bytes_out == sum(map(len, events))


async def test_the_head_of_a_stream_is_not_held_back():
    go_on = asyncio.Event()

    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Early: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.wait_for(go_on.wait(), 10)
        writer.write(b"2\r\nok\r\n0\r\n\r\n")

    async with upstream(answer) as (_, url), Tap(url) as tap, aiohttp.ClientSession() as session:
        reply = await session.post(tap.url + CHAT, json=BODY)
        assert reply.headers["X-Early"] == "1"
        go_on.set()
        assert await reply.read() == b"ok"


@pytest.mark.parametrize(
    ("coding", "encode"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli.compress), ("zstd", zstandard.compress)],
)
async def test_coded_bodies_pass_as_they_are_and_are_read_for_the_record(coding, encode):
    reply = encode(
        json.dumps(
            {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
        ).encode()
    )
    sent = encode(json.dumps(BODY).encode())
    async with (
        upstream(fixed(ok(reply, f"Content-Encoding: {coding}", "Content-Type: application/json"))) as (seen, url),
        Tap(url) as tap,
    ):
        heard = await talk(tap.url, ask(sent, f"Content-Encoding: {coding}", f"Accept-Encoding: {coding}"))
        await tap.settle(1)
        (record,) = tap.records
    assert seen.bodies == [sent]
    assert f"Accept-Encoding: {coding}" in seen.lines()
    assert heard.endswith(b"\r\n\r\n" + reply)
    assert f"Content-Encoding: {coding}".encode() in heard
    assert record.usage is not None
    assert (record.tokens, record.usage.input_tokens, record.request) == (2, 7, BODY)


async def test_large_bodies_both_ways_with_and_without_length():
    digest = hashlib.sha256()
    block = bytes(range(256)) * 256
    blocks = 30 * 16  # 30 MB

    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(block) * blocks))
        for _n in range(blocks):
            writer.write(block)
            await writer.drain()

    async def body() -> AsyncIterator[bytes]:
        for _n in range(blocks):
            yield block

    for _n in range(blocks):
        digest.update(block)
    async with upstream(answer) as (seen, url), Tap(url, record="meta") as tap, aiohttp.ClientSession() as session:
        for data, framing in (
            (body(), "Transfer-Encoding: chunked"),
            (block * blocks, f"Content-Length: {len(block) * blocks}"),
        ):
            heard = hashlib.sha256()
            async with session.post(tap.url + "/upload", data=data) as reply:
                async for piece in reply.content.iter_any():
                    heard.update(piece)
            assert heard.digest() == digest.digest()
            assert hashlib.sha256(seen.bodies.pop()).digest() == digest.digest()
            assert framing in seen.lines()
        await tap.settle(1)
        assert {(r.bytes_in, r.bytes_out) for r in tap.records} == {(len(block) * blocks,) * 2}


async def test_a_slow_client_slows_the_upstream_down():
    total = 200 * 2**20

    async def answer(self: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while self.sent < total:
            writer.write(bytes(2**16))
            await writer.drain()
            self.sent += 2**16

    async with upstream(answer) as (seen, url), Tap(url) as tap, aiohttp.ClientSession(read_bufsize=2**16) as session:
        async with session.get(tap.url + "/big") as reply:
            await reply.content.readexactly(10)
            before = -1
            while seen.sent != before:  # until nothing moves any more
                before = seen.sent
                await asyncio.sleep(0.1)
            assert 0 < seen.sent < 40 * 2**20
        await asyncio.wait_for(seen.gone.wait(), 10)


async def test_a_client_that_goes_away_ends_the_upstream_request():
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        while True:
            await asyncio.sleep(0.01)
            writer.write(b"3\r\nabc\r\n")
            await writer.drain()

    async with upstream(answer) as (seen, url), Tap(url) as tap:
        async with aiohttp.ClientSession() as session, session.post(tap.url + CHAT, json=BODY) as reply:
            await reply.content.readexactly(3)
            reply.close()
        await asyncio.wait_for(seen.gone.wait(), 10)
        await tap.settle(2)
        (record,) = tap.records
        assert (record.error, record.status, record.tokens) == ("the client went away", 200, 2)


async def test_a_client_that_goes_away_before_the_answer_ends_the_upstream_request():
    asked = asyncio.Event()
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()  # until the tap closes
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, Tap(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as tap:
        _, writer = await asyncio.open_connection("127.0.0.1", int(tap.url.rpartition(":")[2]))
        writer.write(ask(b"{}"))
        await asyncio.wait_for(asked.wait(), 10)
        writer.close()
        await asyncio.wait_for(ended.wait(), 10)
        await tap.settle(2)
        assert (tap.records[0].error, tap.records[0].status) == ("the client went away", None)
        server.close()


@pytest.mark.parametrize(
    ("reply", "heard"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"3\r\nabc\r\n"),
    ],
    ids=["before the answer", "within a body of known length", "within a stream"],
)
async def test_an_upstream_that_breaks_off_breaks_off_for_the_client(reply, heard):
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    async with upstream(answer) as (seen, url), Tap(url) as tap:
        got = await talk(tap.url, ask())
        assert got.endswith(heard)
        assert bool(got) == bool(reply)
        assert b"0\r\n\r\n" not in got  # the end of a whole stream is never made up
        await tap.settle(2)
        (record,) = tap.records
        assert "upstream" in (record.error or "")
        assert record.status == (200 if reply else None)
    assert len(seen.heads) == 1  # and nothing was tried again


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nothing_is_sent_twice_on_a_kept_connection(method):
    replies = [ok(b"one"), b""]

    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(replies.pop(0))
        if not replies:
            writer.close()

    async with upstream(answer) as (seen, url), Tap(url) as tap, aiohttp.ClientSession() as session:
        async with session.request(method, tap.url + "/x") as reply:
            assert await reply.read() == b"one"
        with pytest.raises(aiohttp.ClientError):
            await session.post(tap.url + "/x") if method == "POST" else await talk_or_raise(tap.url)
    assert len(seen.heads) == 2


async def talk_or_raise(url: str) -> None:
    if not await talk(url, ask(b"", line="GET /x HTTP/1.1")):
        raise aiohttp.ServerDisconnectedError


async def test_a_body_that_ends_with_the_connection_passes_whole():
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nabc")
        writer.close()

    async with upstream(answer) as (_, url), Tap(url) as tap, aiohttp.ClientSession() as session:
        async with session.post(tap.url + CHAT, json=BODY) as reply:
            assert await reply.read() == b"abc"
        await tap.settle(1)
        assert tap.records[0].error is None


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(status):
    async with upstream(fixed(f"HTTP/1.1 {status} X\r\nETag: 1\r\n\r\n".encode())) as (_, url), Tap(url) as tap:
        heard = await talk(tap.url, ask(b"", line="GET /x HTTP/1.1"))
    assert heard.startswith(f"HTTP/1.1 {status} X\r\nETag: 1\r\n".encode())
    assert heard.endswith(b"\r\n\r\n")


async def test_redirects_are_passed_on_and_not_followed():
    async with (
        upstream(fixed(b"HTTP/1.1 307 Go\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")) as (seen, url),
        Tap(url) as tap,
    ):
        heard = await talk(tap.url, ask())
    assert b"Location: /elsewhere" in heard
    assert len(seen.heads) == 1


async def test_provider_errors_pass_untouched():
    body = b'{"error":{"message":"slow down","type":"rate_limit"}}'
    reply = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with upstream(fixed(reply)) as (seen, url), Tap(url) as tap:
        heard = await talk(tap.url, ask())
        await tap.settle(1)
        assert tap.records[0].error == "HTTP 429: slow down"
    assert b"Retry-After: 7" in heard
    assert heard.endswith(body)
    assert len(seen.heads) == 1


async def test_an_unreachable_upstream_is_said_plainly(unused_tcp_port):
    async with Tap(f"http://127.0.0.1:{unused_tcp_port}") as tap, aiohttp.ClientSession() as session:
        async with session.post(tap.url + CHAT, json=BODY) as reply:
            assert reply.status == 502
            assert "cannot be reached" in (await reply.json())["error"]["message"]
        await tap.settle(1)
        assert "cannot be reached" in (tap.records[0].error or "")
        assert tap.records[0].tokens == 2


async def test_an_upstream_that_speaks_no_http_is_said_plainly():
    async with (
        upstream(fixed(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")) as (_, url),
        Tap(url) as tap,
        aiohttp.ClientSession() as session,
    ):
        reply = await session.post(tap.url + CHAT, json=BODY)
        assert reply.status == 502
        assert "did not answer in HTTP" in await reply.text()


async def test_expect_100_continue():
    async with upstream(fixed(ok(b"{}"))) as (seen, url), Tap(url) as tap:
        port = int(tap.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode()
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abcd")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
    assert seen.bodies == [b"abcd"]
    assert not [line for line in seen.lines() if line.lower().startswith("expect")]


async def test_an_early_answer_to_a_large_upload_gets_through():
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    async def body() -> AsyncIterator[bytes]:
        yield bytes(2**20)
        await asyncio.wait_for(answered.wait(), 10)
        yield b"the rest"

    answered = asyncio.Event()
    async with upstream(answer) as (seen, url), Tap(url) as tap, aiohttp.ClientSession() as session:
        seen.read_body = False
        async with session.post(tap.url + CHAT, data=body()) as reply:
            assert reply.status == 413
            answered.set()
            assert await reply.read() == b"big"


async def test_bytes_that_are_no_utf8_pass_in_headers():
    async with upstream(fixed(ok(b"{}", "X-Back: caf\u00e9"))) as (seen, url), Tap(url) as tap:
        request = ask(b"{}", "X-There: caf").replace(b"X-There: caf", b"X-There: caf\xc3\xa9")
        heard = await talk(tap.url, request)
    assert b"X-There: caf\xc3\xa9\r\n" in seen.heads[0]
    assert "X-Back: café".encode() in heard


async def test_a_thousand_streams_at_once():
    """All are open at the same time, proven by a gate that opens only when the last one has begun."""
    begun, together = 0, asyncio.Event()
    count = 1_000

    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n"
        )
        begun += 1
        if begun == count:
            together.set()
        await together.wait()
        writer.write(b"3\r\n1\n\n\r\n0\r\n\r\n")

    async def one(session: aiohttp.ClientSession, number: int) -> bytes:
        async with session.post(f"{tap.url}/stream/{number}", data=str(number)) as reply:
            return await reply.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with upstream(answer) as (seen, url), Tap(url) as tap, aiohttp.ClientSession(connector=connector) as session:
        replies = await asyncio.wait_for(asyncio.gather(*(one(session, n) for n in range(count))), 300)
        assert set(replies) == {b"data: 1\n\n"}
        await tap.settle(5)
        assert sorted(int(r.path.rpartition("/")[2]) for r in tap.records) == list(range(count))
        assert {r.error for r in tap.records} == {None}
    assert sorted(map(int, seen.bodies)) == list(range(count))


async def test_requests_of_one_connection_are_told_apart():
    async with ModelServer(Echo()) as server, Tap(server.url) as tap, aiohttp.ClientSession() as session:
        for n in range(5):
            async with session.post(
                tap.url + CHAT, json={**BODY, "messages": [{"role": "user", "content": "x " * (n + 1)}]}
            ) as reply:
                assert reply.status == 200
        await tap.settle(1)
        assert len({r.id for r in tap.records}) == 5
        assert [len(r.request["messages"][0]["content"]) for r in tap.records] == [2, 4, 6, 8, 10]
        assert [r.tokens for r in tap.records] == [
            count_request(item.request, counter_for("gpt-4o")).total for item in server.requests
        ]


async def test_strangers_are_refused_and_not_relayed():
    async with ModelServer(Echo()) as server, Tap(server.url) as tap, aiohttp.ClientSession() as session:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            async with session.get(tap.url + "/v1/models", headers=headers) as reply:
                assert reply.status == 403
        async with session.get(tap.url + "/v1/models", headers={"Origin": "http://localhost:5173"}) as reply:
            assert reply.status == 200
        assert server.seen == 1
        assert tap.status()["refused"] == 3


async def test_a_taken_port_and_a_mistaken_upstream_are_told():
    async with Tap("echo") as tap:
        port = int(tap.url.rpartition(":")[2])
        with pytest.raises(BadInput, match="another port"):
            await Tap("echo", port=port).start()
    with pytest.raises(BadInput, match="own address"):
        await Tap(f"http://localhost:{port}", port=port).start()
    with pytest.raises(BadInput, match="no upstream"):
        await Tap("nonsense").start()
    with pytest.raises(BadInput, match="has not been started"):
        _ = Tap("echo").url


async def test_stopping_breaks_off_what_is_under_way_and_records_it():
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        await asyncio.Event().wait()

    server = await asyncio.start_server(Upstream(answer).serve, "127.0.0.1", 0)
    tap = await Tap(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}").start()
    async with aiohttp.ClientSession() as session, session.post(tap.url + CHAT, json=BODY) as reply:
        await reply.content.readexactly(3)
        await asyncio.wait_for(tap.stop(), 10)
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()
    assert [r.error for r in tap.records] == ["the tap was stopped"]
    server.close()


def sse(*events: object) -> bytes:
    return b"".join(
        b"data: %s\n\n" % (each if isinstance(each, bytes) else json.dumps(each).encode()) for each in events
    )


def delta(text: str, finish: str | None = None) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


WHOLE = sse(
    delta("Paris"), delta("", "stop"), {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, b"[DONE]"
)


@pytest.mark.parametrize("policy", ["meta", "redacted", "full"])
async def test_what_a_stream_says_after_its_end_goes_through_and_is_told_apart(policy):
    more = sse(delta(" EVIL"))
    reply = WHOLE + more * 3
    async with (
        upstream(fixed(ok(reply, "Content-Type: text/event-stream"))) as (_, url),
        Tap(url, record=policy) as tap,
    ):
        heard = await talk(tap.url, ask(json.dumps({**BODY, "stream": True}).encode()))
        await tap.settle(1)
        (record,) = tap.records
    assert heard.endswith(reply)  # bytes are relayed as they came
    after = record.facts["after_done"]
    assert (after["events"], record.facts["reply_complete"], record.error) == (3, True, None)
    assert ("EVIL" in str(after)) == (policy != "meta")
    assert "EVIL" not in str(record.reply)


async def test_a_client_that_leaves_a_stalled_stream_at_its_end_has_its_whole_answer():
    async def answer(_: Upstream, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(WHOLE), WHOLE))
        await writer.drain()
        await asyncio.sleep(60)

    async with upstream(answer) as (_, url), Tap(url) as tap, asyncio.timeout(20):
        async with ChatClient(tap.url, max_retries=0, timeout=60) as client:
            reply = await client.send(chat_request({**BODY, "stream": True}))
        await tap.settle(5)
        (record,) = tap.records
    assert reply.text == "Paris"
    assert (record.error, failure_of(record), record.facts["reply_complete"]) == (None, None, True)
    assert record.usage is not None
