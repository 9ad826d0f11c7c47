"""A run in a PostgreSQL database whose connections break, whose server restarts, and which other processes use at the
same time.
"""

import asyncio
import os
import signal
import socket
import threading
from contextlib import suppress

import pytest

from context_bench.core.errors import StoreUnusable
from context_bench.core.records import Call
from context_bench.engine import Arm, RunSettings, differences, execute, list_runs, open_store, rows, run_of
from context_bench.engine.store import schema
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis import Reply

pytestmark = pytest.mark.program("initdb")


class Answers:
    """Answers with what it is asked; `at(n)` is awaited before the n-th answer."""

    name = "answers"

    def __init__(self, before=None):
        self.asked, self.before = [], before

    def fingerprint(self):
        return {}

    async def aprocess(self, example):
        from context_bench.core.ledger import current_ledger

        self.asked.append(example["id"])
        if self.before is not None:
            await self.before(len(self.asked))
        current_ledger().record(
            Call("system", "m", "http://h", float(example["id"]), cost=0.1, request={"text": example["context"]})
        )
        return {**example, "response": f"answer {example['id']}"}


class Right:
    name, version = "right", "1"

    def score(self, original, processed):
        return {"right": float(processed["response"].endswith(str(original["id"])))}


def examples(n):
    return [{"id": i, "context": f"{i} " + "what all have in common " * 60} for i in range(n)]


async def run(store, system, n=40, name="r", workers=4):
    settings = RunSettings(late_grace=0.0, max_workers=workers)
    arms = [Arm(system)]
    return await execute(
        store, name=name, arms=arms, examples=examples(n), evaluators=[Right()], manifest={}, settings=settings
    )


def counted(store):
    with store.reading() as connection:
        return [
            len(connection.execute(table.select()).all())
            for table in (schema.outputs, schema.scores, schema.calls, schema.plan, schema.examples)
        ]


async def whole(where, tmp_path, n=40):
    """The run is there, each thing once, as an undisturbed one in a file would be."""
    with open_store(where) as found, open_store(tmp_path / "calm.db") as calm:
        await run(calm, Answers(), n)
        assert differences(rows(found, "r"), rows(calm, "r")) == []
        assert counted(found) == counted(calm)
        assert run_of(found, "r").status == "done"
        assert run_of(found, "r").counts["cost"] == pytest.approx(n * 0.1)


class Relay:
    """Stands between a client and the server, and breaks a connection off where a transaction is to be committed.

    `heard`: whether the server hears of the commit; its answer is lost either way. Nothing breaks before `armed`.
    """

    def __init__(self, port, breaks, *, heard):
        self.port, self.breaks, self.heard, self.commits, self.armed = port, set(breaks), heard, 0, False
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            quiet = threading.Event()
            threading.Thread(target=self.upward, args=(client, server, quiet), daemon=True).start()
            threading.Thread(target=self.downward, args=(server, client, quiet), daemon=True).start()

    def upward(self, client, server, quiet):
        while data := received(client):
            if self.armed and b"COMMIT" in data:
                self.commits += 1
                if self.commits in self.breaks:
                    quiet.set()
                    if self.heard:
                        server.sendall(data)
                        return
                    break
            server.sendall(data)
        hang_up(client, server)

    def downward(self, server, client, quiet):
        while data := received(server):
            if quiet.is_set():
                break
            client.sendall(data)
        hang_up(client, server)


def received(connection):
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def hang_up(*connections):
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@pytest.mark.parametrize("heard", [True, False])
async def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_made_twice(postgres, tmp_path, heard):
    where = postgres.url(f"relayed{heard}".lower())
    open_store(where).close()
    relay = Relay(postgres.port, breaks=range(1, 90, 3), heard=heard)

    async def arm(asked):
        relay.armed = True

    system = Answers(arm)
    with open_store(where.replace(f":{postgres.port}/", f":{relay.address}/")) as store:
        assert (await run(store, system)).completed
    relay.listening.close()
    assert relay.commits > 10
    assert sorted(system.asked) == list(range(40))
    await whole(where, tmp_path)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_server_that_restarts_in_the_middle_of_a_run_costs_nothing(tmp_path, crash):
    from postgres_server import PostgresServer

    with PostgresServer(safe=True) as server:
        where = server.url("restarts")

        async def restart(asked):
            if asked in (9, 25):
                await asyncio.to_thread(lambda: (server.stop(crash=crash), server.start()))

        system = Answers(restart)
        with open_store(where) as store:
            assert (await run(store, system)).completed
        assert sorted(system.asked) == list(range(40))
        await whole(where, tmp_path)


