"""What bodies cost that were made to cost much: memory, processor time and the waiting of others, for tap, watch, serve
and run.

    python benchmarks/hostile_bodies.py [--only tap,watch,serve,run] [--cases gzip_a_20mb,...] [--systems head_tail,...]
    [--seconds 6]

Each command runs as a process of its own between this client and an upstream on loopback. Hostile requests are sent to
`tap`, `watch` and `serve`, hostile replies to all; meanwhile an ordinary request is sent every 20 ms. `run` asks 300
examples, 4 at a time, one of which gets the hostile reply; before it the same with good replies only. Columns: bytes on
the wire, peak memory of the command and its children above what they held before (MB), their processor seconds, seconds
until the body was answered and recorded, and of the ordinary requests the 99th percentile (ms) in calm and with the
hostile body, the difference, and the longest. Targets: 256 MB, 2 s, 20 ms more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

MB = 10**6
_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.02
_LONGEST = 60.0
_PIECE, _HOSTILE, _ROWS = 65_536, b"hostile", 300


@dataclass(frozen=True)
class Body:
    """One hostile body: its bytes, and the headers that say what it is."""

    data: bytes
    coding: str = ""
    kind: str = "application/json"


def _asked(content: str) -> bytes:
    """A request with one text, as bytes."""
    return b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"%b"}]}' % content.encode()


def _answered(content: str, more: str = "") -> bytes:
    """A reply with one text, as bytes."""
    answer = '{"id":"x","object":"chat.completion","model":"gpt-4o-mini","choices":[{"index":0,"finish_reason":"stop",'
    answer += '"message":{"role":"assistant","content":"%s"}}]%s,"usage":{"prompt_tokens":9,"completion_tokens":3%s}}'
    return (answer % (content, more, "")).encode()


def _with(request: bool, value: bytes) -> bytes:
    """A request or a reply with one more field."""
    return (_asked("Hi.") if request else _answered("Four."))[:-1] + b',"more":' + value + b"}"


def _prose(size: int) -> str:
    """Lines of which no two are alike, as they stand within JSON: sentences of words of one to four syllables."""
    draw = random.Random(0)
    syllables = [first + vowel + last for first in "bdfgklmnprst" for vowel in "aeiou" for last in ("", "n", "r", "st")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(20_000)]
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(" ".join(draw.choices(words, k=draw.randint(6, 18))).capitalize() + ".\\n")
        length += len(lines[-1])
    return "".join(lines)


def _packed(data: bytes) -> Body:
    return Body(gzip.compress(data, 9), "gzip")


def _texts(request: bool, text: str) -> bytes:
    return _asked(text) if request else _answered(text)


def _stream(events: bytes) -> Body:
    return Body(events, kind="text/event-stream")


def _event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text.encode()


def _call(index: int) -> bytes:
    calls = b'{"tool_calls":[{"index":%d,"id":"a","function":{"name":"f","arguments":"{"}}]}' % index
    return b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % calls


def _wide_usage(request: bool) -> Body:
    if request:
        return _packed(_with(True, b"[" + b"[]," * (20 * MB) + b"[]]"))
    head, tail = _answered("Four.").rsplit(b"}}", 1)
    return _packed(head + b',"details":[' + b"[]," * (20 * MB) + b"[]]}}" + tail)


#: By name: of True for the request, of False for the reply. A reply's case that is no request's gives none.
CASES: dict[str, Callable[[bool], Body | None]] = {
    "gzip_a_5mb": lambda request: _packed(_texts(request, "a" * 5 * MB)),
    "gzip_a_20mb": lambda request: _packed(_texts(request, "a" * 20 * MB)),
    "gzip_a_500mb": lambda request: _packed(_texts(request, "a" * 500 * MB)),
    "gzip_wide_json": lambda request: _packed(_with(request, b"[" + b"[]," * (20 * MB) + b"[]]")),
    "gzip_wide_usage": _wide_usage,
    "wide_json_15mb": lambda request: Body(_with(request, b"[" + b"{}," * (5 * MB) + b"{}]")),
    "deep": lambda request: Body(_with(request, b"[" * (10 * MB) + b"]" * (10 * MB))),
    "deep_900": lambda request: Body(_with(request, b'{"a":' * 900 + b"1" + b"}" * 900)),
    "plain_60mb": lambda request: Body(_texts(request, "word and more " * (60 * MB // 14))),
    "plain_16mb": lambda request: Body(_texts(request, "word and more " * (16 * MB // 14))),
    "wide_characters_16mb": lambda request: Body(_texts(request, "word and more " * (16 * MB // 14) + "\U0001f600")),
    "wide_calls_16mb": lambda request: (
        Body(
            b'{"model":"gpt-4o-mini","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function",'
            b'"function":{"name":"a","arguments":"%b"}}]}]}'
            % ("word and more " * (16 * MB // 14) + "\U0001f600").encode()
        )
        if request
        else None
    ),
    "context_16mb": lambda request: (
        Body(_asked("Word and more. \\n" * (16 * MB // 17) + "\\n\\nHow much?")) if request else None
    ),
    "context_wide_16mb": lambda request: (
        Body(_asked("\U0001f600" + "Word and more. \\n" * (16 * MB // 17) + "\\n\\nHow much?")) if request else None
    ),
    "prose_16mb": lambda request: Body(_asked(_prose(16 * MB) + "\\n\\nHow much?")) if request else None,
    "prose_1mb": lambda request: Body(_asked(_prose(MB) + "\\n\\nHow much?")) if request else None,
    "small_texts": lambda request: Body(_with(request, b"[" + b'"",' * (5 * MB) + b'""]')),
    "many_messages": lambda request: (
        Body(b'{"model":"gpt-4o-mini","messages":[' + b"{}," * (5 * MB) + b"{}]}") if request else None
    ),
    "endless_words": lambda request: Body(
        b'{"model":"gpt-4o-mini","messages":[%b]}'
        % b",".join(b'{"role":"user","content":"%b"}' % (b"a" * MB) for _ in range(16))
        if request
        else _answered("a" * 15 * MB)
    ),
    "long_numbers": lambda request: Body(_with(request, b"[" + (b"9" * 4000 + b",") * 2500 + b"9]")),
    "zstd_200mb": lambda request: Body(zstandard.compress(_texts(request, "a" * 200 * MB)), "zstd"),
    "deflate_200mb": lambda request: Body(zlib.compress(_texts(request, "a" * 200 * MB)), "deflate"),
    "gzip_of_gzip": lambda request: Body(gzip.compress(gzip.compress(_texts(request, "a" * 500 * MB))), "gzip, gzip"),
    "gzip_members": lambda request: Body(gzip.compress(b"") * 50_000 + gzip.compress(_texts(request, "Hi.")), "gzip"),
    "sse_one_event": lambda request: None if request else _stream(b"data: " + b"x" * 60 * MB),
    "sse_long_then_short": lambda request: (
        None if request else _stream(_event("a" * 3 * MB) + _event("b") * 200_000 + b"data: [DONE]\n\n")
    ),
    "sse_empty_lines": lambda request: (
        None if request else _stream(_event("a") + b"\n" * (30 * MB) + b"data: [DONE]\n\n")
    ),
    "sse_many_events": lambda request: None if request else _stream(b"data: {}\n\n" * (3 * MB)),
    "one_key": lambda request: Body(_with(request, b'{"' + b"k" * 15 * MB + b'":1}')),
    "one_escaped_key": lambda request: Body(_with(request, b'{"' + b"\\u00e9" * (15 * MB // 6) + b'":1}')),
    "one_number": lambda request: Body(_with(request, b"9" * 15 * MB)),
    "distinct_keys": lambda request: Body(
        _with(request, b"{" + b",".join(b'"%x":1' % number for number in range(1_300_000)) + b"}")
    ),
    "gzip_million_members": lambda request: Body(
        gzip.compress(b"") * 1_000_000 + gzip.compress(_texts(request, "Hi.")), "gzip"
    ),
    "gzip_cut": lambda request: Body(gzip.compress(_texts(request, "a " * 20 * MB))[:-9], "gzip"),
    "gzip_tail": lambda request: Body(gzip.compress(_texts(request, "Hi.")) + b"x" * 60 * MB, "gzip"),
    "sse_many_lines": lambda request: None if request else _stream(b"data: {\n" * (7 * MB) + b"\n"),
    "sse_far_indices": lambda request: (
        None if request else _stream(b"".join(_call(number * 1_000_000) for number in range(200_000)))
    ),
}


# The upstream: a process of its own, which answers by the path


class Upstream(asyncio.Protocol):
    """Reads requests and throws their bodies away; `/bad/NAME/…` is answered with a file's bytes, all else with a short
    reply.

    `/one/NAME/…` is answered so where the request begins with a question for it.
    """

    folder: Path
    replies: dict[str, bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.head, self.left, self.path = transport, b"", 0, ""
        self.chunked, self.tail, self.asked = False, b"", False

    def data_received(self, data: bytes) -> None:
        if not self.left and not self.chunked:
            self.head += data
            head, found, data = self.head.partition(b"\r\n\r\n")
            if not found:
                return
            self.head, lower, self.asked = b"", head.lower(), False
            self.path = head.split(b" ", 2)[1].decode()
            self.chunked, self.tail = b"transfer-encoding: chunked" in lower, b""
            at = lower.find(b"content-length:")
            self.left = int(lower[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
        self.asked = self.asked or (len(data) < 65_536 and _HOSTILE in data)
        if self.chunked:
            self.tail = (self.tail + data)[-7:]
            if self.tail.endswith(b"\r\n0\r\n\r\n") or self.tail == b"0\r\n\r\n":
                self.chunked = False
                self.answer()
            return
        self.left -= len(data)
        if self.left <= 0:
            self.left = 0
            self.answer()

    def answer(self) -> None:
        parts = self.path.split("/")
        if "bad" in parts or ("one" in parts and self.asked):
            name = parts[parts.index("bad" if "bad" in parts else "one") + 1]
            if name not in self.replies:
                self.replies.clear()
                self.replies[name] = (self.folder / f"{name}.reply").read_bytes()
            headers, data = (self.folder / f"{name}.headers").read_text(), self.replies[name]
        else:
            headers, data = "Content-Type: application/json\r\n", _answered("Four.")
        self.transport.write(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode())  # type: ignore[attr-defined]
        self.left_to_say, self.may_say = memoryview(data), True
        self.say()

    def say(self) -> None:
        """Send on the answer a piece at a time: others are answered in between, or the waiting would be this
        upstream's.
        """
        while self.may_say and self.left_to_say:
            piece, self.left_to_say = self.left_to_say[:_PIECE], self.left_to_say[_PIECE:]
            self.transport.write(piece)  # type: ignore[attr-defined]
            if self.left_to_say:
                asyncio.get_running_loop().call_soon(self.say)
                return

    def pause_writing(self) -> None:
        self.may_say = False

    def resume_writing(self) -> None:
        self.may_say = True
        self.say()


async def _serve(folder: Path, port: int) -> None:
    Upstream.folder, Upstream.replies = folder, {}
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


# What a command and its children take


def _family(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread may end between being listed and being read
            for child in thread.read_text().split():
                yield from _family(int(child))


def _held(pid: int) -> tuple[float, float]:
    """MB and processor seconds of a process and its children."""
    memory = ticks = 0
    for each in _family(pid):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            memory += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * _PAGE
    return memory / MB, ticks / _TICK


class Looking(threading.Thread):
    """Notes the most memory that a process and its children ever held, every 10 ms; the last processor time that was
    seen.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.seconds, self.over = pid, 0.0, 0.0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            memory, seconds = _held(self.pid)
            self.most, self.seconds = max(self.most, memory), max(self.seconds, seconds)


