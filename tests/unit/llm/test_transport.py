"""The HTTP client on real loopback sockets: replies in every framing and however cut, connections kept, ended and given
up.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from context_bench.core.errors import Refused
from context_bench.llm import transport as pool_module
from context_bench.llm.transport import (
    LARGEST_HEAD,
    Broken,
    CannotConnect,
    NotHttp,
    Transport,
    Unusable,
    address_of,
    head_of,
)
from context_bench.llm.transport.response import MOST_AHEAD, _large_read_slots

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
MIB = 2**20


class Raw:
    """A server that answers each request with the next of `replies` (the last one for ever), in pieces; `b""` ends the
    connection.
    """

    def __init__(self, *replies: bytes | list[bytes]) -> None:
        self.replies = [[reply] if isinstance(reply, bytes) else reply for reply in replies]
        self.requests: list[tuple[int, bytes, bytes]] = []  # (number of the connection, head, body)
        self.connections = self.open = 0
        self.gone = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.requests.append((number, head, await reader.readexactly(length)))
                for piece in self.replies[min(len(self.requests), len(self.replies)) - 1]:
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= 1
            self.gone.set()
            writer.close()


@asynccontextmanager
async def raw(
    *replies: bytes | list[bytes], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Raw, Callable[..., object]]]:
    """A raw server, and a function that asks it once: (status, body)."""
    told, transport = Raw(*replies), Transport()
    server = await asyncio.start_server(told.talk, "127.0.0.1", 0, ssl=tls)
    scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
    address = address_of(f"{scheme}://{host}:{server.sockets[0].getsockname()[1]}/v1/x")

    async def ask(body: bytes = b"{}", limit: int = 64 * MIB, seconds: float | None = 20) -> tuple[int, bytes]:
        response = await transport.post(address, head_of(address, {"x-mine": "1"}), body, seconds)
        try:
            return response.status, await response.read(limit)
        finally:
            response.close()

    ask.transport, ask.address = transport, address  # type: ignore[attr-defined]
    yield told, ask
    transport.close()
    server.close()


def framed(body: bytes, framing: str, sizes: list[int]) -> bytes:
    if framing == "length":
        return b"content-length: %d\r\n\r\n%b" % (len(body), body)
    if framing == "close":
        return b"\r\n" + body
    chunks, rest = b"", body
    for size in sizes:
        piece, rest = rest[:size], rest[size:]
        chunks += b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) if piece else b""
    chunks += b"%X\r\n%b\r\n" % (len(rest), rest) if rest else b""
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nx-trailer: 1\r\n\r\n"


@given(
    body=st.binary(max_size=300),
    framing=st.sampled_from(["length", "chunked", "close"]),
    coding=st.sampled_from(["", "gzip", "deflate", "raw deflate"]),
    sizes=st.lists(st.integers(1, 40), max_size=6),
    cuts=st.lists(st.integers(1, 400), max_size=8),
    early=st.booleans(),
)
@hypothesis_settings(max_examples=60)
def test_a_reply_reads_the_same_however_it_is_framed_coded_and_cut(
    body: bytes, framing: str, coding: str, sizes: list[int], cuts: list[int], early: bool
) -> None:
    packed = {
        "": body,
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw deflate": zlib.compress(body)[2:-4],
    }[coding]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b; c=d\r\n" + (
        b"Content-Encoding: %b\r\n" % coding.split()[-1].encode() if coding else b""
    )
    whole = (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" if early else b"") + head + framed(packed, framing, sizes)
    places = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(places)]

    async def main() -> None:
        async with raw([*pieces, *([b""] if framing == "close" else [])]) as (server, ask):
            assert await ask() == (200, body)
            assert await ask() == (200, body)
            assert server.connections == (2 if framing == "close" else 1)

    asyncio.run(main())


@given(junk=st.binary(min_size=1, max_size=120), cut=st.integers(0, 120), good=st.integers(0, len(OK)))
@hypothesis_settings(max_examples=60)
def test_any_bytes_end_as_a_reply_or_as_trouble(junk: bytes, cut: int, good: int) -> None:
    async def main() -> None:
        async with raw([*filter(None, (OK[:good] + junk[:cut], junk[cut:])), b""]) as (_, ask):
            with suppress(NotHttp, Broken):
                await ask()

    asyncio.run(main())


async def test_a_request_is_what_was_ordered_and_connections_are_used_again() -> None:
    async with raw(OK) as (server, ask):
        for number in range(5):
            assert await ask(b"n" * number) == (200, b"ok")
        assert {connection for connection, _, _ in server.requests} == {1}
        assert [body for _, _, body in server.requests] == [b"n" * number for number in range(5)]
        head = server.requests[0][1].decode()
        assert head.startswith("POST /v1/x HTTP/1.1\r\n")
        assert f"host: {ask.address.authority}\r\n" in head
        assert "x-mine: 1\r\n" in head
        assert "accept-encoding: identity\r\n" in head
        await asyncio.gather(*(ask() for _ in range(7)))
        assert server.connections <= 7


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ([b""], Broken),
        ([b"HTTP/1.1 200 OK\r\ncontent-le", b""], Broken),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", b""], Broken),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", b""], Broken),
        ([b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 99)[:-9], b""], Broken),
        ([b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 4\r\n\r\nnope"], NotHttp),
        ([b"220 mail.example ESMTP\r\n"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"], NotHttp),
        ([b"HTTP/1.1 101 Other\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"], NotHttp),
        ([OK + b"and more"], NotHttp),
        ([OK + OK], NotHttp),
        ([b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: 1\r\n" % n for n in range(300)) + b"\r\n"], NotHttp),
        ([b"HTTP/1.1 200 OK\r\nx: "] + [b"y" * 60_000] * (LARGEST_HEAD // 60_000 + 2), NotHttp),
        (
            [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: "]
            + [b"y" * 60_000] * (LARGEST_HEAD // 60_000 + 2),
            NotHttp,
        ),
    ],
)
async def test_replies_that_are_none_cost_the_connection_and_not_the_next_reply(
    reply: list[bytes], kind: type[Exception]
) -> None:
    async with raw(reply, OK) as (server, ask):
        with pytest.raises(kind):
            await ask()
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_a_connection_that_the_server_ends_between_two_requests_is_not_asked_on() -> None:
    async with raw([OK, b""], OK) as (server, ask):
        assert await ask() == (200, b"ok")
        await server.gone.wait()
        await asyncio.sleep(0.01)
        assert await ask() == (200, b"ok")
        assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.parametrize("told", [b"connection: close", b"keep-alive: timeout=1"])
async def test_a_server_that_says_so_gets_a_new_connection(told: bytes) -> None:
    async with raw(OK.replace(b"content", told + b"\r\ncontent", 1)) as (server, ask):
        await ask()
        await ask()
        assert server.connections == 2


async def test_old_connections_are_looked_at_and_swept_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_LOOKED_AT", 0.0)  # all are looked at
    async with raw(OK) as (server, ask):
        await ask()
        await ask()
        assert server.connections == 1
        ask.transport._loop.call_soon(ask.transport._sweep)
        (kept,) = ask.transport._all
        kept.good_until = 0
        await server.gone.wait()
        assert await ask() == (200, b"ok")
        assert server.connections == 2


async def test_nothing_is_sent_twice_when_a_kept_connection_breaks() -> None:
    """Whether to ask again is for the one who counts attempts."""
    async with raw(OK, [b""], OK) as (server, ask):
        await ask()
        with pytest.raises(Broken, match="before the reply"):
            await ask()
        assert len(server.requests) == 2


async def test_time_that_runs_out_and_callers_that_go_away_end_the_connection() -> None:
    async with raw([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"]) as (server, ask):
        with pytest.raises(TimeoutError):
            await ask(seconds=0.05)
        await server.gone.wait()
        server.gone.clear()
        task = asyncio.create_task(ask())
        while len(server.requests) < 2:  # noqa: ASYNC110 (the server's list has no event)
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.gone.wait()
        assert server.open == 0


async def test_no_more_is_read_ahead_than_is_allowed_nor_than_is_wanted() -> None:
    many = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (40 * MIB), *[b"z" * MIB] * 40]
    async with raw(many) as (server, ask):
        response = await ask.transport.post(ask.address, head_of(ask.address, {}), b"", 20)
        await asyncio.sleep(0.05)
        assert MOST_AHEAD < response.ahead < 2 * MOST_AHEAD
        assert len(await response.read(40 * MIB)) == 40 * MIB
        assert len((await ask(limit=MIB))[1]) == MIB
        await server.gone.wait()


async def test_a_small_body_that_unpacks_to_a_large_one_stops_at_the_limit() -> None:
    bomb = gzip.compress(bytes(16 * MIB), 1)
    async with raw(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(bomb), bomb)
    ) as (_, ask):
        status, body = await ask(limit=3 * MIB)
        assert (status, len(body)) == (200, 3 * MIB)


async def test_a_body_that_cannot_be_unpacked() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope") as (_, ask):
        with pytest.raises(NotHttp, match="compressed"):
            await ask()


async def test_nobody_there_and_names_that_nobody_knows() -> None:
    async with raw(OK) as (_, ask):
        pass
    for url in (f"http://127.0.0.1:{ask.address.port}/", "http://no-such-host.invalid/"):
        transport = Transport()
        with pytest.raises(CannotConnect):
            await transport.post(address_of(url), head_of(address_of(url), {}), b"")
        transport.close()


@pytest.mark.parametrize(
    "url", ["http:///x", "ftp://h/", "http://h:99999/", "http://[::1/", "http://a b/", "http://\x00/"]
)
def test_urls_that_cannot_be_called(url: str) -> None:
    with pytest.raises(Unusable):
        address_of(url)


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://h", "h", "/"),
        ("https://H:443/a%20b/ü?q=ü&r=%2F", "h", "/a%20b/%C3%BC?q=%C3%BC&r=%2F"),
        ("http://[::1]:8080/x y", "[::1]:8080", "/x%20y"),
        ("https://bücher.example:80/", "xn--bcher-kva.example:80", "/"),
    ],
)
def test_addresses(url: str, authority: str, target: str) -> None:
    assert (address_of(url).authority, address_of(url).target) == (authority, target)


@pytest.mark.parametrize("header", [{"x": "a\r\ny: b"}, {"x\n": "a"}, {"a b": "c"}, {"x": "\x00"}])
def test_no_header_becomes_two(header: dict[str, str]) -> None:
    with pytest.raises(Refused, match="cannot be sent"):
        head_of(address_of("http://h"), header)


async def test_over_tls_with_one_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: Callable[..., Path]
) -> None:
    file = certificate(tmp_path, "localhost", days=99)
    mine, theirs = ssl.create_default_context(cafile=file), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    monkeypatch.setattr(pool_module, "tls", lambda: mine)
    large = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (3 * MIB, b"z" * 3 * MIB)
    async with raw(OK, large, [b"HTTP/1.1 200 OK\r\n\r\nto the end", b""], tls=theirs) as (server, ask):
        assert await ask() == (200, b"ok")
        assert await ask(b"x" * MIB) == (200, b"z" * 3 * MIB)
        assert await ask() == (200, b"to the end")
        assert server.connections == 1


async def test_large_bodies_are_read_a_few_at_a_time_and_deadlines_hold_meanwhile() -> None:
    many = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (6 * MIB), *[b"z" * MIB] * 6]
    async with raw(many) as (_, ask):
        room, loop = _large_read_slots(), asyncio.get_running_loop()
        for _ in range(4):
            await room.acquire()
        begun = loop.time()
        with pytest.raises(TimeoutError):
            await ask(seconds=0.3)
        assert loop.time() - begun < 2
        for _ in range(4):
            room.release()
        answers = await asyncio.gather(*[ask() for _ in range(6)])
        assert [len(body) for _, body in answers] == [6 * MIB] * 6
        assert not room.locked()
