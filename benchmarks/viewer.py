"""The viewer on a large store: how long the first pages take, sorting, filtering, searching, and whether memory stays
flat.

    python benchmarks/viewer.py [--rows 100000] [--views 200] [--store FILE]

The store is written by the engine's own writer (no model is asked): one run of two systems with contexts, questions,
answers, scores, calls and usage, and 60 small runs beside it. `--store` keeps it for the next time. Pages are fetched
over HTTP from `context-bench view` as a person would start it; its memory and that of its children is read from /proc.
Times are wall seconds: first ask, median of five more.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.records import Call, Usage
from context_bench.engine import Arm, Store, open_store
from context_bench.engine.encoding import secrets_of
from context_bench.engine.plan import EvaluatorScore, WorkItem, WorkOutcome, planned_arms, planned_evaluators
from context_bench.engine.store.run_records import DONE
from context_bench.engine.store.run_writer import ExampleRow, Writer

CHUNK = 2_000


class System:
    def __init__(self, name: str) -> None:
        self.name = name

    def fingerprint(self) -> dict[str, str]:
        return {"name": self.name}


class Judge:
    name, version = "answer", "1"

    def score(self, original: dict, processed: dict) -> dict[str, float]:
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--views", type=int, default=200)
    parser.add_argument("--store", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.store or Path(folder) / "store.db"
        if not path.exists():
            began = time.perf_counter()
            fill(path, asked.rows)
            print(
                f"wrote {asked.rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB, in "
                f"{time.perf_counter() - began:.0f} s"
            )
        measure(path, asked.views)


# --- a store
# ------------------------------------------------------------------------


def fill(path: Path, rows: int) -> None:
    with open_store(path) as store:
        write_run(store, "large", rows // 2)
        for number in range(60):
            write_run(store, f"small-{number}", 4)


def write_run(store: Store, name: str, examples: int) -> None:
    secrets = secrets_of([])
    arms, judges = (
        planned_arms([Arm(System("full")), Arm(System("proxy"))], secrets),
        planned_evaluators([Judge()], secrets),
    )
    writer = Writer(store, SYSTEM_CLOCK, secrets, "none", "all", arms, judges)
    writer.begin(name, name)
    cells = [{"labels": {}, "systems": ["full", "proxy"], "baseline": "full", "controls": ["full"]}]
    options = {"seed": 0, "score_field": "f1"}
    writer.manifest(
        {"cells": cells, "margin": {"value": 0.02, "rule": "given", "score_field": "f1"}, "options": options}
    )
    for start in range(0, examples, CHUNK):
        some = [example(number) for number in range(start, min(examples, start + CHUNK))]
        writer.plan([planned(start + i, one) for i, one in enumerate(some)])
        writer.commit([outcome(arm, start + i, one, judges[0].id) for i, one in enumerate(some) for arm in (0, 1)])
    writer.end(DONE, {"owed": 2 * examples, "done": 2 * examples})


def example(number: int) -> dict:
    context = (
        f"Document {number % 500}. " + "The quick brown fox jumps over the lazy dog. " * 60
    )  # 500 contexts, shared
    question = f"What does passage {number} say about topic {number % 97}?"
    return {
        "id": f"q-{number}",
        "context": context,
        "question": question,
        "answer": f"answer {number % 1009}",
        "dataset": f"d{number % 3}",
    }


def planned(position: int, one: dict) -> ExampleRow:
    return ExampleRow(position, one, f"{position:032x}", one["id"], one["dataset"], None, f"c{position // 4}")


def outcome(arm: int, position: int, one: dict, judge: int) -> WorkOutcome:
    key = f"{arm:04x}{os.getpid():012x}{position:016x}".encode()[:16]
    made = WorkOutcome(
        WorkItem(arm, position, 0, one, f"{position:032x}", 0, bytes.fromhex(f"{arm:02x}{position:030x}")[:16] or key)
    )
    number = position * 7919 % 10_007
    made.output = {"response": f"answer {number % 1009}, as passage {position} says " + "and so on " * (number % 20)}
    made.input_tokens, made.output_tokens, made.context_tokens, made.source = (
        700 + number % 50,
        (700 if arm == 0 else 300) + number % 50,
        650,
        "usage",
    )
    made.latency, made.usage = (
        0.2 + number / 5_000,
        {"input_tokens": made.output_tokens, "output_tokens": 30, "cost": number / 1e7},
    )
    if number % 211 == 0:
        made.error = "SystemFailed: the proxy answered 502"
        return made
    made.calls = [
        Call(account="system", model="m", url="http://localhost", started=1e9 + position, seconds=made.latency, status=200,  # noqa: E501
             usage=Usage(input_tokens=made.output_tokens, output_tokens=30), cost=number / 1e7)
    ]  # fmt: skip
    made.scores = [
        EvaluatorScore(
            judge, {"f1": (number % 101) / 100, "exact_match": float(number % 3 == 0), "recall": (number % 51) / 50}
        )
    ]
    return made


# --- measuring
# ------------------------------------------------------------------------


class Browser:
    def __init__(self, address: str) -> None:
        self.base = address.partition("/?")[0]
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        ).open
        self._open(address).read()

    def get(self, path: str) -> tuple[str, float]:
        began = time.perf_counter()
        with self._open(self.base + path) as response:
            text = response.read().decode()
        return text, time.perf_counter() - began


def measure(path: Path, views: int) -> None:
    command = [sys.executable, "-m", "context_bench", "view", str(path), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as viewer:
        assert viewer.stdout is not None
        try:
            browser = Browser(viewer.stdout.readline().strip())
            pages(browser, viewer.pid, views)
        finally:
            viewer.terminate()


def pages(browser: Browser, pid: int, views: int) -> None:
    print("| page | first, s | again, s |\n|---|---|---|")
    run = "/runs/" + re.findall(r'/runs/(\w+)">large<', browser.get("/?q=large")[0])[0]
    asked = {
        "list of runs": "/",
        "run, first rows": run,
        "last page of rows": f"{run}?page=99999",
        "sorted by latency": f"{run}?sort=latency&order=down",
        "sorted by a score": f"{run}?sort=score:f1",
        "sorted by cost": f"{run}?sort=cost&order=down",
        "one system, one dataset": f"{run}?system=proxy&dataset=d1",
        "failed only": f"{run}?failed=1",
        "search for a rare word": f"{run}?q=passage+49999",
        "search for a common word": f"{run}?q=answer",
        "a row, as one of those by latency": f"{run}/rows/0-4711-0?sort=latency&order=down",
    }
    for name, address in asked.items():
        first = browser.get(address)[1]
        again = statistics.median(browser.get(address)[1] for _ in range(5))
        print(f"| {name} | {first:.2f} | {again:.3f} |", flush=True)
    summary = [browser.get(f"{run}/summary?part")[1] for _ in range(2)]
    print(f"| summary of the run (its own process) | {summary[0]:.1f} | {summary[1]:.3f} |")
    before = memory(pid)
    for number in range(views):
        column = ("latency", "cost", "sent", "score:f1", "score:recall", "forwarded", "example")[number % 7]
        browser.get(
            f"{run}?sort={column}&page={number + 1}" if number % 2 else f"{run}/rows/1-{number * 37}-0?sort={column}"
        )
    after = memory(pid)
    print(
        f"\nserver: {before:.0f} MB before and {after:.0f} MB after {views} views; largest {memory(pid, 'VmHWM'):.0f} "
        "MB"
    )
    for child in children(pid):
        print(f"beside it: {memory(child):.0f} MB")


def memory(pid: int, what: str = "VmRSS") -> float:
    return int(re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


if __name__ == "__main__":
    main()
