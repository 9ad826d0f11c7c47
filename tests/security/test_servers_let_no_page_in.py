"""Every server that context-bench starts: on loopback only, for this machine's programs, no web page; no bad request
hurts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from pathlib import Path

import pytest

import context_bench
from context_bench.engine import open_store
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.session.runs import result_of
from context_bench.systems.serve import Served
from context_bench.tap import Tap
from context_bench.testing.hostile import Hostile, MisbehavingProxy
from context_bench.traffic.explain.web import DropPage
from context_bench.viewer import Viewer
from minihub import MiniHub

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\n"
FOREIGN = [
    "Host: attacker.example",
    "Host: attacker.example:{port}",
    "Host: 127.0.0.1.attacker.example:{port}",
    "Host: localhost.attacker.example:{port}",
    "Host: [::1",
    "Host: 169.254.169.254",
    "Host: 127.0.0.1:{port}\r\nOrigin: https://attacker.example",
    "Host: 127.0.0.1:{port}\r\nOrigin: null",
    "Host: 127.0.0.1:{port}\r\nOrigin: http://[::1",
    "Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site",
    "Host: localhost:{port}\r\nSec-Fetch-Site: Cross-Site\r\nSec-Fetch-Mode: no-cors",
]


@contextlib.asynccontextmanager
async def tap(folder):
    async with Tap("echo") as server:
        yield server.url


@contextlib.asynccontextmanager
async def model(folder):
    async with ModelServer(Echo()) as server:
        yield server.url


@contextlib.asynccontextmanager
async def serve(folder):
    async with ModelServer(Echo()) as upstream, Served("full", upstream.url) as server:
        yield server.url


@contextlib.asynccontextmanager
async def proxy(folder):
    async with ModelServer(Echo()) as upstream, MisbehavingProxy("nothing", upstream.url) as server:
        yield server.url


@contextlib.asynccontextmanager
async def hub(folder):
    with MiniHub({}) as server:
        yield server.url


@contextlib.asynccontextmanager
async def hostile(folder):
    async with Hostile("answer") as server:
        yield server.url


@contextlib.asynccontextmanager
async def viewer(folder):
    with open_store(folder / "store.db"):
        pass
    async with Viewer(folder / "store.db", result_of=result_of) as server:
        yield server.address


@contextlib.asynccontextmanager
async def explained(folder):
    async with DropPage() as server:
        yield server.url


SERVERS = [tap, model, serve, proxy, hub, hostile, viewer, explained]


#: Where the package listens, and who of the list above stands for it.
LISTENING = {
    "llm/servers.py": model,
    "llm/hop.py": serve,  # and proxy
    "tap/tap_server.py": tap,
    "testing/hostile.py": hostile,
    "viewer/server.py": viewer,
    "traffic/explain/web.py": explained,
}


def test_no_server_of_the_package_is_left_out():
    package = Path(context_bench.__file__).parent
    binds = re.compile(
        r"TCPSite\(|SockSite\(|UnixSite\(|run_app\(|start_server\(|create_server\(|HTTPServer\(|[. ]listen\("
    )
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if binds.search(path.read_text("utf-8"))}
    assert found - {"llm/responders.py"} == LISTENING.keys()  # there stands `listen`, which others call
    assert set(LISTENING.values()) | {proxy, hub} == set(SERVERS)


async def exchange(port, data, *, host="127.0.0.1"):
    """Send bytes, read until the other side has nothing more to say: (status, all of the reply)."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        try:
            reply = await asyncio.wait_for(reader.read(2**20), 20)
        except ConnectionError:
            reply = b""
    finally:
        writer.close()
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.") else None, reply


def port_of(url):
    return int(url.rpartition(":")[2])


def request(line, head, body=BODY):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return line + f"{head}\r\nContent-Type: text/plain\r\n{length}Connection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize("server", SERVERS)
async def test_no_page_is_let_in_by_any_name_or_way(server, tmp_path):
    async with server(tmp_path) as url:
        port = port_of(url)
        for head in FOREIGN:
            for line, body in (
                (CHAT, BODY),
                (b"GET /v1/models HTTP/1.1\r\n", b""),
                (b"OPTIONS /v1/models HTTP/1.1\r\n", b""),
            ):
                status, reply = await exchange(port, request(line, head.format(port=port), body))
                assert status in (400, 403, 405), (head, line, reply)
                assert b"access-control" not in reply.lower()
        status, _ = await exchange(port, request(b"GET /v1/models HTTP/1.1\r\n", f"Host: localhost:{port}", b""))
        assert status in (
            200,
            403,
            404,
        )  # three have no such page, and the viewer wants its token


@pytest.mark.parametrize("server", [tap, model, serve, proxy, hostile])
async def test_a_program_and_a_page_of_this_machine_are_let_in(server, tmp_path):
    async with server(tmp_path) as url:
        for head in (
            "Host: localhost:1",
            "Host: [::1]",
            "Host: 127.0.0.1\r\nOrigin: http://localhost:3000\r\nSec-Fetch-Site: same-site",
        ):
            status, reply = await exchange(port_of(url), request(CHAT, head))
            assert status == 200, reply
            assert b"access-control" not in reply.lower()


