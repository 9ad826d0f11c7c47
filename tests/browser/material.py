"""Runs to look at: one like the demo's, a hostile one, a very large one."""

from __future__ import annotations

import json
import socket
import threading
import unicodedata
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from context_bench.__main__ import main
from context_bench.core.records import EvalRow
from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.evaluators import AnswerQuality, LLMJudge
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore
from context_bench.results import EvalResult
from context_bench.runner import evaluate
from context_bench.systems import OpenAIProxy
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy

TRADES = [
    "baker",
    "sailor",
    "weaver",
    "tanner",
    "miller",
    "cooper",
    "mason",
    "potter",
    "dyer",
    "smith",
    "tailor",
    "roofer",
]
PEOPLE = ["Ada", "Bo", "Cleo", "Dag", "Edda", "Finn", "Gro", "Hal", "Ida", "Jo", "Kai", "Liv"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(server: ModelServer) -> None:
    run_sync(server.stop())


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# Like the demo: proxies that halve, flatten roles or do nothing, behind them a tap; two datasets; one kind of failure
# ------------------


def _house(n: int) -> dict[str, Any]:
    """A question whose answer stands early in the text for even numbers and late for odd ones."""
    other = [f"Lane {k} runs past house {n} and was paved with stone in the year {1700 + 7 * k}." for k in range(16)]
    told = f"{PEOPLE[n % 12]} of house {n} is a {TRADES[n * 5 % 12]} by trade."
    at = 1 if n % 2 == 0 else 13
    context = "\n".join([*other[:at], told, *other[at:]])
    question = f"By what trade does the person of house {n} live?"
    return {
        "id": f"house-{n:02d}",
        "question": question,
        "answer": TRADES[n * 5 % 12],
        "context": context,
        "evidence": told,
    }


def demo_like(folder: Path) -> Path:
    """The store of a run `houses` in which every page has something to show. `folder` is where we stand."""
    examples = [_house(n) for n in range(24)]
    for at, name in enumerate(("street.jsonl", "square.jsonl")):
        lines(folder / name, examples[at::2])
    _measure(folder, "houses", {"halves": "halves", "user-only": "user-only"}, "full,none,random_drop")
    return folder / "store.db"


def demo_like_again(folder: Path) -> None:
    """A later run `houses-later` beside the one of `demo_like`, in which `halves` does no harm."""
    _measure(folder, "houses-later", {"halves": "nothing"}, "full,none")


def _measure(folder: Path, run: str, habits: dict[str, str], controls: str) -> None:
    examples = [_house(n) for n in range(24)]
    key = {
        row["question"]: {"answer": row["answer"], "evidence": row["evidence"], "wrong": "I do not know."}
        for row in examples
    }
    rules = [{"when": {"text": "person of house 7 live"}, "status": 400, "error": "this question is refused"}]
    port = free_port()
    with ExitStack() as stack:
        model = ModelServer(Scripted({"answer_key": key, "rules": rules}))
        run_sync(model.start())
        stack.callback(_stop, model)
        made = {name: MisbehavingProxy(habit, f"http://127.0.0.1:{port}") for name, habit in habits.items()}
        named = [
            part for name, proxy in made.items() for part in ("--proxy", stack.enter_context(proxy).url, "--name", name)
        ]
        options = ["--dataset", "street.jsonl", "--dataset", "square.jsonl", "--controls", controls, "--tap", str(port)]
        options += ["--upstream", model.url, "--model", "gpt-4o-mini", "--shape", "openai-agent", "--max-workers", "8"]
        told = [
            "--run",
            run,
            "--store",
            str(folder / "store.db"),
            "--quiet",
            "--output",
            "json",
            "--out",
            str(folder / f"{run}.json"),
        ]
        assert main([*named, *options, *told, "--max-failures", "1"]) == 0


class Echo:
    """Answers one example in two rightly, or all."""

    def __init__(self, name: str, every: int = 1) -> None:
        self.name, self.every = name, every

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        number = int(example["id"].rpartition("-")[2])
        return {**example, "response": example["answer"] if number % self.every == 0 else "I do not know."}


LONG = ("http://127.0.0.1:8080/v1/compress", "agent_memory_with_summaries_and_everything", "production-proxy-with-bm25")


def long_names(folder: Path) -> Path:
    """The store of four runs whose names, systems, data and model are long."""
    path = folder / "long.db"
    names = ("full", *LONG)
    told = {
        "cells": [{"labels": {}, "systems": list(names), "baseline": "full", "controls": ["full"]}],
        "margin": {"value": 0.02, "rule": "given", "score_field": "f1"},
        "options": {"seed": 0, "score_field": "f1", "model": "anthropic/claude-haiku-4-5-20251001"},
        "datasets": [{"name": "LongBench-v2/single-document-questions.jsonl"}],
    }

    async def make() -> None:
        store = open_store(path)
        try:
            for number in range(4):
                await execute(
                    store,
                    name=f"nightly_comparison_of_everything_against_everything_{number}",
                    arms=[Arm(Echo(name, 1 + place)) for place, name in enumerate(names)],
                    examples=[_house(n) for n in range(12)],
                    evaluators=[AnswerQuality()],
                    manifest=told,
                    settings=RunSettings(late_grace=0.0),
                )
        finally:
            store.close()

    run_sync(make())
    return path


class Gated:
    """A system that answers one example for every `release()` of its gate."""

    name = "gated"

    def __init__(self) -> None:
        self.gate, self.begun = threading.Semaphore(0), threading.Event()

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        self.begun.set()
        self.gate.acquire()
        return {**example, "response": example["answer"]}


def going(store: Path, system: Gated) -> Future[Any]:
    """A run `going` of six examples, begun in a thread of its own."""
    examples = [_house(n) for n in range(6)]
    thread = ThreadPoolExecutor(max_workers=1)
    begun = thread.submit(
        evaluate, [system], examples, [AnswerQuality()], store=store, run="going", progress=False, max_workers=1
    )
    thread.shutdown(wait=False)  # it ends with its work
    return begun


# Hostile: whatever data can say, in every place where a page or a terminal shows it
# -------------------------------------------------------

#: Would run, load or draw something in a page, steer a terminal, hide or turn around what follows it, or cannot be
#: written.
MARKUP = "</script></template></pre><script>alert(1)</script><img src=x onerror=alert(2)>"
CONTROL = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\r\x08"
UNSEEN = "\u202egnp.exe\u2066\u200b\u200d\ufeff\ud800"
NASTY = f"{MARKUP}{CONTROL}{UNSEEN}"
NAME = "<img src=x onerror=alert(3)>\x1b[2J\u202e"


def acting(text: str) -> str:
    """The characters of `text` that steer, hide or turn around: none may reach a reader, apart from line ends and
    tabs.
    """
    return "".join(
        dict.fromkeys(
            each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co") and each not in "\n\t"
        )
    )


def hostile(folder: Path) -> Path:
    """The store of a run in which names, ids, contexts, questions, answers, errors and what a judge says are `NASTY`;
    one text has 1 MB.
    """
    examples = [
        {
            "id": f"{n}{NASTY}",
            "question": f"{n}: {NASTY}?",
            "answer": NASTY,
            "context": f"{NASTY} {n} " * 40,
            "dataset": f"{NAME}{n % 2}",
        }
        for n in range(6)
    ]
    examples.append(
        {"id": "megabyte", "question": "How long?", "answer": "1 MB", "context": f"{MARKUP} " * 11_000, "dataset": NAME}
    )
    rules = [{"when": {"text": "^[^?]*3: "}, "status": 400, "error": NASTY}]
    with ExitStack() as stack:
        model, judge = (
            ModelServer(Scripted({"rules": rules, "default": f"It is {NASTY}"})),
            ModelServer(Scripted({"default": f"2 {NASTY}"})),
        )
        for server in (model, judge):
            run_sync(server.start())
            stack.callback(_stop, server)
        tap = stack.enter_context(Tap(model.url, upstream_key="none-needed"))
        systems, safe = [], NASTY.replace("\ud800", "")  # no name may have what cannot be stored
        for habit in ("nothing", "halves", "user-only"):
            proxy = stack.enter_context(MisbehavingProxy(habit, tap.url))
            systems.append(
                OpenAIProxy(proxy.url, model="gpt-4o-mini", name=f"{habit}{safe}", shape="openai-agent", identity=NASTY)
            )
        evaluate(
            systems,
            examples,
            [AnswerQuality(), LLMJudge(judge.url, diagnostics=True)],
            [MeanScore("f1")],
            store=folder / "hostile.db",
            run=f"hostile {NAME}",
            recorder=tap,
            progress=False,
            max_workers=4,
        )
    return folder / "hostile.db"


# The other kinds of runs
# ------------------------------------------------------------------------


def compression(page: Path) -> Path:
    """The report of probes over one shipped session: a compressor beside everything, nothing and plain truncation."""
    what = ["bundled:sessions/order-sync-zh", "--system", "mask_observations", "--points", "fraction:0.75"]
    assert (
        main(
            [
                "compress",
                "run",
                *what,
                "--store",
                str(page.with_suffix(".db")),
                "--quiet",
                "--output",
                "html",
                "--out",
                str(page),
            ]
        )
        == 0
    )
    return page


def memory(page: Path) -> Path:
    """The report of one conversation of the lab: a memory with its floors and ceilings."""
    what = ["--system", "bm25", "--dataset", "bundled:recall-lab:turns=40", "-n", "1", "--k", "1,5"]
    reader = ["--reader", "py:context_bench.testing.lab_reader:LabReader"]
    assert (
        main(
            [
                "memory",
                *what,
                *reader,
                "--store",
                str(page.with_suffix(".db")),
                "--quiet",
                "--output",
                "html",
                "--out",
                str(page),
            ]
        )
        == 0
    )
    return page


def replay(page: Path) -> Path:
    """The report of a recorded session sent again through a proxy that rewrites history: tokens, cache, money."""
    port, log = free_port(), page.with_suffix(".jsonl")
    lines(log, [{"model": "gpt-4o", "messages": _conversation(), "tools": [_TOOL], "session_id": "one"}])
    with MisbehavingProxy("rewrites-history", f"http://127.0.0.1:{port}") as proxy:
        through = ["--proxy", proxy.url, "--name", "rewrites", "--tap", str(port), "--upstream", "echo"]
        told = ["--store", str(page.with_suffix(".db")), "--output", "html", "--out", str(page)]
        assert main(["replay", str(log), *through, *told]) == 0
    return page


_TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}},
}


