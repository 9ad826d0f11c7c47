"""A store with runs that the engine made, shared by all tests here, and a way in."""

import asyncio
import threading
from contextlib import asynccontextmanager

import aiohttp
import pytest

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e{{ 7*7 }}"
EXAMPLES = 130


class Speller:
    """Answers with what it is asked, sometimes wrongly, sometimes not at all."""

    def __init__(self, name, wrong=3, fails=17, gate=None):
        self.name, self.wrong, self.fails, self.gate = name, wrong, fails, gate

    def fingerprint(self):
        return {"name": self.name, "wrong": self.wrong}

    async def aprocess(self, example):
        number = int(str(example["id"]).rpartition("-")[2])
        if self.gate is not None and number >= 5:
            await self.gate.wait()
        if number % self.fails == self.fails - 1:
            raise RuntimeError(f"no answer to {number} {HOSTILE}")
        return {**example, "response": f"word{number % self.wrong} of {self.name}"}


class Marks:
    """A score that differs from row to row."""

    name, version = "marks", "1"

    def score(self, original, processed):
        number = int(str(original["id"]).rpartition("-")[2])
        return {"f1": number % 7 / 7 if "word0" not in processed["response"] else 1.0, "other": float(number)}


def examples(count=EXAMPLES, question="What is the word?"):
    return [
        {
            "id": f"ex-{number}",
            "context": f"the word is word{number}. " * 100,
            "question": f"{question} ({number})",
            "answer": f"gold{number}",
            "dataset": "odd" if number % 2 else "even",
            "cluster": f"c{number // 2}",
        }
        for number in range(count)
    ]


def manifest(*systems, **more):
    cells = [{"labels": {}, "systems": list(systems), "baseline": systems[0], "controls": [systems[0]]}]
    about = {"value": 0.02, "rule": "given", "score_field": "f1"}
    return {"cells": cells, "margin": about, "options": {"seed": 0, "score_field": "f1", "model": "one"}, **more}


async def run(store, name, systems, items, **options):
    told = options.pop("manifest", None) or manifest(*(system.name for system in systems))
    settings = RunSettings(late_grace=0.0, max_workers=64)
    evaluators = options.pop("evaluators", None) or [Marks()]
    return await execute(
        store,
        name=name,
        arms=[Arm(one) for one in systems],
        examples=items,
        evaluators=evaluators,
        manifest=told,
        settings=settings,
        **options,
    )


@pytest.fixture(scope="session")
def store_path(tmp_path_factory):
    """Runs `first` and `second` (same examples), `other` (another model), `hostile`."""
    path = tmp_path_factory.mktemp("viewer") / "store.db"

    async def filled():
        with open_store(path) as store:
            await run(store, "first", [Speller("full", 2), Speller("short", 3)], examples())
            await run(store, "second", [Speller("full", 2), Speller("short", 4)], examples())
            other = {**manifest("full", "short"), "options": {"seed": 0, "score_field": "f1", "model": "another"}}
            await run(store, "other", [Speller("full", 2), Speller("short", 5)], examples(20), manifest=other)
            nasty = [
                {**one, "id": f"{HOSTILE}-{number}", "question": HOSTILE * 20}
                for number, one in enumerate(examples(12))
            ]
            await run(
                store,
                f"run {HOSTILE}",
                [Speller(f"sys {HOSTILE}")],
                nasty,
                manifest=manifest(f"sys {HOSTILE}", title=HOSTILE),
            )

    asyncio.run(filled())
    return path


class Served:
    """A viewer in a thread of its own, for all tests: what it has worked out once it need not work out again."""

    def __init__(self, path):
        self.path, self._up, self._down = path, threading.Event(), None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._up.wait()

    async def _serve(self):
        self._loop, self._down = asyncio.get_running_loop(), asyncio.Event()
        async with Viewer(self.path, result_of=result_of) as self.viewer:
            self._up.set()
            await self._down.wait()

    def stop(self):
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()


@pytest.fixture(scope="session")
def served(store_path):
    made = Served(store_path)
    yield made.viewer
    made.stop()


@asynccontextmanager
async def session_with(viewer, *, enter=True):
    """A session of a browser that has been let in."""
    jar = aiohttp.CookieJar(unsafe=True)  # of an address without a name
    async with aiohttp.ClientSession(viewer.address, cookie_jar=jar) as session:
        if enter:
            async with session.get(viewer.url) as response:
                assert response.status == 200
        yield session


@pytest.fixture
async def session(served):
    async with session_with(served) as opened:
        yield opened


@pytest.fixture
async def stranger(served):
    async with session_with(served, enter=False) as opened:
        yield opened
