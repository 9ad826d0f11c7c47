"""What the tap costs: added latency and throughput against going straight to the upstream, side by side in one run.

    python benchmarks/tap.py [--requests 2000] [--concurrency 256] [--tokens 1000] [--record full] [--watch]

Upstream, tap and client are three processes on this machine; direct and tapped blocks alternate, so that a busy machine
is busy for both. Targets (median added latency ≤ 2 ms, throughput ≥ 0.4 × direct at 256) hold on idle cores; on fewer
than three cores the three processes share them and the ratio is lower than a user would see.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection

import aiohttp

from context_bench.tap import Tap

REPLY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Forty-two."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 4, "total_tokens": 1004},
    }
).encode()
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(REPLY)}\r\n\r\n".encode()


class Fixed(asyncio.Protocol):
    """The leanest upstream that speaks HTTP: the same answer at once, so that what is measured is the tap."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while True:
            head, found, rest = self.data.partition(b"\r\n\r\n")
            at = head.lower().find(b"content-length:")
            if not found or at < 0:
                return
            length = int(head[at + 15 :].split(b"\r\n")[0])
            if len(rest) < length:
                return
            self.data = rest[length:]
            self.transport.write(HEAD + REPLY)  # type: ignore[attr-defined]


def upstream(tell: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Fixed, "127.0.0.1", 0, backlog=1024)
        tell.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await server.serve_forever()

    asyncio.run(serve())


def tap(tell: Connection, to: str, record: str) -> None:
    async def serve() -> None:
        async with Tap(to, record=record) as running:
            tell.send(running.url)
            await asyncio.Event().wait()

    asyncio.run(serve())


def watch(tell: Connection, to: str, record: str) -> None:
    """The command itself: a tap without a proxy, and a store on disk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        options = [
            "--front",
            str(port),
            "--upstream",
            to,
            "--store",
            f"{folder}/store.db",
            "--record",
            record,
            "--quiet",
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "context_bench", "watch", *options], stdout=subprocess.DEVNULL
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            tell.send(f"http://127.0.0.1:{port}")
            process.wait()
        finally:
            process.terminate()
            process.wait()


def started(target: object, *args: object) -> tuple[multiprocessing.process.BaseProcess, str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)  # type: ignore[arg-type]
    process.start()
    return process, str(ours.recv())


async def block(url: str, bodies: list[bytes], concurrency: int, pause: float = 0.0) -> tuple[float, list[float]]:
    """Send all bodies, `concurrency` at a time and `pause` seconds apart; the wall time and each latency in seconds."""
    latencies: list[float] = []
    waiting = iter(bodies)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def worker() -> None:
            for body in waiting:
                begun = time.perf_counter()
                async with session.post(url + "/v1/chat/completions", data=body) as reply:
                    await reply.read()
                latencies.append(time.perf_counter() - begun)
                if pause:
                    await asyncio.sleep(pause)

        await asyncio.gather(*(worker() for _ in range(min(8, concurrency))))  # connections and vocabularies are warm
        waiting, latencies = iter(bodies), []
        begun = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return time.perf_counter() - begun, latencies


def bodies_of(count: int, tokens: int, salt: str) -> list[bytes]:
    """Different texts, as in a run: a text counted once is remembered and would be cheaper."""
    return [
        json.dumps(
            {
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": f"{salt} {number} " + "the pump " * (tokens // 2)}],
            }
        ).encode()
        for number in range(count)
    ]


async def measure(direct: str, tapped: str, options: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    rounds = 4
    rows = []
    for name, concurrency, requests, pause in (
        ("5 ms apart", 1, 400, 0.005),  # as clients do: the record of one request is made before the next one comes
        ("one at a time", 1, 400, 0.0),
        (f"{options.concurrency} at once", options.concurrency, options.requests, 0.0),
    ):
        seconds: dict[str, list[float]] = {direct: [], tapped: []}
        medians: dict[str, list[float]] = {direct: [], tapped: []}
        for number in range(rounds):
            for url in (direct, tapped) if number % 2 == 0 else (tapped, direct):
                bodies = bodies_of(requests // rounds, options.tokens, f"{name} {number} {url}")
                wall, latencies = await block(url, bodies, concurrency, pause)
                seconds[url].append(len(bodies) / wall)
                medians[url].append(statistics.median(latencies) * 1_000)
        rate = {url: statistics.median(values) for url, values in seconds.items()}
        middle = {url: statistics.median(values) for url, values in medians.items()}
        rows.append(
            (name, "requests/s", f"{rate[direct]:.0f}", f"{rate[tapped]:.0f}  ({rate[tapped] / rate[direct]:.2f} x)")
        )
        rows.append(
            (
                name,
                "median ms",
                f"{middle[direct]:.2f}",
                f"{middle[tapped]:.2f}  (+{middle[tapped] - middle[direct]:.2f} ms)",
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--record", default="full", choices=["meta", "hashes", "redacted", "full"])
    parser.add_argument(
        "--watch",
        action="store_true",
        help="what `watch` costs: its turns are on disk before the last byte is answered",
    )
    options = parser.parse_args()
    behind, direct = started(upstream)
    front, tapped = started(watch if options.watch else tap, direct, options.record)
    try:
        rows = asyncio.run(measure(direct, tapped, options))
    finally:
        for process in (front, behind):
            process.terminate()
            process.join()
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "?"
    print(f"bodies of about {options.tokens} tokens, record={options.record}, {os.cpu_count()} cores, load {load}")
    for row in [("", "", "direct", "through the tap"), *rows]:
        print(f"{row[0]:<16}{row[1]:<12}{row[2]:>10}   {row[3]}")


if __name__ == "__main__":
    main()
