"""Group commit and the workers' threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from context_bench.engine.commit import GroupCommit, OneThread, enough_descriptors


@pytest.fixture
def thread():
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def test_when_every_busy_worker_waits_one_batch_is_written(thread):
    batches = []
    commits = GroupCommit(batches.append, thread, wait=60, soon=60)
    for _ in range(3):
        commits.enter()
    await asyncio.gather(*(commits.put(number) for number in range(3)))
    assert batches == [[0, 1, 2]]


async def test_nobody_waits_for_a_worker_without_work(thread):
    batches = []
    commits = GroupCommit(batches.append, thread, wait=60, soon=60)
    commits.enter()
    commits.enter()
    waiting = asyncio.create_task(commits.put("a"))
    await asyncio.sleep(0)
    assert batches == []
    commits.leave()
    await waiting
    assert batches == [["a"]]


async def test_a_busy_worker_is_waited_for_only_so_long(thread):
    batches = []
    commits = GroupCommit(batches.append, thread, wait=0.01)
    commits.enter()
    commits.enter()
    await asyncio.wait_for(commits.put("a"), 20)
    assert batches == [["a"]]


async def test_a_loop_that_has_time_does_not_keep_workers_from_their_next_request(thread):
    batches = []
    commits = GroupCommit(batches.append, thread, wait=60, soon=0.005)
    commits.enter()
    commits.enter()
    await asyncio.wait_for(commits.put("a"), 20)
    assert batches == [["a"]]


async def test_put_returns_after_the_write_and_the_next_batch_gathers_meanwhile(thread):
    gate, written = threading.Event(), []

    def write(batch):
        assert gate.wait(20)
        written.append(list(batch))

    commits = GroupCommit(write, thread, wait=60, soon=60)
    commits.enter()
    first = asyncio.create_task(commits.put(1))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(commits.put(number)) for number in (2, 3)]
    await asyncio.sleep(0.01)
    assert not first.done()
    gate.set()
    await asyncio.gather(first, *later)
    assert written == [[1], [2, 3]]


async def test_what_a_cancelled_worker_handed_in_is_written_all_the_same(thread):
    batches = []
    commits = GroupCommit(batches.append, thread, wait=60, soon=60)
    commits.enter()
    commits.enter()
    cancelled = asyncio.create_task(commits.put("kept"))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await commits.drain()
    assert batches == [["kept"]]


async def test_every_waiting_worker_hears_that_the_store_failed(thread):
    def write(batch):
        raise OSError("disk full")

    commits = GroupCommit(write, thread)
    commits.enter()
    commits.enter()
    results = await asyncio.gather(commits.put(1), commits.put(2), return_exceptions=True)
    assert [str(error) for error in results] == ["disk full", "disk full"]


async def test_one_thread_runs_calls_in_order_and_carries_errors():
    pool, loop = OneThread("test"), asyncio.get_running_loop()
    assert await loop.run_in_executor(pool, lambda: threading.current_thread().daemon)
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(pool, lambda: 1 / 0)
    names = {await loop.run_in_executor(pool, threading.get_ident) for _ in range(5)}
    assert len(names) == 1
    pool.shutdown()


def test_workers_fit_the_open_files_there_may_be():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert enough_descriptors(1) == (1, [])
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert enough_descriptors(100) == (100, [])
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 464
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if hard != resource.RLIM_INFINITY:
        try:
            fits, (said,) = enough_descriptors(hard)
            assert 0 < fits < hard
            assert f"running with {fits}" in said
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
