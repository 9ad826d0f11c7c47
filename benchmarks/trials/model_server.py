"""`context-bench model serve` as a server: hostile and broken requests, idle and slow clients, parallel ones, kills,
one port for two.

    python benchmarks/trials/model_server.py

Needs the bundled model (`make model`). The lists of hostile heads and ambiguous requests are those of
`tests/security/test_servers_let_no_page_in.py`. Exit code 1 if a promise did not hold.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import common
from soak_programs import free_port, listening

SHARED = Path(__file__).parents[2] / "tests" / "security" / "test_servers_let_no_page_in.py"
TEXT = "The gauge of the railway is 1435 mm. The bridge was opened in 1932. The river below it is called Tamar."
QUESTIONS = (
    "When was the bridge opened?",
    "What is the river called?",
    "What is the gauge?",
    "What was opened in 1932?",
)
#: What no model can answer, as bodies of a chat request; each is refused by a 4xx that says why.
WRONG: tuple[bytes, ...] = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"{}",
    b'{"messages": []}',
    b'{"messages": {}}',
    b'{"messages": [1, 2]}',
    b'{"messages": [{"role": "user"}]}',
    b'{"messages": [{"role": "user", "content": null}]}',
    b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://h/"}}]}]}',
    b"[" * 100_000,
    b'{"a": ' * 100_000,
    b"\xff\xfe{\x00}\x00",
    b"\x00" * 1000,
)


def _of_tests() -> Any:
    found = importlib.util.spec_from_file_location("servers_and_pages", SHARED)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def chat(question: str, **more: Any) -> bytes:
    """The body of a question about the text."""
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": f"{TEXT}\n\n{question}"}], **more}
    ).encode()


class Server:
    """One `model serve`, on one port all the time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.noise = folder, free_port(), list[str]()
        self.command: common.Command | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self.command = await common.Command(self.folder, ["model", "serve", "--port", str(self.port)]).start()
        await listening(self.port)

    async def end(self, how: int) -> tuple[common.Ended, float]:
        """End it by a signal; how long that took."""
        assert self.command is not None
        began = time.monotonic()
        self.command.signal(how)
        ended = await self.command.ended(60)
        self.noise += ended.noise
        return ended, time.monotonic() - began

    async def send(self, data: bytes, seconds: float = 120) -> tuple[int | None, bytes]:
        """Send bytes and read to the end: (status, body)."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            try:
                writer.write(data)
                await writer.drain()
                reply = await asyncio.wait_for(reader.read(-1), seconds)
            except ConnectionError:
                reply = b""
        finally:
            writer.close()
        status = int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.") else None
        return status, reply.partition(b"\r\n\r\n")[2]

    async def post(
        self, body: bytes, path: str = "/v1/chat/completions", seconds: float = 120
    ) -> tuple[int | None, bytes]:
        """A POST of a body."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            f"{len(body)}\r\n"
        )
        return await self.send(head.encode() + b"Connection: close\r\n\r\n" + body, seconds)

    async def answer(self, question: str) -> str:
        """The model's answer; empty where there is none."""
        status, body = await self.post(chat(question))
        return str(json.loads(body)["choices"][0]["message"]["content"]) if status == 200 else ""

    async def health(self) -> float:
        """Seconds until a short request is answered; a minute if it is not."""
        began = time.monotonic()
        status, _ = await self.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 60)
        return time.monotonic() - began if status == 200 else 60.0

    def megabytes(self) -> float:
        """Peak of its memory."""
        assert self.command is not None
        assert self.command.process is not None
        status = Path(f"/proc/{self.command.process.pid}/status").read_text()
        return float(status.partition("VmHWM:")[2].split()[0]) / 1024


async def who_may(server: Server, table: common.Table) -> None:
    """Foreign pages and hosts; requests that can be read in two ways."""
    shared = _of_tests()
    lines = (
        (shared.CHAT, shared.BODY),
        (b"GET /v1/models HTTP/1.1\r\n", b""),
        (b"OPTIONS /v1/models HTTP/1.1\r\n", b""),
    )
    found = []
    for head in shared.FOREIGN:
        for line, body in lines:
            status, reply = await shared.exchange(
                server.port, shared.request(line, head.format(port=server.port), body)
            )
            found.append(status in (400, 403, 405) and b"access-control" not in reply.lower())
    table.add(
        "no page and no foreign name is let in", f"{len(found)} requests", f"{found.count(False)} let in", all(found)
    )
    refused = []
    for data in shared.AMBIGUOUS:
        status, reply = await shared.exchange(server.port, data)
        refused.append((status is None or 400 <= status < 500) and reply.count(b"HTTP/1.") <= 1)
    table.add(
        "what can be read in two ways is not read",
        f"{len(refused)} requests",
        f"{refused.count(False)} read",
        all(refused),
    )


