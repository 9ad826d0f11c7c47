"""Ctrl-C, and two processes with one store."""

import asyncio
import json
import os
import signal
import sys
import textwrap

from context_bench.engine import list_runs, open_store, rows, run_of

PROGRAM = textwrap.dedent(
    """
    import asyncio, json, sys
    from context_bench.engine import Arm, RunSettings, execute, open_store

    where, name, n, slow = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

    class Answers:
        async def aprocess(self, example):
            await asyncio.sleep(slow)
            return {**example, "response": self.name}

        process = aprocess

    class Watch:
        def start(self, systems, total): print("started", flush=True)
        def advance(self, step): print("row", flush=True)
        def note(self, text): pass
        def close(self): pass

    async def main():
        system = Answers()
        system.name = name
        with open_store(where) as store:
            done = await execute(
                store, name=name, arms=[Arm(system)], examples=({"id": i, "context": str(i)} for i in range(n)), evaluators=[],
                manifest={}, settings=RunSettings(max_workers=4), progress=Watch(),
            )
        print(json.dumps([done.completed, done.counts["interrupted"], done.counts["done"]]), flush=True)
        return 0 if done.completed else 130

    sys.exit(asyncio.run(main()))
    """  # noqa: E501
)


async def start(where, name, n, slow):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(where),
        name,
        str(n),
        str(slow),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_ctrl_c_keeps_what_is_done_and_the_program_goes_on_to_its_end(tmp_path):
    process = await start(tmp_path / "s.db", "r", 10_000, 0.01)
    for _ in range(12):
        assert await asyncio.wait_for(process.stdout.readline(), 60)
    with open_store(tmp_path / "s.db") as store:
        assert run_of(store, "r").status == "running"
    os.kill(process.pid, signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 130, err.decode()
    assert err == b""
    completed, interrupted, done = json.loads(out.splitlines()[-1])
    assert (completed, interrupted) == (False, True)
    with open_store(tmp_path / "s.db") as store:
        record = run_of(store, "r")
        assert record.status == "interrupted"
        assert 11 <= done <= len(rows(store, "r")) == record.rows <= done + 4
        assert record.failed == 0


async def test_a_killed_run_is_shown_as_interrupted(tmp_path):
    process = await start(tmp_path / "s.db", "r", 10_000, 0.01)
    for _ in range(3):
        await asyncio.wait_for(process.stdout.readline(), 60)
    process.kill()
    await process.communicate()
    with open_store(tmp_path / "s.db") as store:
        assert run_of(store, "r").status == "interrupted"
        assert len(rows(store, "r")) >= 2


async def test_two_processes_write_one_store_at_once(tmp_path):
    both = await asyncio.gather(*(start(tmp_path / "s.db", name, 60, 0.001) for name in ("one", "two")))
    for out, err in await asyncio.gather(*(process.communicate() for process in both)):
        assert json.loads(out.splitlines()[-1]) == [True, False, 60], err.decode()
    with open_store(tmp_path / "s.db") as store:
        assert sorted(record.name for record in list_runs(store)) == ["one", "two"]
        for name in ("one", "two"):
            assert [(row.system, row.example_id) for row in rows(store, name)] == [(name, i) for i in range(60)]
        with store.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
