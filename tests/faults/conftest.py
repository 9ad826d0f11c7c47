"""What the tests of faults need: a forge of children that fail on order, an endpoint, and places that cost no disk."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer


class Forge:
    """Starts scenes in forked children (see `forge.py`)."""

    def __init__(self, url):
        command = [sys.executable, str(Path(__file__).with_name("forge.py")), str(os.getpid()), url]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _ask(self, **order):
        print(json.dumps(order), file=self.program.stdin, flush=True)
        return json.loads(self.program.stdout.readline())

    def start(self, scene, *, fault=None, **arguments):
        """Begin a scene; the pid of its child, which leads a process group of its own."""
        return self._ask(start=scene, arguments=arguments, fault=fault)["pid"]

    def wait(self, pid):
        """(exit code or minus the signal, what the scene returned, what it printed) when the child is gone."""
        return tuple(self._ask(wait=pid).values())

    def play(self, scene, **order):
        """A scene from beginning to end."""
        return self.wait(self.start(scene, **order))

    def close(self):
        self.program.stdin.close()
        self.program.wait(30)


@pytest.fixture(scope="session")
def forge(endpoint):
    made = Forge(endpoint.url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def endpoint():
    """A model that answers from what it is sent; a judge at the same address."""
    rules = [
        {"when": {"model": "judge|other"}, "text": "4"},
        *({"when": {"text": f"word{number}"}, "text": f"It is word{number}."} for number in range(4)),
        {"text": "I do not know."},
    ]
    server = ModelServer(Scripted({"rules": rules}))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


class Bench:
    """Command lines of one run on one store, played in the forge."""

    def __init__(self, forge, url, folder):
        self.forge, self.url, self.folder = forge, url, folder
        self.store = folder / "store.db"
        lines = []
        for number in range(12):
            noise = " ".join(
                hashlib.sha256(f"{number} {i}".encode()).hexdigest() for i in range(60)
            )  # does not get smaller
            facts = {
                "context": f"Box {number % 4} holds word{number % 4}. {noise}",
                "question": "What is in it?",
                "answer": f"word{number % 4}",
            }
            lines.append(json.dumps({"id": number, **facts}) + "\n")
        (folder / "boxes.jsonl").write_text("".join(lines))

    def argv(self, *more, url=None):
        """The command line of the run."""
        given = [
            "run",
            "--proxy",
            url or self.url,
            "--name",
            "p",
            "--model",
            "m",
            "--dataset",
            str(self.folder / "boxes.jsonl"),
        ]
        return [
            *given,
            "--price",
            "m=1,2",
            "--run",
            "r",
            "--store",
            str(self.store),
            "--quiet",
            "--output",
            "json",
            *more,
        ]

    def run(self, *more, fault=None, url=None):
        """Run it; the exit code and what was said."""
        status, _, out = self.forge.play(
            "command", fault=fault, argv=self.argv("--out", str(self.folder / "out.json"), *more, url=url)
        )
        return status, out

    def report(self):
        """What the stored run says, whatever its times."""
        out = self.folder / "canonical.json"
        status, _, said = self.forge.play(
            "command", argv=["export", "r", "--store", str(self.store), "--canonical", "--out", str(out)]
        )
        assert status == 0, said
        return out.read_text()


@pytest.fixture(scope="session")
def make_bench(forge, endpoint, tmp_path_factory):
    """Benches in folders of their own."""
    return lambda: Bench(forge, endpoint.url, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def bench(forge, endpoint, place):
    return Bench(forge, endpoint.url, place)


@pytest.fixture(scope="session")
def undisturbed(forge, endpoint, tmp_path_factory):
    """The report of the same run when nothing happens to it. It names no folder."""
    calm = Bench(forge, endpoint.url, tmp_path_factory.mktemp("undisturbed"))
    status, out = calm.run()
    assert status == 0, out
    return calm.report().replace(str(calm.folder), "FOLDER")


@pytest.fixture
def place(tmp_path):
    """A folder in memory where there is one: killed programs need no disk that is slow, only pages that outlive
    them.
    """
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="context-bench-", dir=memory if memory.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