@pytest.mark.parametrize("server", SERVERS)
async def test_only_the_loopback_address_is_bound(server, tmp_path):
    async with server(tmp_path) as url:
        with pytest.raises(ConnectionRefusedError):  # a server on every address would answer here
            await exchange(port_of(url), b"GET / HTTP/1.1\r\n\r\n", host="127.0.0.2")


SMUGGLED = CHAT + b"Host: 127.0.0.1\r\n"
AMBIGUOUS = [
    SMUGGLED + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\n" + BODY,
    SMUGGLED + b"Content-Length: 5, 50\r\n\r\n" + BODY,
    SMUGGLED
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    SMUGGLED + b"Content-Length: -1\r\n\r\n" + BODY,
    SMUGGLED + b"Content-Length: 0x10\r\n\r\n" + BODY,
    SMUGGLED + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
    SMUGGLED + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    SMUGGLED + b" Content-Length: 5\r\n\r\n" + BODY,
    SMUGGLED + b"X-Big: " + b"a" * 2**20 + b"\r\n\r\n",
    b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 1000,
]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_request_that_could_be_read_in_two_ways_is_not_read(server, tmp_path):
    async with server(tmp_path) as url:
        for data in AMBIGUOUS:
            status, reply = await exchange(port_of(url), data)
            assert status is None or 400 <= status < 500, data[:200]
            assert reply.count(b"HTTP/1.") <= 1, data[:200]  # what stood in a body was not taken for a second request
        status, _ = await exchange(port_of(url), request(b"GET /v1/models HTTP/1.1\r\n", "Host: localhost", b""))
        assert status in (200, 403, 404)


RENAMING = [
    "t://x",
    "munity://x",
    "@elsewhere",
    ":1",
    ".elsewhere",
    "t",
    "%74",
    "ftp://127.0.0.1",
    "http:/x",
    "http:///x",
    "https://",
    "//",
]
ABSOLUTE = [
    "http://elsewhere.example:1",
    "HTTPS://elsewhere.example",
    "http://[::1",
    "http://user:word@[",
    "http://x:99999999",
]


@pytest.mark.parametrize(
    "server", [lambda url: Tap(url), lambda url: Served("full", url), lambda url: MisbehavingProxy("nothing", url)]
)
@pytest.mark.parametrize("base", ["", "/v1"])
async def test_no_request_target_names_another_host_than_the_upstream(server, base):
    """`localhos` and a target that begins with `t` must not make `localhost`: each target goes to the one upstream, or
    nowhere.
    """
    async with ModelServer(Echo()) as upstream, server(upstream.url + base) as running:
        for begins in [*RENAMING, *ABSOLUTE]:
            target = f"{begins}/v1/chat/completions"
            seen = upstream.seen
            status, reply = await exchange(
                port_of(running.url), request(f"POST {target} HTTP/1.1\r\n".encode(), "Host: localhost")
            )
            if begins in ABSOLUTE or begins == "//":
                assert status in (200, 400, 404), (target, reply)
                assert upstream.seen == seen + (status != 400), target
            else:
                assert (status, upstream.seen) == (400, seen), (target, reply)
            if status != 400:
                assert upstream.requests[-1].headers["host"] == upstream.url.removeprefix("http://"), target


async def test_what_a_target_says_is_never_put_behind_the_name_of_the_upstream():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        listening.setblocking(False)
        async with Served(
            "full", f"http://127.0.0.1:{port // 10}"
        ) as served:  # with one more digit it is a server that listens
            status, _ = await exchange(
                port_of(served.url), request(f"POST {port % 10}/v1/x HTTP/1.1\r\n".encode(), "Host: localhost")
            )
            assert status == 400
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("server", SERVERS)
async def test_malformed_requests_leave_no_traceback(server, tmp_path, capfd, caplog):
    async with server(tmp_path) as url:
        for data in [
            *AMBIGUOUS,
            b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\n",
            b"POST http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]:
            await exchange(port_of(url), data)
    told = capfd.readouterr().err + caplog.text
    assert "Traceback" not in told
    assert len(told.splitlines()) <= len(AMBIGUOUS) + 2


@pytest.mark.parametrize("server", [tap, model, serve, hostile, viewer])
async def test_connections_that_never_finish_a_request_keep_nobody_else_out(server, tmp_path):
    async with server(tmp_path) as url:
        slow = [await asyncio.open_connection("127.0.0.1", port_of(url)) for _ in range(150)]
        for _, writer in slow:
            writer.write(CHAT + b"Host: 127.0.0.1\r\nX-Slow: ")
            await writer.drain()
        status, _ = await exchange(
            port_of(url), request(b"GET /v1/models HTTP/1.1\r\n", f"Host: localhost:{port_of(url)}", b"")
        )
        assert status in (200, 403, 404)
    for _, writer in slow:  # the server is gone, and nothing of them held it up
        writer.close()