async def test_a_server_that_stays_away_ends_the_run_and_a_resume_asks_only_what_is_owed(tmp_path):
    from dataclasses import replace

    from postgres_server import PostgresServer

    with PostgresServer(safe=True) as server:
        where = server.url("away")

        async def leave(asked):
            if asked == 13:
                await asyncio.to_thread(lambda: server.stop(crash=True))

        first = Answers(leave)
        with open_store(where) as store:
            store.database = replace(store.database, patience=0.5)
            with pytest.raises(
                StoreUnusable, match=r"cannot be reached.*then resume: everything committed is kept"
            ) as caught:
                await run(store, first)
        assert server.password not in str(caught.value)
        server.start()
        with open_store(where) as store:
            kept = len(rows(store, "r"))
            with store.writing() as connection:  # as another process finds it: its owner is gone
                connection.execute(schema.runs.update().values(owner=None))
            second = Answers()
            assert (await run(store, second)).completed
        assert 8 <= kept <= len(first.asked)
        assert len(second.asked) == 40 - kept
        await whole(where, tmp_path)


class Model:
    """Answers every example, and tells when it has answered so many."""

    def __init__(self):
        self.seen, self.changed = 0, asyncio.Event()

    async def reply(self, request, headers):
        self.seen += 1
        self.changed.set()
        number = request.messages[0].text.partition(">")[0][1:]
        return Reply(f"answer {number}", [], "stop", None, request.model)

    async def until(self, total):
        while self.seen < total:
            self.changed.clear()
            await self.changed.wait()


async def test_four_processes_at_once_in_one_database(postgres, forks):
    where = postgres.url("four")
    async with ModelServer(Model()) as server:
        child = await forks("engine_child.py", server.url, where, 60, 4)
        assert await child.all_of("run0", "run1", "run2", "run3") == [0] * 4
        await child.close()
    with open_store(where) as store:
        assert sorted(record.name for record in list_runs(store)) == [f"run{i}" for i in range(4)]
        for record in list_runs(store):
            assert (record.rows, record.failed, record.status) == (60, 0, "done")
            assert {row.scores["right"] for row in rows(store, record.name)} == {1.0}
        outputs, scores, calls, _, _ = counted(store)
        assert (outputs, scores, calls) == (240, 240, 240)
        with store.reading() as connection:
            assert (
                len(connection.execute(schema.evaluators.select()).all())
                == len(connection.execute(schema.endpoints.select()).all())
                == 1
            )


async def test_four_processes_that_want_one_run_leave_it_to_one(postgres, forks):
    where = postgres.url("wanted")
    model = Model()
    async with ModelServer(model) as server:
        child = await forks("engine_child.py", server.url, where, 80, 4)
        codes = await child.all_of("killed", "killed", "killed", "killed")
        await child.close()
    assert codes.count(0) >= 1
    assert model.seen == 80
    with open_store(where) as store:
        assert run_of(store, "killed").rows == 80
        assert counted(store)[:3] == [80, 80, 80]


async def test_a_killed_process_is_taken_over_and_little_is_repeated(postgres, forks):
    where = postgres.url("killed")
    model = Model()
    async with ModelServer(model) as server:
        child = await forks("engine_child.py", server.url, where, 100, 4)
        for at in (20, 60):
            pid = await child.start()
            await asyncio.wait_for(model.until(at), 60)
            os.kill(pid, signal.SIGKILL)
            assert await child.ended() == -signal.SIGKILL
        await child.start()
        assert await child.ended() == 0
        await child.close()
    assert 100 <= model.seen <= 100 + 2 * 4
    with open_store(where) as store:
        assert run_of(store, "killed").rows == 100
        assert {row.scores["right"] for row in rows(store, "killed")} == {1.0}
