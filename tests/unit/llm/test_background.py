"""Async code called from plain functions: from scripts, threads, running loops, and from the background loop itself."""

import asyncio
import threading

import pytest

from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.llm.background import Background, run_sync


async def answer():
    await asyncio.sleep(0)
    return 42


def test_from_a_script_and_from_threads_on_one_loop():
    async def loop_id():
        return id(asyncio.get_running_loop())

    found = [run_sync(loop_id())]
    threads = [threading.Thread(target=lambda: found.append(run_sync(loop_id()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


async def test_inside_a_running_loop():
    assert run_sync(answer()) == 42


def test_from_the_background_loop_itself_through_plain_code():
    def plain():
        return run_sync(answer())

    async def outer():
        return plain()

    assert run_sync(outer()) == 42


def test_errors_come_back_as_they_are():
    async def fails():
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        run_sync(fails())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_programs_ends_neither_the_loop_nor_the_work_of_others(error):
    background = Background("ended-test")
    begun, go_on = threading.Event(), threading.Event()
    found = []

    async def waits():
        begun.set()
        await asyncio.to_thread(go_on.wait)
        return 42

    async def ends():
        async def inner():
            raise error

        await asyncio.create_task(inner())

    other = threading.Thread(target=lambda: found.append(background.run(waits())))
    other.start()
    assert begun.wait(5)
    with pytest.raises(error):
        background.run(ends())
    go_on.set()
    other.join(5)
    assert found == [42]
    assert background.run(answer()) == 42
    background.close()


def test_the_open_ledger_of_the_caller_holds_inside():
    async def which():
        await asyncio.sleep(0)
        return current_ledger()

    ledger = Ledger()
    with open_ledger(ledger):
        assert run_sync(which()) is ledger
    assert run_sync(which()) is None


def test_an_interrupted_wait_cancels_the_work(monkeypatch):
    seen = threading.Event()
    background = Background("interrupt-test")

    async def long():
        try:
            await asyncio.Event().wait()
        finally:
            seen.set()

    class Interrupted:
        def result(self):
            raise KeyboardInterrupt

        def done(self):
            return False

    monkeypatch.setattr("context_bench.llm.background.Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        background.run(long())
    # the task may not have begun when it was cancelled; then its body never runs
    run = threading.Event()
    background.loop().call_soon_threadsafe(lambda: asyncio.get_running_loop().call_soon(run.set))
    assert run.wait(5)

    async def left():
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    monkeypatch.undo()
    assert background.run(left()) == []
