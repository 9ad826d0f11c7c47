"""What the forked children do. A scene is a function of JSON values that returns JSON values."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from context_bench.core.tokens import count_tokens
from context_bench.engine import Arm, RunSettings, execute, open_store, purge, rescore, rows, run_of, setups, spent
from context_bench.evaluators import LLMJudge
from context_bench.metrics import MeanScore
from context_bench.reports import build_page
from context_bench.reports.json_document import render
from context_bench.runner import collect
from context_bench.systems import OpenAIProxy

GROUPS, QUESTIONS = 2, 2


class Cents:
    """A cent for a token."""

    def cost(self, usage, model):
        return 0.01 * (usage.input_tokens or 0)


class Right:
    name, needs = "right", ("answer",)

    def score(self, original, processed):
        return {"right": float(original["answer"] in processed["response"])}


class Cut:
    """A budgeted arm: as many tokens of the context as its partner forwarded."""

    name = "cut"

    def fingerprint(self):
        return {"class": "Cut"}

    def process(self, example):
        words = example["context"].split()[: example["budget"]]
        return {**example, "context": " ".join(words), "response": " ".join(words)}


class Notebook:
    """A memory on disk that asks the model about each group before it writes it down; a namespace used twice would hold
    too much.
    """

    stateful, name = True, "notebook"

    def __init__(self, proxy, folder, path=None):
        self.proxy, self.folder, self.path = proxy, folder, path

    def fingerprint(self):
        return {"class": "Notebook"}

    def namespace(self, name):
        return Notebook(self.proxy, self.folder, self.folder / name)

    async def asetup(self, example):
        await self.proxy.aprocess({"id": "", "context": example["group"], "question": "note"})
        with self.path.open("a") as file:
            file.write(f"{example['group']}\n")
        return {"items": 1, "acknowledged": 1, "failed": 0}

    async def aprocess(self, example):
        held = self.path.read_text().split()
        asked = await self.proxy.aprocess({**example, "context": f"{example['context']} {held}"})
        return {**example, "response": asked["response"], "held": held}


def examples():
    """Four questions in two groups."""
    for group in range(GROUPS):
        for i in range(QUESTIONS):
            number = group * QUESTIONS + i
            text = f"Box {number} holds word{number}. "
            yield {
                "id": number,
                "context": text * 80,
                "question": f"Box {number}?",
                "answer": f"word{number}",
                "group": f"g{group}",
            }


def arms(url, folder):
    proxy = OpenAIProxy(url, model="m", name="proxy", max_retries=0, prices=Cents())
    Path(folder).mkdir(parents=True, exist_ok=True)
    return [Arm(proxy), Arm(Cut(), budget_from="proxy"), Arm(Notebook(proxy, Path(folder)))]


def judges(url):
    return [Right(), LLMJudge(url, model="judge", max_retries=0, prices=Cents())]


def whole(url, where):
    """A run with all that a run can write: calls, budgets, judged answers, set-ups; then what it found and what it
    cost.
    """
    systems = arms(url, f"{where}.notes")
    with open_store(where) as store:
        done = asyncio.run(
            execute(
                store,
                name="r",
                arms=systems,
                examples=examples(),
                evaluators=judges(url),
                manifest={
                    "cells": [
                        {"labels": {}, "systems": [arm.name for arm in systems], "baseline": None, "controls": []}
                    ]
                },
                settings=RunSettings(late_grace=0.0),
            )
        )
        return {"counts": done.counts, "completed": done.completed, **told(store)}


class Noting:
    """Answers, and notes in a file what it was asked."""

    name = "noting"

    def __init__(self, path):
        self.path = path

    def fingerprint(self):
        return {}

    def process(self, example):
        with Path(self.path).open("a") as file:
            file.write(f"{example['id']}\n")
        return {**example, "response": example["answer"]}


def of_a_file(where, data):
    """A run over a file, whose plan is known as far as it was made; what it found, and all that was asked so far."""
    from context_bench.datasets import load
    from context_bench.datasets.examples import Chained

    with open_store(where) as store:
        manifest = {"cells": [{"labels": {}, "systems": ["noting"], "baseline": None, "controls": []}]}
        given = {"evaluators": [Right()], "manifest": manifest, "settings": RunSettings(late_grace=0.0)}
        examples = Chained([load(data)])
        done = asyncio.run(execute(store, name="r", arms=[Arm(Noting(f"{where}.asked"))], examples=examples, **given))
        return {"counts": done.counts, "asked": Path(f"{where}.asked").read_text().split(), **told(store)}


def told(store):
    """What a finished run says: the report, whatever its times; the money spent, and how much of it on set-ups that
    were done again.
    """
    page = build_page(collect(store, "r", [MeanScore(score_field="right")]))
    repeated = sum(each.cost or 0.0 for each in setups(store, "r")) - sum(
        each.cost or 0.0 for each in page_setups(store)
    )
    return {"report": render(page, canonical=True), "spent": spent(store, run_of(store, "r").id), "repeated": repeated}


def page_setups(store):
    from context_bench.core.rows import standing

    return standing(setups(store, "r"))


def rescored(url, where):
    """Judge the stored answers again with a second evaluator, and say what the run says then."""

    class Long:
        name = "long"

        def score(self, original, processed):
            return {"long": float(len(processed["response"]))}

    with open_store(where) as store:
        asyncio.run(rescore(store, "r", [Long(), LLMJudge(url, model="other", max_retries=0, prices=Cents())]))
        return told(store)


class Panic(BaseException):
    """What bindings to Rust raise."""


class Odd:
    """Answers four examples, and does something else when it comes to the fifth."""

    name = "odd"

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def fingerprint(self):
        return {"class": "Odd"}

    def process(self, example):
        if example["id"] == 4:
            return getattr(self, self.kind)(example)
        return {**example, "response": "fine"}

    well = staticmethod(lambda example: {**example, "response": "fine"})

    def hangs(self, example):
        threading.Event().wait()

    def exits(self, example):
        os._exit(9)

    def panics(self, example):
        raise Panic("a library gave up")

    def stops(self, example):
        return next(iter(()))

    def closes_a_generator(self, example):
        raise GeneratorExit

    def ends_the_program(self, example):
        sys.exit(3)

    def interrupts(self, example):
        raise KeyboardInterrupt

    def recurses(self, example):
        return self.recurses(example)

    def has_no_memory(self, example):
        raise MemoryError

    def leaks(self, example):
        self.kept = []
        for size in (10_000_000, 100_000, 1_000):  # until there is nothing left, and it is never given back
            with contextlib.suppress(MemoryError):
                while True:
                    self.kept.append(bytearray(size))
        raise MemoryError("nothing is left")

    def forks(self, example):
        os.fork()
        return {**example, "response": "fine"}

    def leaves_the_folder(self, example):
        os.chdir(self.folder)
        os.environ.clear()
        return {**example, "response": "fine"}

    def closes_stdout(self, example):
        os.close(1)
        sys.stdout.close()
        return {**example, "response": "fine"}

    def blocks_signals(self, example):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        return {**example, "response": "fine"}

    def says_much(self, example):
        return {**example, "response": "much " * 20_000_000}


class Leaves:
    """A system that starts two programs and ends neither; their process ids are written into the folder that the
    context names.
    """

    name = "leaves"

    def process(self, example):
        for name, apart in (("careless", False), ("meant", True)):
            program = subprocess.Popen(["sleep", "600"], start_new_session=apart)
            (Path(example["context"]) / name).write_text(str(program.pid))
        return {**example, "response": "fine"}


class Panics:
    """An evaluator whose library gives up on one answer."""

    name = "panics"

    def score(self, original, processed):
        if original["id"] == 4:
            raise Panic("a library gave up")
        return {"fine": 1.0}


class OddAsync(Odd):
    """The same, on the loop."""

    async def aprocess(self, example):
        return self.process(example)


def opened(where):
    """Open a store, which brings it up to date, and say what its run says."""
    with open_store(where) as store:
        return told(store)


def purged(where):
    """Remove everything."""
    with open_store(where) as store:
        return {"gone": purge(store, older_than=0)}


def odd(where, kind, folder, on_loop=False, workers=1):
    """A run of a system that misbehaves on one of six examples: its counts and the errors in its rows."""
    system = (OddAsync if on_loop else Odd)(kind, folder)
    given = ({"id": number, "context": f"Box {number}.", "question": "?"} for number in range(6))
    os.chdir(Path(where).parent)
    with open_store(Path(where).name) as store:
        settings = RunSettings(late_grace=0.0, example_timeout=0.5 if kind == "hangs" else None, max_workers=workers)
        done = asyncio.run(
            execute(
                store,
                name="r",
                arms=[Arm(system)],
                examples=given,
                evaluators=[Panics()],
                manifest={},
                settings=settings,
            )
        )
        found = list(rows(store, "r"))
        errors = {str(row.example_id): row.errors["system"] for row in found if row.failed}
        unjudged = [row.example_id for row in found if not row.failed and "fine" not in row.scores]
        return {
            "done": done.counts["done"],
            "failed": done.counts["failed"],
            "rows": len(found),
            "errors": errors,
            "unjudged": unjudged,
        }


def waits():
    """Do nothing, until it is killed."""
    signal.pause()


def command(argv):
    """A command line; the exit code is its own."""
    from context_bench.__main__ import main

    raise SystemExit(main(argv))


def warm(url, folder):
    """Play every scene once, before the first fork: then children find all modules loaded."""
    count_tokens("load the vocabulary")
    whole(url, str(folder / "warm.db"))
    rescored(url, str(folder / "warm.db"))
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        command(["show", "r", "--store", str(folder / "warm.db"), "--output", "json", "--score-field", "right"])
    (folder / "warm.jsonl").write_text('{"id": 1, "context": "Box 1 holds word1.", "question": "?", "answer": "word1"}')
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        given = [
            "--proxy",
            url,
            "--dataset",
            str(folder / "warm.jsonl"),
            "--store",
            str(folder / "command.db"),
            "--output",
            "json",
            "--quiet",
        ]
        command(["run", *given, "--model", "m", "--price", "m=1,2"])


_KNOWN = (whole, of_a_file, rescored, odd, opened, purged, waits, command)
SCENES = {scene.__name__: scene for scene in _KNOWN}
