"""Summaries of runs and comparisons of two, computed in a child process (they take long and much memory) and cached
here.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from context_bench.core.errors import ContextBenchError, NotComparable
from context_bench.core.records import EvalRow
from context_bench.engine.store.browsing import ListedRun

if TYPE_CHECKING:
    from context_bench.reports.page import Page

#: (open store, record of a run) → its result.
ResultOf = Callable[[Any, Any], Any]

MOST_KEPT = 24
MOST_PAIRS = 100


@dataclass(frozen=True, slots=True)
class MovedExample:
    """An example that two systems did not score the same: `earlier`/`later` name (system, dataset, example id,
    trial).
    """

    earlier: tuple[str, str, Any, int]
    later: tuple[str, str, Any, int]
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Worked:
    """Outcome of the work: ready HTML and the verdicts, or `failure`, in words. `refused`: it may be had by insisting.
    `at`: when, epoch.

    `changed`: the `changes` examples that moved, most first, as far as a page shows them.
    """

    html: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    verdicts: list[tuple[str, str, str]] = field(default_factory=list)  # (tone, verdict, sentence)
    changed: list[MovedExample] = field(default_factory=list)
    changes: int = 0
    failure: str | None = None
    refused: bool = False
    at: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """Work that is under way, or done, of runs as they were at `stamp`."""

    stamp: Hashable
    task: asyncio.Task[Worked]


class _Answers(LRUCache[Hashable, _Asked]):
    """Cancels what is still worked out when nobody has asked for it for long."""

    def popitem(self) -> tuple[Hashable, _Asked]:
        question, old = super().popitem()
        old.task.cancel()
        return question, old


class Worker:
    """One process beside the server, made when it is first needed. The same question is worked out once, until its runs
    have changed.

    At most `MOST_KEPT` answers are kept, of each question the latest.
    """

    def __init__(self, where: str, result_of: ResultOf) -> None:
        self._where, self._result_of = where, result_of
        self._pool: ProcessPoolExecutor | None = None
        self._kept = _Answers(MOST_KEPT)

    async def summary(self, run: ListedRun, *, fresh: bool = False) -> Worked:
        """The report of a run from its verdicts to its manifest."""
        return await self._once(
            ("summary", run.number), run.stamp, fresh, summarised, self._where, run.id, self._result_of
        )

    async def comparison(self, before: ListedRun, after: ListedRun, *, force: bool = False, metric: str = "") -> Worked:
        """The later run held against the earlier one."""
        question, stamp = ("comparison", before.number, after.number, force, metric), (before.stamp, after.stamp)
        return await self._once(
            question, stamp, False, compared, self._where, before.id, after.id, self._result_of, force, metric
        )

    def finished(self, run: ListedRun) -> Worked | None:
        """The summary, if it has been worked out."""
        asked = self._kept.get(("summary", run.number))
        if asked is None or asked.stamp != run.stamp:
            return None
        task = asked.task
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    @property
    def kept(self) -> int:
        """Number of answers in the cache or being worked out."""
        return len(self._kept)

    async def _once(
        self, question: Hashable, stamp: Hashable, fresh: bool, function: Callable[..., Worked], *args: Any
    ) -> Worked:
        asked = self._kept.get(question)
        while (
            asked is not None and asked.stamp != stamp and not asked.task.done()
        ):  # of an earlier state: one at a time
            await asyncio.wait([asked.task])
            asked = self._kept.get(question)
        if asked is None or asked.stamp != stamp or (fresh and asked.task.done()):
            asked = self._kept[question] = _Asked(stamp, asyncio.create_task(self._worked(function, *args)))
        return await asyncio.shield(asked.task)

    async def _worked(self, function: Callable[..., Worked], *args: Any) -> Worked:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            if self._pool is None:
                spawned = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, mp_context=spawned, initializer=_deaf, max_tasks_per_child=50)
            pool = self._pool
            try:
                return await loop.run_in_executor(pool, function, *args)
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
        return Worked(
            failure="The process that works out summaries ended before it was done: too little memory?", at=time.time()
        )

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        tasks = [asked.task for asked in self._kept.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            await asyncio.to_thread(pool.shutdown, wait=True, cancel_futures=True)


def _deaf() -> None:
    """Ctrl-C is meant for the server, which ends this process too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# --- in the other process
