"""Rows a second on one node of a Ray cluster and on two, against a server that takes 200 ms: the same load per node.

    python benchmarks/ray_nodes.py [--n 640] [--each 8] [--delay 0.2] [--repeats 3]

The cluster is of this machine (`ray.cluster_utils`): what is measured is whether the driver feeds two nodes as well as
one. Timed from the first request to the last row in the store; actors are started before. The CPU seconds are the
driver's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.engine.executors.ray_nodes import RayNodes
from context_bench.evaluators import AnswerQuality
from context_bench.llm.limits import FixedLimiter
from context_bench.systems import OpenAIProxy


class Timed(RayNodes):
    """Notes when everything is ready."""

    async def start(self, *args: Any) -> None:
        await super().start(*args)
        self.began, self.cpu = time.monotonic(), time.process_time()

    async def end(self) -> None:
        self.took, self.cpu = time.monotonic() - self.began, time.process_time() - self.cpu
        await super().end()


async def measured(url: str, n: int, workers: int) -> tuple[float, float]:
    """Rows a second, and the driver's CPU milliseconds a row."""
    examples = [
        {"id": i, "context": f"{i} " + "text " * 200, "question": "What?", "answer": "bridge"} for i in range(n)
    ]
    nodes = Timed()
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "s.db") as store:
        system = OpenAIProxy(url, model="mock", name="mock", limiter=FixedLimiter(workers))
        settings = RunSettings(max_workers=workers, late_grace=0.0)
        executed = await execute(
            store,
            name="r",
            arms=[Arm(system)],
            examples=examples,
            evaluators=[AnswerQuality()],
            manifest={},
            settings=settings,
            executor=nodes,
        )
    assert executed.counts["done"] == n, executed
    assert executed.counts["failed"] == 0
    return n / nodes.took, 1000 * nodes.cpu / n


def on_one_and_two(url: str, options: argparse.Namespace) -> dict[int, list[tuple[float, float]]]:
    """`repeats` measurements on a cluster of one node, then with a second one added."""
    import ray
    from ray.cluster_utils import Cluster

    cluster, found = Cluster(), dict[int, list[tuple[float, float]]]()
    try:
        for count in (1, 2):
            names = (
                "metrics_agent_port",
                "dashboard_agent_listen_port",
                "runtime_env_agent_port",
                "metrics_export_port",
            )
            ports = {name: free_port() for name in names}
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False, **ports)
            if count == 1:
                ray.init(address=cluster.address, log_to_driver=False)
            found[count] = [
                asyncio.run(measured(url, options.n * count, options.each * count)) for _ in range(options.repeats)
            ]
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as held:
        held.bind(("", 0))
        return int(held.getsockname()[1])


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--n", type=int, default=640, help="rows per node")
    asked.add_argument("--each", type=int, default=8, help="requests at once per node")
    asked.add_argument("--delay", type=float, default=0.2)
    asked.add_argument("--repeats", type=int, default=3)
    options = asked.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    port = free_port()
    server = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("mock_server.py")),
            "--port",
            str(port),
            "--delay",
            str(options.delay),
        ]
    )
    try:
        found = on_one_and_two(f"http://127.0.0.1:{port}", options)
    finally:
        server.terminate()
        server.wait()
    for count, each in found.items():
        rate, cpu = (statistics.median(values) for values in zip(*each, strict=True))
        bound = count * options.each / options.delay
        print(f"{count} node(s): {rate:.1f} rows/s of {bound:.0f} possible, {cpu:.1f} ms of the driver's CPU a row")
    one, two = (statistics.median(rate for rate, _ in found[count]) for count in (1, 2))
    print(f"two against one: {two / one:.2f} x (load {os.getloadavg()[0]:.0f})")


if __name__ == "__main__":
    main()
