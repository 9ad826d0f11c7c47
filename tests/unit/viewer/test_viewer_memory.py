"""A run that grows is looked at again and again: what is kept of it is its latest state only."""

import asyncio
import dataclasses
from contextlib import closing

import pytest

from context_bench.engine.store.browsing import open_reading
from context_bench.session.runs import result_of
from context_bench.viewer import working
from context_bench.viewer.pages import Library, Query, RunCache
from context_bench.viewer.working import Worker

QUERIES = [
    Query(),
    Query(sort="latency", descending=True),
    Query(failed=True),
    Query(words="word"),
    Query(words="word", failed=True),
]


@pytest.fixture
def versions(store_path):
    """The store, and one run as it might be listed while it goes on."""
    with closing(open_reading(store_path)) as store:
        library = Library(store)
        run = library.runs(Query()).runs[-1].run
        yield library, [dataclasses.replace(run, stamp=(*run.stamp, number)) for number in range(30)]


def test_pages_of_a_growing_run_are_kept_once_a_question(versions):
    library, runs = versions
    sizes = []
    for run in runs:
        found = [library.rows(run, query) for query in QUERIES]
        sizes.append(library.kept)
    assert found[3].hits
    assert set(sizes) == {3 + 2 + 2}  # orders, searches, facets and what the run is judged by


def test_the_least_used_goes_first_and_an_older_state_is_not_shown(versions):
    _, (run, later, *_) = versions
    kept, made = RunCache(2), []
    for asked in ("a", "b", "a", "c", "a"):
        kept.of(run, asked, lambda asked=asked: made.append(asked))
    assert made == ["a", "b", "c"]
    assert kept.of(later, "a", lambda: "new") == "new"
    assert kept.of(later, "a", lambda: "newer") == "new"
    assert len(kept) == 2


async def test_summaries_of_a_growing_run_are_kept_once(versions, store_path):
    _, (one, two, three, *_) = versions
    worker = Worker(str(store_path), result_of)
    try:
        first = await worker.summary(one)
        assert first.failure is None
        assert worker.finished(one) is first is await worker.summary(one)
        assert worker.finished(two) is None
        assert await worker.summary(two) is not first
        await worker.summary(three)
        assert (worker.kept, worker.finished(one), worker.finished(two)) == (1, None, None)
    finally:
        await worker.close()


async def test_summaries_that_wait_for_one_another_are_worked_out_when_the_process_is_replaced(
    versions, store_path, monkeypatch
):
    monkeypatch.setattr(working, "MOST_WORKED", 5)
    _, runs = versions
    worker = Worker(str(store_path), result_of)
    others = [dataclasses.replace(run, number=run.number + 1 + place % 4) for place, run in enumerate(runs)]
    try:
        async with asyncio.timeout(300):
            for first in range(0, 16, 4):
                found = await asyncio.gather(*map(worker.summary, others[first : first + 4]))
                assert [each.failure for each in found] == [None] * 4
    finally:
        asked = asyncio.create_task(worker.summary(runs[-1]))  # the process is at work as the viewer ends
        await asyncio.sleep(0)
        async with asyncio.timeout(300):
            await worker.close()
        asked.cancel()
