"""The command on a Ray cluster, with its rows in PostgreSQL: Ctrl-C in the middle, and the rest of the run without
Ray.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, rows, run_of
from context_bench.engine.store import schema
from context_bench.llm.background import run_sync
from context_bench.llm.responders import prompt_of
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer

pytestmark = pytest.mark.program("initdb")
ROWS, WORKERS, QUICK = 30, 4, 10


class Gated(Scripted):
    """Answers the first `QUICK` questions; the next wait until the gate is open, and `full` says that all workers
    wait.
    """

    def __init__(self) -> None:
        super().__init__([{"text": "3 m"}])
        self.gate, self.full, self.asked = threading.Event(), threading.Event(), 0

    async def reply(self, request: Any, headers: Any) -> Any:
        if "How long is bridge" in prompt_of(request):
            self.asked += 1
            if self.asked == QUICK + WORKERS:
                self.full.set()
            if self.asked > QUICK and not self.gate.is_set():
                await asyncio.to_thread(self.gate.wait, 60)
        return await super().reply(request, headers)


@pytest.fixture
def model() -> Iterator[tuple[Gated, str]]:
    gated = Gated()
    server = ModelServer(gated)
    run_sync(server.start())
    yield gated, server.url
    gated.gate.set()
    run_sync(server.stop())


def test_ctrl_c_keeps_what_was_done_and_asked_and_a_run_here_goes_on_with_it(
    cluster: Any, postgres: Any, model: tuple[Gated, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated, url = model
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    lines = [
        {"id": n, "context": f"Bridge {n}.", "question": f"How long is bridge {n}?", "answer": "3 m"}
        for n in range(ROWS)
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    where = postgres.url("ray").replace(f":{postgres.password}@", "@")
    argv = [
        "--proxy",
        url,
        "--name",
        "p",
        "--dataset",
        "d.jsonl",
        "--model",
        "m",
        "--store",
        where,
        "--run",
        "night",
        "--quiet",
    ]
    argv += ["--max-workers", str(WORKERS), "--output", "json", "--out", "r.json"]
    there = ["--executor", "ray", "--ray-address", cluster.address]
    with subprocess.Popen(
        [sys.executable, "-m", "context_bench", *argv, *there], stderr=subprocess.PIPE, text=True
    ) as process:
        while not gated.full.wait(0.1):
            assert process.poll() is None, process.communicate()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert "interrupted; 10 of 30 rows are stored" in process.stderr.read()
    with open_store(where) as store:
        stopped = run_of(store, "night")
        assert stopped.status == "interrupted"
        assert any("2 Ray nodes" in note for note in stopped.counts["notes"])
        assert len(rows(store, "night")) == QUICK
        with store.reading() as connection:
            calls = connection.execute(schema.calls.select().where(schema.calls.c.account == "system")).all()
    assert len(calls) == gated.asked == QUICK + WORKERS
    assert sum(call.output is None for call in calls) == WORKERS
    gated.gate.set()
    assert main(argv) == 0
    assert gated.asked == QUICK + WORKERS + ROWS - QUICK
    with open_store(where) as store:
        assert len(rows(store, "night")) == ROWS
