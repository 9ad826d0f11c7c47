"""Two processes on one run: the second is refused; one that was stopped so long that another took over cannot write any
more.
"""

import asyncio
import os
import signal
import sqlite3
import threading

import pytest

from context_bench.llm.background import run_sync
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis import Reply


class Gate:
    """Answers like the endpoint, but holds the n-th request until it is opened."""

    name = "gate"

    def __init__(self, held):
        self.left, self.reached, self.open = held, threading.Event(), asyncio.Event()

    async def reply(self, request, headers):
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await self.open.wait()
        said = next(
            f"It is word{number}." for number in range(4) if f"word{number}" in request.messages[0].text or number == 3
        )
        return Reply(said, [], "stop", None, request.model)

    async def let_go(self):
        self.open.set()


@pytest.fixture
def held(bench):
    """A run that is in the middle of a request: (its pid, the gate)."""
    gate = Gate(7)
    server = ModelServer(gate)
    run_sync(server.start())
    bench.url = server.url
    pid = bench.forge.start("command", argv=bench.argv())
    assert gate.reached.wait(60)
    yield pid, gate
    run_sync(server.stop())


def outputs(bench):
    """Everything that is stored of answers."""
    with sqlite3.connect(bench.store) as connection:
        return connection.execute("SELECT id, key, takes, created, output FROM outputs ORDER BY id").fetchall()


def test_the_second_is_refused_and_the_first_goes_on(bench, held):
    pid, gate = held
    status, out = bench.run()
    assert status == 2, out
    assert "run 'r' is being worked on by another process" in out
    run_sync(gate.let_go())
    status, _, out = bench.forge.wait(pid)
    assert status == 0, out


def test_who_was_stopped_past_his_lease_cannot_overwrite_who_took_over(bench, held):
    pid, gate = held
    os.kill(pid, signal.SIGSTOP)
    with sqlite3.connect(
        bench.store
    ) as connection:  # as if it ran on another machine and had not been heard of for long
        connection.execute("UPDATE runs SET owner = 'elsewhere|1|1', updated = updated - 1000")
    status, out = bench.run()
    assert status == 0, out
    before, report = outputs(bench), bench.report()
    assert len(before) == 12
    run_sync(gate.let_go())
    os.kill(pid, signal.SIGCONT)
    status, _, out = bench.forge.wait(pid)
    assert status == 2, out
    assert "was taken up by another process" in out
    assert outputs(bench) == before
    assert bench.report() == report