class Others(threading.Thread):
    """Sends an ordinary request every 20 ms, over connections of its own; `waited` in seconds."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.waited, self.over = port, list[float](), threading.Event()

    def once(self) -> None:
        """Send one, so that all is loaded."""
        self.start()
        while not self.waited and self.is_alive():
            time.sleep(0.05)
        self.over.set()
        self.join()

    def run(self) -> None:
        body = _asked("How much is two and two?")
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.port), 120) as there:
            while not self.over.wait(_EVERY):
                begun = time.perf_counter()
                there.sendall(head % len(body) + body)
                told = b""
                while b"Four." not in told or not told.endswith(b"}"):
                    told += (more := there.recv(65_536))
                    if not more:
                        return
                self.waited.append(time.perf_counter() - begun)


def _p99(waited: list[float]) -> float:
    """Milliseconds."""
    return statistics.quantiles(waited, n=100)[98] * 1000 if len(waited) > 2 else float("nan")


@dataclass
class Row:
    """One line of the table."""

    command: str
    case: str
    wire: int
    memory: float = 0.0
    seconds: float = 0.0
    wall: float = 0.0
    calm: float = float("nan")
    p99: float = float("nan")
    longest: float = float("nan")
    note: str = ""

    def line(self) -> str:
        waits = f"{self.calm:.1f} | {self.p99:.1f} | {self.p99 - self.calm:+.1f} | {self.longest:.0f}"
        return (
            f"| {self.command} | {self.case} | {self.wire:,} | {self.memory:.0f} | {self.seconds:.2f} | "
            f"{self.wall:.1f} "
            f"| {waits} | {self.note} |"
        )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _post(port: int, path: str, body: Body) -> str:
    """Send a body; the first line of the answer, or how it ended. The answer is read to its end and thrown away."""
    import http.client

    there = http.client.HTTPConnection("127.0.0.1", port, timeout=_LONGEST)
    headers = {"Content-Type": body.kind} | ({"Content-Encoding": body.coding} if body.coding else {})
    try:
        there.request("POST", path, body.data, headers)
        reply = there.getresponse()
        while reply.read(2**20):
            pass
        return str(reply.status)
    except OSError as error:
        return type(error).__name__
    finally:
        there.close()


def _arguments(command: str, port: int, upstream: int, folder: Path, system: str) -> list[str]:
    to = f"http://127.0.0.1:{upstream}"
    if command == "tap":
        return ["tap", "--port", str(port), "--upstream", to, "--out", str(folder / "tap.jsonl")]
    if command == "tap full":
        return ["tap", "--port", str(port), "--upstream", to, "--record", "full", "--out", str(folder / "tap.jsonl")]
    if command == "watch":
        store = f"sqlite:///{folder}/watch.db"
        return [
            "watch",
            "--front",
            str(port),
            "--upstream",
            to,
            "--store",
            store,
            "--records",
            str(folder / "tap.jsonl"),
            "--quiet",
        ]
    return ["serve", "--system", system, "--upstream", to, "--port", str(port)]


def _open(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("the command does not listen")


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}


def served(
    command: str, name: str, side: str, body: Body, upstream: int, folder: Path, seconds: float, system: str
) -> Row:
    """A hostile body through a command that serves."""
    row, port = (
        Row(f"{command} {system}" if command == "serve" else command, f"{name} ({side})", len(body.data)),
        _free_port(),
    )
    records = folder / "tap.jsonl"
    records.unlink(missing_ok=True)
    with (folder / "words").open("wb") as words:
        running = subprocess.Popen(
            [sys.executable, "-m", "context_bench", *_arguments(command, port, upstream, folder, system)],
            stdout=words,
            stderr=words,
            cwd=folder,
            env=_environment(),
        )
    try:
        _open(port)
        Others(port).once()
        calm, others, (_, idle) = Others(port), Others(port), _held(running.pid)
        calm.start()
        time.sleep(2.5)
        calm.over.set()
        calm.join()
        time.sleep(0.2)
        memory, spent = _held(running.pid)
        calm_seconds = (spent - idle) / max(1, len(calm.waited))  # processor time of one ordinary request
        looking, begun = Looking(running.pid), time.monotonic()
        looking.start()
        hostile = body if side == "request" else Body(_asked("Hi."))
        others.start()
        time.sleep(0.3)
        path = "/v1/chat/completions" if side == "request" else f"/bad/{name}/v1/chat/completions"
        row.note = _post(port, path, hostile)
        size = len(body.data)
        while command != "serve" and time.monotonic() - begun < _LONGEST and not _recorded(records, side, size):
            time.sleep(0.05)
        row.wall = time.monotonic() - begun - 0.3
        time.sleep(max(0.0, seconds - (time.monotonic() - begun)))
        others.over.set()
        others.join(5)
        looking.over.set()
        looking.join()
        own = len(others.waited) * calm_seconds
        row.memory, row.seconds = looking.most - memory, max(0.0, looking.seconds - spent - own)
        row.calm, row.p99, row.longest = (
            _p99(calm.waited),
            _p99(others.waited),
            max(others.waited, default=float("nan")) * 1000,
        )
    finally:
        running.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(20)
        if running.poll() is None:
            running.kill()
            row.note += ", killed"
    return row


def _recorded(records: Path, side: str, size: int) -> bool:
    name = b'"bytes_in":' if side == "request" else b'"bytes_out":'
    return records.exists() and name + str(size).encode() + b"," in records.read_bytes()


def run(name: str, body: Body, upstream: int, folder: Path) -> Row:
    """A hostile reply to `run`, as that of one example among many; a run without it is the base."""
    row, data = Row("run", f"{name} (reply)", len(body.data)), folder / "rows.jsonl"
    asked = ["How much?" if number != _ROWS // 3 else f"How {_HOSTILE.decode()}?" for number in range(_ROWS)]
    lines = [
        {"id": at, "context": "Two and two are four.", "question": question, "answer": "Four."}
        for at, question in enumerate(asked)
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    base = _one_run(f"http://127.0.0.1:{upstream}", data, folder)
    found = _one_run(f"http://127.0.0.1:{upstream}/one/{name}", data, folder)
    row.memory, row.seconds, row.wall = (
        found.memory - base.memory,
        max(0.0, found.seconds - base.seconds),
        found.wall - base.wall,
    )
    row.calm, row.p99, row.longest, row.note = base.p99, found.p99, found.longest, found.note
    return row


def _one_run(proxy: str, data: Path, folder: Path) -> Row:
    store, row = folder / "run.db", Row("run", "", 0)
    for each in folder.glob("run.db*"):
        each.unlink()
    arguments = [
        "run",
        "--proxy",
        proxy,
        "--dataset",
        str(data),
        "--model",
        "gpt-4o-mini",
        "--store",
        f"sqlite:///{store}",
    ]
    arguments += [
        "--timeout",
        "4",
        "--retries",
        "0",
        "--example-timeout",
        "8",
        "--fixed-concurrency",
        "4",
        "--output",
        "json",
    ]
    begun = time.monotonic()
    command = [sys.executable, "-m", "context_bench", *arguments]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=_environment()
    )
    looking = Looking(running.pid)
    looking.start()
    try:
        told = running.communicate(timeout=120)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        running.kill()
        told = "killed"
    looking.over.set()
    looking.join()
    row.memory, row.seconds, row.wall = looking.most, looking.seconds, time.monotonic() - begun
    with contextlib.closing(sqlite3.connect(store)) as stored:
        question = "select o.latency from outputs o where o.latency is not null and o.error is null order by o.id"
        waited = [float(seconds) for (seconds,) in stored.execute(question)][10:]  # the first ones load what is needed
    row.p99, row.longest = _p99(waited), max(waited, default=float("nan")) * 1000
    found = [
        word for word in ("BadReply", "TimedOut", "Unreachable", "EmptyReply", "Traceback", "killed") if word in told
    ]
    row.note = ", ".join([f"rc {running.returncode}", f"{len(waited)} rows", *found])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="tap,tap full,watch,serve,run")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sides", default="request,reply")
    parser.add_argument("--systems", default="head_tail:keep=0.5", help="that `serve` serves, separated by commas")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="for which ordinary requests are sent with each case"
    )
    parser.add_argument("--upstream", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.upstream:
        asyncio.run(_serve(Path(told.upstream[0]), int(told.upstream[1])))
        return
    print(
        "| command | case | on the wire | MB above base | CPU s | wall s | p99 calm ms | p99 ms | added | longest ms "
        "| ended |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), _free_port()
        upstream = subprocess.Popen([sys.executable, __file__, "--upstream", made, str(port)], env=_environment())
        try:
            _open(port)
            for name in told.cases.split(","):
                _case(name, told, port, folder)
        finally:
            upstream.terminate()
            upstream.wait(10)


def _case(name: str, told: argparse.Namespace, upstream: int, folder: Path) -> None:
    for side in told.sides.split(","):
        body = CASES[name](side == "request")
        if body is None:
            continue
        if side == "reply":
            coding = f"Content-Encoding: {body.coding}\r\n" if body.coding else ""
            (folder / f"{name}.reply").write_bytes(body.data)
            (folder / f"{name}.headers").write_text(f"Content-Type: {body.kind}\r\n{coding}")
            _post(upstream, f"/bad/{name}/v1/chat/completions", Body(_asked("Hi.")))  # the upstream has read the file
        for command in told.only.split(","):
            if command != "run":
                for system in told.systems.split(",") if command == "serve" else [""]:
                    row = served(command, name, side, body, upstream, folder, told.seconds, system)
                    print(row.line(), flush=True)
            elif side == "reply":
                print(run(name, body, upstream, folder).line(), flush=True)


if __name__ == "__main__":
    main()
