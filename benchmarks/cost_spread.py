"""How far sessions' cost ratios lie apart: the spread that decides how soon `--limit bill` finds a change.

python benchmarks/cost_spread.py [SESSIONS ...]     the bundled sessions and the recordings of clients under
                                                    tests/fixtures/clients, or sessions of your own, as `replay` reads
                                                    them

Each session is replayed through proxies of six habits against an echo, and its bill held against the bill of its
requests as they were. The spread is the standard deviation of log(through / alone) over the sessions of one proxy.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import socket
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from context_bench.__main__ import main
from context_bench.engine import open_store, run_of
from context_bench.systems.serve import Served
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from context_bench.traffic.figures import session_counts

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "clients"
COMPRESSORS = ("head_tail:keep=0.3", "head_tail:keep=0.7", "bm25:keep=0.3")


def clip_old_results(body: dict[str, Any]) -> None:
    """Each tool result but the newest loses all beyond 800 characters."""
    items = body["input"] if "input" in body else body["messages"]
    for item in items[:-1]:
        if item.get("role") == "tool" and isinstance(item.get("content"), str):
            item["content"] = item["content"][:800]
        if isinstance(item.get("output"), str):
            item["output"] = item["output"][:800]
        for block in item["content"] if isinstance(item.get("content"), list) else []:
            if block.get("type") == "tool_result" and isinstance(block.get("content"), str):
                block["content"] = block["content"][:800]


def proxies(stack: ExitStack, upstream: str) -> Iterator[tuple[str, str]]:
    for spec in COMPRESSORS:
        yield spec, stack.enter_context(Served(spec, upstream)).url
    yield "old tool results clipped", stack.enter_context(Rewriting(in_body(clip_old_results), upstream)).url
    for habit in ("halves", "calls-twice"):
        yield habit, stack.enter_context(MisbehavingProxy(habit, upstream)).url


def recordings(folder: Path) -> Path:
    """The requests of the recorded clients, unpacked."""
    for packed in sorted(FIXTURES.glob("*.jsonl.xz")):
        with lzma.open(packed, "rt", encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines]
        values = [entry["value"] for entry in entries if entry["file"] == "records.jsonl"]
        (folder / f"{packed.name.partition('.')[0]}.jsonl").write_text(
            "".join(json.dumps(value) + "\n" for value in values), "utf-8"
        )
    return folder


def measured(sessions: list[str], folder: Path) -> Iterator[tuple[str, list[float], int]]:
    """Of each proxy its name, the sessions' cost ratios, and how many sessions have none."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = str(folder / "store.db")
    with ExitStack() as stack:
        found = list(proxies(stack, f"http://127.0.0.1:{port}"))
        named = [part for name, url in found for part in ("--proxy", url, "--name", name)]
        line = ["replay", *sessions, *named, "--tap", str(port), "--upstream", "echo", "--quiet", "--store", store]
        code = main([*line, "--run", "spread", "--output", "json", "--out", str(folder / "report.json")])
    assert code == 0, f"the replay ended with {code}"
    with open_store(store) as kept:
        run = run_of(kept, "spread").id
        told = json.loads((folder / "report.json").read_text())["manifest"]["replay"]
        for name, _ in found:
            counts = list(session_counts(kept, run, told, name))
            ratios = [each.through / each.alone for each in counts if each.through and each.alone]
            yield name, ratios, len(counts) - len(ratios)


def spread(title: str, sessions: list[str]) -> None:
    print(title)
    print("proxy                     sessions  no price  cost ratio: median, 10 to 90 %   SD of its logarithm")
    with tempfile.TemporaryDirectory() as folder:
        for name, ratios, unknown in measured(sessions, Path(folder)):
            tenths = statistics.quantiles(ratios, n=10, method="inclusive")
            sd = statistics.stdev(math.log(ratio) for ratio in ratios)
            told = f"{statistics.median(ratios):.3f}, {tenths[0]:.3f} to {tenths[-1]:.3f}"
            print(f"{name:25} {len(ratios):8}  {unknown:8}  {told:31}  {sd:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", nargs="*", help="files or folders of recorded sessions")
    given = parser.parse_args()
    if given.sessions:
        spread("sessions given", given.sessions)
    else:
        spread("bundled sessions", ["bundled:sessions"])
        with tempfile.TemporaryDirectory() as unpacked:
            spread("recorded clients", [str(recordings(Path(unpacked)))])
