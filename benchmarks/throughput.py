"""What the engine adds: `context-bench run` beside a plain asyncio client that does the same requests and the same F1,
in one run.

    python benchmarks/throughput.py [--n 2000] [--bytes 1000] [--concurrency 32] [--repeats 3] [--delay 0] [--tls]
        [--only "aiohttp loop,…"] [--peers benchmarks/peers.toml] [--var NAME=FOLDER …]

Clients are told by `peers.toml`; those whose programs are not here are left out. All ask `mock_server.py` in a process
of its own. Each runs with n examples and with 1, in turn; the difference is charged, so that start-up is not. CPU is
user + system of the client's process and its children: on a shared machine it is the figure to trust, and the ratio to
the first client more than either. A client that made more or fewer than n − 1 requests more for n examples than for one
is marked: it drops, repeats or caches. `--tls`: each client also runs over TLS, in turn with the plain runs; `TLS` in
the table is its CPU beside its own plain one.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Spent:
    """What one run of a client took."""

    cpu: float  # seconds
    wall: float  # seconds
    peak: float  # MB
    requests: int
    connections: int
    stored: int  # bytes that it left on the disk


@dataclass
class Client:
    """A client by its command, and what its runs took: with n examples and with one. `plain`: the same without TLS."""

    name: str
    command: str
    plain: Client | None = None
    many: list[Spent] = field(default_factory=list)
    one: list[Spent] = field(default_factory=list)


def example(number: int, size: int) -> str:
    """One line of the data: a context of `size` bytes, a question, an answer."""
    context = f"{number} " + ("signal bridge harbour station lantern meadow " * size)[:size]
    return json.dumps({"id": number, "context": context, "question": "What?", "answer": "harbour bridge"})


def clients(peers: Path, variables: dict[str, str], only: list[str]) -> Iterator[Client]:
    """The clients of a file that can run here."""
    known = {"python": sys.executable, "here": str(HERE), **variables}
    for name, told in tomllib.loads(peers.read_text(encoding="utf-8")).items():
        try:
            there = "needs" not in told or Path(told["needs"].format(**known)).exists()
        except KeyError:
            there = False
        if there and (not only or name in only):
            yield Client(name, told["command"])


@contextmanager
def server(delay: float, tls: Path | None = None) -> Iterator[str]:
    """A mock server in a process of its own; its address."""
    command = [
        sys.executable,
        str(HERE / "mock_server.py"),
        "--delay",
        str(delay),
        *(["--tls", str(tls)] if tls else []),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def seen(url: str) -> dict[str, int]:
    """Requests and connections that the server has had."""
    trusting = ssl._create_unverified_context() if url.startswith("https") else None  # our own server, for two numbers
    with urllib.request.urlopen(f"{url}/stats", context=trusting) as reply:
        found: dict[str, int] = json.load(reply)
    return found


def measure(command: list[str], url: str, left: Path, trusted: Path) -> Spent:
    """Run one command to its end; its failure ends the benchmark. `left`: files that begin with this path are what it
    stored.

    `trusted`: the certificate of a server that speaks TLS.
    """
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        **({"SSL_CERT_FILE": str(trusted)} if url.startswith("https") else {}),
    }
    before, began = seen(url), time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(
                f"{' '.join(command)}\nended with {process.returncode}: {said.read()[-2000:].decode(errors='replace')}"
            )
    wall, after = time.perf_counter() - began, seen(url)
    stored = sum(path.stat().st_size for path in left.parent.glob(f"{left.name}*"))
    connections = after["connections"] - before["connections"] - 1  # one was to ask this
    return Spent(
        used.ru_utime + used.ru_stime,
        wall,
        used.ru_maxrss / 1024,
        after["requests"] - before["requests"],
        connections,
        stored,
    )


def spent(client: Client) -> float:
    """CPU seconds for all examples but one: the median of the runs."""
    return statistics.median(many.cpu - one.cpu for many, one in zip(client.many, client.one, strict=True))


def line(client: Client, n: int, floor: float) -> str:
    """The client's row of the table: medians."""
    extra = [(many.cpu - one.cpu, many.wall - one.wall) for many, one in zip(client.many, client.one, strict=True)]
    cpu, wall = (statistics.median(values) for values in zip(*extra, strict=True))
    start, peak = statistics.median(one.cpu for one in client.one), statistics.median(many.peak for many in client.many)
    stored = statistics.median(
        (many.stored - one.stored) / (n - 1) for many, one in zip(client.many, client.one, strict=True)
    )
    extra_requests = {many.requests - one.requests for many, one in zip(client.many, client.one, strict=True)}
    odd = "" if extra_requests == {n - 1} else f"  (!) {sorted(extra_requests)} requests"
    ratio = cpu / floor if floor else 1.0
    odd += f"  {cpu / spent(client.plain):.2f} × its plain CPU" if client.plain is not None else ""
    figures = f"{1000 * cpu / n:>12.3f}{ratio:>8.2f}{n / wall if wall > 0 else 0:>10.0f}{start:>9.2f}{peak:>9.0f}{stored:>10.0f}"  # noqa: E501
    return f"{client.name:<28}{figures}{client.many[0].connections:>8}{odd}"


def main() -> None:
    """Run the clients in turn and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("n", 2000), ("bytes", 1000), ("concurrency", 32), ("repeats", 3)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--delay", type=float, default=0.0, help="seconds before the server answers")
    options.add_argument("--tls", action="store_true", help="each client over TLS, too")
    options.add_argument("--peers", type=Path, default=HERE / "peers.toml")
    options.add_argument("--var", action="append", default=[], metavar="NAME=FOLDER")
    options.add_argument("--only", default="", help="names of clients, separated by commas")
    asked = options.parse_args()
    variables = dict(pair.split("=", 1) for pair in asked.var)
    chosen = list(clients(asked.peers, variables, [name.strip() for name in asked.only.split(",") if name.strip()]))
    if asked.tls:
        chosen = [each for client in chosen for each in (client, Client(f"{client.name}, TLS", client.command, client))]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        url, trusted = servers.enter_context(server(asked.delay)), Path(folder) / "certificate.pem"
        secure = servers.enter_context(server(asked.delay, trusted)) if asked.tls else ""
        data = {n: Path(folder) / f"{n}.jsonl" for n in (1, asked.n)}
        for n, path in data.items():
            path.write_text("".join(example(i, asked.bytes) + "\n" for i in range(n)), encoding="utf-8")
        for turn in range(asked.repeats):
            for number, client in enumerate(chosen):
                for n, kept in ((1, client.one), (asked.n, client.many)):
                    out = Path(folder) / f"out-{turn}-{number}-{n}-"
                    there = url if client.plain is None else secure
                    told = {"url": there, "data": data[n], "n": n, "c": asked.concurrency, "out": out}
                    filled = client.command.format(python=sys.executable, here=HERE, **variables, **told)
                    kept.append(measure(filled.split(), there, out, trusted))
    after = f", answers after {asked.delay:g} s" if asked.delay else ""
    about = f"n = {asked.n}, {asked.bytes} B contexts, {asked.concurrency} in flight{after}, medians of {asked.repeats}"
    print(f"{about}; load {os.getloadavg()[0]:.1f}")
    print(
        f"{'client':<28}{'CPU ms/ex.':>12}{'ratio':>8}{'ex./s':>10}{'start s':>9}{'peak MB':>9}{'bytes/row':>10}{'conns':>8}"  # noqa: E501
    )
    floor = spent(chosen[0])
    for client in chosen:
        print(line(client, asked.n, floor))


if __name__ == "__main__":
    main()