# ------------------------------------------------------------------------


def summarised(where: str, run: str, result_of: ResultOf) -> Worked:
    """The summary of a run (id)."""
    return _outcome(lambda store: _summary(store, run, result_of), where)


def compared(where: str, before: str, after: str, result_of: ResultOf, force: bool, metric: str) -> Worked:
    """The comparison of two runs (ids)."""
    return _outcome(lambda store: _comparison(store, before, after, result_of, force, metric), where)


def _outcome(work: Callable[[Any], Worked], where: str) -> Worked:
    """Outcome of `work`; failures as words, since not every exception survives the way between processes."""
    from dataclasses import replace

    from context_bench.engine.store.browsing import open_reading

    began = time.monotonic()
    try:
        with closing(open_reading(where)) as store:
            worked = work(store)
    except NotComparable as error:
        worked = Worked(failure=str(error), refused="insist" in str(error))
    except ContextBenchError as error:
        worked = Worked(failure=str(error))
    except Exception as error:
        logging.getLogger(__name__).exception("a page could not be worked out")
        worked = Worked(failure=f"This could not be worked out: {type(error).__name__}: {error}")
    return replace(worked, at=time.time(), seconds=time.monotonic() - began)


def _summary(store: Any, run: str, result_of: ResultOf) -> Worked:
    from context_bench.engine import run_of
    from context_bench.reports.html_page import summary_html
    from context_bench.reports.page import build_page

    record = run_of(store, run)
    page = build_page(result_of(store, record), title=record.name)
    return Worked(str(summary_html(page)), page.facts, _verdicts(page))


def _comparison(store: Any, before: str, after: str, result_of: ResultOf, force: bool, metric: str) -> Worked:
    from context_bench.comparison import compare
    from context_bench.engine import run_of
    from context_bench.reports.html_page import summary_html
    from context_bench.reports.page import build_page

    one, other = (result_of(store, run_of(store, run)) for run in (before, after))
    found = compare(one, other, metric=metric or None, force=force)
    page = build_page(found, title="comparison")
    changed = _changed(found, page.score_field or "")
    changed.sort(key=lambda each: -abs(each.after - each.before))
    return Worked(str(summary_html(page)), page.facts, _verdicts(page), changed[:MOST_PAIRS], len(changed))


def _verdicts(page: Page) -> list[tuple[str, str, str]]:
    """Those on the systems that were to be measured come first."""
    return [(str(each.tone), each.verdict, each.text) for each in sorted(page.verdicts, key=lambda each: each.control)]


def _changed(found: Any, field: str) -> list[MovedExample]:
    """Examples whose score is another one in the later run."""
    from context_bench.comparison import EARLIER

    scored: dict[str, dict[tuple[Any, ...], tuple[EvalRow, float]]] = {}
    for row in found.rows:
        if (score := row.scores.get(field)) is not None:
            key = (row.dataset, repr(row.example_id), row.trial, str(row.metadata.get("shape", "")))
            scored.setdefault(row.system, {})[key] = row, score
    made = []
    for one in found.comparisons:
        if one.dataset is not None:
            continue
        own = one.system if one.baseline == EARLIER.format(name=one.system) else one.baseline
        earlier = scored.get(one.baseline, {})
        for key, (row, after) in scored.get(one.system, {}).items():
            if key in earlier and earlier[key][1] != after:
                where = (row.dataset, row.example_id, row.trial)
                made.append(MovedExample((own, *where), (one.system, *where), earlier[key][1], after))
    return made