async def what_is_asked(server: Server, table: common.Table) -> None:
    """Bodies that are no question, odd parameters, routes that are none."""
    statuses = [(await server.post(body))[0] for body in WRONG]
    good = all(status is not None and 400 <= status < 500 for status in statuses)
    table.add(
        "a body that asks nothing is refused with a reason",
        f"{len(WRONG)} bodies",
        f"{sorted({*map(str, statuses)})}",
        good,
    )
    odd: list[dict[str, Any]] = [{"max_tokens": value} for value in (0, -1, 10**30, "x", None, 1.5, True, [])]
    odd += [{"temperature": value} for value in (-1, 10**30, "hot", None)] + [
        {"n": 100_000},
        {"stop": ["\n"] * 1000},
        {"seed": -(10**30)},
    ]
    odd += [{"model": value} for value in ("", "x" * 100_000, None, 7, "\ud800")] + [
        {"tools": 7},
        {"stream": "yes"},
        {"logprobs": True},
    ]
    told = [(await server.post(chat(QUESTIONS[0], **each)))[0] for each in odd]
    good = all(status is not None and 200 <= status < 500 for status in told)
    table.add("odd parameters are answered or refused", f"{len(odd)} requests", f"{sorted({*map(str, told)})}", good)
    asked = [
        (method, path)
        for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD")
        for path in ("/", "/v1/chat/completions", "/../x", "/%2e")
    ]
    found = []
    for method, path in asked:
        line = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        found.append((await server.send(line.encode()))[0])
    good = all(status is not None and 400 <= status < 500 for status in found)
    table.add(
        "unknown routes and methods are named as such", f"{len(asked)} requests", f"{sorted({*map(str, found)})}", good
    )
    for path, body in (
        ("/v1/embeddings", b'{"input": ["a", "b"], "model": "m"}'),
        (
            "/v1/messages",
            json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": TEXT}]}).encode(),
        ),
        ("/v1/responses", json.dumps({"model": "m", "input": f"{TEXT}\n\n{QUESTIONS[0]}"}).encode()),
    ):
        status, _ = await server.post(body, path)
        table.add("every wire is answered", path, f"{status}", status == 200)


async def large(server: Server, table: common.Table) -> None:
    """Bodies that no model can take, while somebody else asks something small."""
    for size in (1, 20, 60, 120, 200):
        body = chat("x " * (size * 2**19))
        before, began = server.megabytes(), time.monotonic()
        asking = asyncio.create_task(server.post(body))
        await asyncio.sleep(0.3)
        beside = [await server.health() for _ in range(3)]
        status, _ = await asking
        took, more = time.monotonic() - began, server.megabytes() - before
        found = f"{status} after {took:.1f} s, +{more:.0f} MB, others answered within {max(beside):.2f} s"
        held = (status is not None and 400 <= status < 500) or (status is None and size > 128)
        table.add(
            "a body beyond the window is refused, others are served", f"{size} MB", found, held and max(beside) < 10
        )


async def who_waits(server: Server, table: common.Table) -> None:
    """Idle, slow and vanishing clients; many at once; streams."""
    idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(500)]
    for _, writer in idle[:250]:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        await writer.drain()
    took = max([await server.health() for _ in range(5)])
    table.add(
        "idle and unfinished connections keep nobody out", "500 connections", f"answered within {took:.2f} s", took < 5
    )
    for _, writer in idle:
        writer.close()
    calm = [await server.answer(question) for question in QUESTIONS]
    together = await asyncio.gather(*(server.answer(question) for question in QUESTIONS * 4))
    same = list(together) == calm * 4 and all(calm)
    table.add("parallel requests get their own answers", "16 at once", f"equal to one after another: {same}", same)
    body = chat(QUESTIONS[0], stream=True)
    status, told = await server.post(body)
    table.add("a stream ends with its last event", "stream", f"{status}", status == 200 and b"[DONE]" in told)
    for _ in range(40):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body)
        await writer.drain()
        writer.transport.abort()
    began = time.monotonic()
    after = await server.answer(QUESTIONS[0])
    found = f"answered after {time.monotonic() - began:.1f} s, {'the same' if after == calm[0] else 'another answer'}"
    table.add("clients that go away cost no answer of others", "40 requests aborted", found, after == calm[0])


async def ends(server: Server, table: common.Table) -> None:
    """Two on one port, kill -9 and again, Ctrl-C and SIGTERM while a request is under way."""
    second = await common.done(server.folder, "model", "serve", "--port", str(server.port), seconds=60)
    said = " ".join(second.err.split())
    table.add(
        "a port that is taken is named",
        "a second server",
        f"exit code {second.code}: {said}",
        second.code == 2 and "port" in said,
    )
    server.noise += second.noise
    calm = await server.answer(QUESTIONS[0])
    await server.end(signal.SIGKILL)
    await server.start()
    again = await server.answer(QUESTIONS[0])
    table.add(
        "killed and started again on its port it answers the same",
        "kill -9",
        "the same" if again == calm else again,
        again == calm != "",
    )
    for how in (signal.SIGINT, signal.SIGTERM):
        asking = asyncio.create_task(server.post(chat(QUESTIONS[1])))
        await asyncio.sleep(0.05)
        ended, took = await server.end(how)
        await asyncio.wait({asking}, timeout=10)
        found = f"exit code {ended.code} after {took:.1f} s"
        table.add(
            "ends at once, also within a request", how.name, found, ended.code == 130 and took < 10 and not ended.noise
        )
        await server.start()
    await server.end(signal.SIGINT)


async def main() -> int:
    table = common.Table("The bundled model as a server")
    steps: tuple[Callable[[Server, common.Table], Awaitable[None]], ...] = (
        who_may,
        what_is_asked,
        who_waits,
        ends,
        large,
    )
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as name:
        server = Server(Path(name))
        await server.start()
        try:
            for step in steps:
                if server.command is None or server.command.over:
                    await server.start()
                await step(server, table)
        finally:
            await server.end(signal.SIGINT)
        table.add("no traceback, nothing unclosed", "all of them", f"{len(server.noise)} lines", not server.noise)
        for line in server.noise[:10]:
            print(line, file=sys.stderr)
    return table.ended()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