def _conversation() -> list[dict[str, Any]]:
    """An agent that reads five files and says what it found."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Which are odd?"},
    ]
    for turn in range(5):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"src/{turn}.txt"})},
        }
        found = "\n".join(f"{number}: value_{turn}_{number} = {number * 7919 % 10007}" for number in range(60))
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": found},
        ]
    return [*messages, {"role": "assistant", "content": "The first and the third are odd."}]


# Very large: rows made without a run
# ---------------------------------------------------------------------------------------------------


def many_rows(n: int, systems: tuple[str, ...] = ("kompact", "full")) -> EvalResult:
    """`n` rows of `systems` whose figures are plain functions of their number; every 97th row failed."""
    rows = [_row(at, systems) for at in range(n)]
    summary = {name: {"mean_score": 0.5, "pass_rate": 0.5, "compression_ratio": 0.4} for name in systems}
    return EvalResult(rows=rows, summary=summary, config={"systems": list(systems), "num_examples": n // len(systems)})


def _row(at: int, systems: tuple[str, ...]) -> EvalRow:
    number = at // len(systems)
    sent = 500 + number * 37 % 4001
    row = EvalRow(
        system=systems[at % len(systems)],
        example_id=f"q{number:05d}",
        scores={"f1": (number * 7919 % 1000) / 1000},
        input_tokens=sent,
        output_tokens=sent // (1 + (at % len(systems) == 0)),
        latency=(number * 31 % 997) / 100,
        dataset="hotpotqa" if number % 3 else "pydocs-qa",
        usage={"cost": sent * 1e-6},
    )
    if at % 97 == 96:
        row.errors, row.scores, row.output_tokens, row.latency = (
            {"system": "TimedOut: no reply within 30 s"},
            {},
            None,
            None,
        )
    return row
