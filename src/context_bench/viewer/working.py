"""Work of the viewer, and what it keeps: summaries of runs and comparisons of two, computed in a child process (they
take long and much memory); orders of rows; the pace of runs that go on.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from cachetools import LRUCache, TLRUCache

from context_bench.core.errors import ContextBenchError, NotComparable, UnknownName
from context_bench.core.families import families_of
from context_bench.core.records import EvalRow
from context_bench.engine.store import Store
from context_bench.engine.store.browsing import ListedRun, Live
from context_bench.engine.store.watches import WatchRecord, watch_of, watched
from context_bench.wire.turns import Turn

if TYPE_CHECKING:
    from context_bench.reports.page import Page

#: (open store, record of a run) → its result.
ResultOf = Callable[[Any, Any], Any]

MOST_KEPT = 24
MOST_PAIRS = 100
#: Questions after which the process is replaced, which gives its memory back.
MOST_WORKED = 50


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
    listed: dict[str, Any] = field(default_factory=dict)  # as a list of runs shows it
    failure: str | None = None
    refused: bool = False
    at: float = 0.0
    seconds: float = 0.0

    @property
    def summary(self) -> dict[str, Any]:
        """The verdicts as a list of runs shows them, or why there are none."""
        return {"failure": self.failure} if self.failure else self.listed


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
        self._given, self._under_way = 0, 0  # questions of the pool's process, and those of them that it still works at
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
        while asked is not None and asked.stamp != stamp and not asked.task.done():  # one state at a time
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
                self._pool = ProcessPoolExecutor(1, mp_context=spawned, initializer=_deaf)
                self._given = self._under_way = 0
            pool = self._pool
            try:
                asked = pool.submit(function, *args)
                self._given, self._under_way = self._given + 1, self._under_way + 1
                asked.add_done_callback(lambda _: loop.call_soon_threadsafe(self._over, pool))  # noqa: B023
                return await asyncio.wrap_future(asked)
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
        return Worked(
            failure="The process that works out summaries ended before it was done: too little memory?", at=time.time()
        )

    def _over(self, pool: ProcessPoolExecutor) -> None:
        """End a process that has had its share and is idle: `max_tasks_per_child` can leave questions without one."""
        if self._pool is pool:
            self._under_way -= 1
            if self._given >= MOST_WORKED and not self._under_way:
                self._pool = None
                pool.shutdown(wait=False)

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        tasks = [asked.task for asked in self._kept.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = getattr(pool, "_processes", None) or {}
            ended = asyncio.create_task(asyncio.to_thread(pool.shutdown, wait=True, cancel_futures=True))
            while not ended.done():  # one may just be being made
                for process in list(processes.values()):
                    process.kill()
                await asyncio.wait([ended], timeout=1.0)


@dataclass(frozen=True, slots=True)
class RunAbout:
    """Subject of a run, as its manifest says: the `kind` is its family's name, or `questions`."""

    kind: str
    data: str = ""
    model: str = ""

    @classmethod
    def read(cls, manifest: Mapping[str, Any]) -> RunAbout:
        """From a run's manifest, which may be any JSON."""
        options = manifest.get("options")
        options = options if isinstance(options, dict) else {}
        cells = [each.get("labels") or {} for each in manifest.get("cells") or [] if isinstance(each, dict)]
        models = [each["model"] for each in cells if isinstance(each, dict) and each.get("model")]
        found = [each.get("name") if isinstance(each, dict) else each for each in manifest.get("datasets") or []]
        return cls(
            next((family.name for family in families_of(manifest)), "questions"),
            ", ".join(dict.fromkeys(str(each) for each in found if each))[:200],
            ", ".join(dict.fromkeys(map(str, models or [options.get("model") or ""])))[:200],
        )


@dataclass(slots=True)
class ListedEntry:
    """A run, or a watch, in the list of both. `about`: kind, data and model."""

    about: RunAbout
    name: str
    created: float
    figures: Mapping[str, Any] = field(default_factory=dict)
    head: Any = None
    run: ListedRun | None = None
    watch: WatchRecord | None = None
    tags: list[str] = field(default_factory=list)


def least(figures: Mapping[str, Any], value: Callable[[Mapping[str, Any]], Any]) -> float | None:
    """The least value among the systems that a run was made for."""
    systems = (figures.get("summary") or {}).get("systems") or []
    return min(
        (number for each in systems if not each["control"] and (number := value(each)) is not None), default=None
    )


#: What the list of runs can be sorted by → the value of an entry; without one it is in the order of start.
LIST_SORTS: dict[str, Callable[[ListedEntry], Any]] = {
    "name": lambda each: each.name.casefold(),
    "kind": lambda each: each.about.kind,
    "data": lambda each: each.about.data.casefold(),
    "model": lambda each: each.about.model.casefold(),
    "rows": lambda each: each.figures.get("rows"),
    "cost": lambda each: each.figures.get("cost"),
    "change": lambda each: least(each.figures, lambda system: system.get("change")),
    "saved": lambda each: least(each.figures, lambda system: (system.get("saved") or {}).get("tokens")),
}


TURNS = 50  # of a watch on a page


@dataclass(frozen=True, slots=True)
class WatchPage:
    """Some of the turns of a watch, the latest first."""

    watch: WatchRecord
    turns: list[Turn]
    page: int
    pages: int

    @classmethod
    def read(cls, store: Store, name: str, page: int = 1) -> WatchPage:
        """Page `page` of the watch of this name. Raises `UnknownName`."""
        watch = watch_of(store, name)
        pages = max(1, -(-watch.records // TURNS))
        page = min(page, pages)
        found = watched(store, watch.name, after=max(0, watch.records - page * TURNS))
        many = min(TURNS, watch.records - (page - 1) * TURNS) if page > 1 else None
        return cls(watch, list(islice(found, many))[::-1], page, pages)


def turn_of(store: Store, name: str, number: int) -> tuple[WatchRecord, Turn]:
    """One turn with the bodies that were kept of it. Raises `UnknownName`."""
    turn = next(watched(store, name, bodies=True, after=number - 1), None)
    if turn is None or turn.number != number:
        raise UnknownName("turn", str(number), [])
    return watch_of(store, name), turn


T = TypeVar("T")

#: Seconds that anything about a run that ended, or that goes on, is believed. A run that ended may be judged again.
ENDED, RUNNING = 60.0, 2.0


class RunCache:
    """At most `most` values, the least used forgotten first; of a run that goes on the latest only. May be used from
    several threads.
    """

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._values: TLRUCache[Hashable, tuple[ListedRun, Any]] = TLRUCache(most, _expiry, monotonic)
        self._lock = threading.Lock()

    def of(self, run: ListedRun, what: Hashable, made: Callable[[], T]) -> T:
        """The value for `what` of the run as it is now."""
        key = (run.number, what)
        with self._lock:
            earlier = self._values.get(key)
        if earlier is not None and earlier[0].stamp == run.stamp:
            kept: T = earlier[1]
            return kept
        value = made()
        with self._lock:
            self._values[key] = run, value
        return value

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)


def _expiry(_: Hashable, value: tuple[ListedRun, Any], now: float) -> float:
    return now + (RUNNING if value[0].running else ENDED)


#: Seconds between two looks at the store, and over which a rate is told.
EVERY, OVER = 1.0, 60.0
#: Looking takes at most this share of the time, however large the run is.
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Going:
    """A system's progress with its speed: `rate` in rows a second, `left` in seconds for the rows planned so far."""

    live: Live
    rate: float | None = None

    @property
    def left(self) -> float | None:
        """Seconds until what is planned is done, at this rate."""
        owed = self.live.planned - self.live.done
        return None if not self.rate or owed <= 0 else owed / self.rate


@dataclass(slots=True)
class Tracker:
    """Looks at one run for all who watch it."""

    look: Callable[[], Awaitable[tuple[ListedRun, list[Live]]]]
    monotonic: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)
    _seen: tuple[ListedRun, list[Going]] | None = None
    _due: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self) -> tuple[ListedRun, list[Going]]:
        """The run and its systems, not older than the last look that was due."""
        async with self._lock:
            began = self.monotonic()
            if self._seen is None or began >= self._due:
                run, lives = await self.look()
                ended = self.monotonic()
                self._due = ended + max(EVERY, (ended - began) / _SHARE)
                self._seen = run, [Going(live, self._rate(live)) for live in lives]
                self._remember(ended, lives)
            return self._seen

    def _remember(self, at: float, lives: list[Live]) -> None:
        self._samples.append((at, {live.name: live.done for live in lives}))
        while len(self._samples) > 2 and at - self._samples[1][0] > OVER:
            self._samples.popleft()

    def _rate(self, live: Live) -> float | None:
        if not self._samples:
            return None
        at, done = self._samples[0]
        seconds = self.monotonic() - at
        return (live.done - done.get(live.name, 0)) / seconds if seconds > 0 else None

    @property
    def pause(self) -> float:
        """Seconds until the next look is due."""
        return max(0.05, self._due - self.monotonic())


def _deaf() -> None:
    """Ctrl-C is meant for the server, which ends this process too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def summarised(where: str, run: str, result_of: ResultOf) -> Worked:
    """The summary of a run (id); in the other process."""
    return _outcome(lambda store: _summary(store, run, result_of, where), where)


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


def _summary(store: Any, run: str, result_of: ResultOf, where: str) -> Worked:
    from context_bench.engine import run_of
    from context_bench.engine.store.browsing import listed_run
    from context_bench.engine.store.row_lists import facets
    from context_bench.reports.html_page import summary_html
    from context_bench.reports.page import build_page
    from context_bench.reports.renderers import summarized
    from context_bench.session.reporting import named
    from context_bench.session.runs import kept_page_of

    record = run_of(store, run)
    page = kept_page_of(store, record.id, where) or build_page(result_of(store, record), store=named(where))
    page.title, page.details = record.name, None
    datasets = facets(store, listed_run(store, record.id)).datasets
    rows_at = _rows_at(record.id, page.systems, datasets)
    html = summary_html(page, link=_changed_row(record.id), rows_at=rows_at)
    return Worked(str(html), page.facts, _verdicts(page), listed=summarized(page))


def _rows_at(run: str, systems: Sequence[str], datasets: Sequence[str]) -> Callable[[str], str | None]:
    """The address of the rows that a mark of a chart stands for; `None` for marks that are of no system, or of a part
    of the data by which rows are not filtered.
    """

    def address(rows: str) -> str | None:
        asked = dict(parse_qsl(rows, errors="surrogatepass"))
        name = asked.get("system", "")
        system = name if name in systems else name.partition(" − ")[0].partition(" · ")[0]
        if system not in systems or asked.get("dataset") not in (None, *datasets):
            return None
        return f"/runs/{run}?{urlencode({**asked, 'system': system}, errors='surrogatepass')}#rows"

    return address


def _changed_row(run: str) -> Callable[[Any], str | None]:
    """The address of the rows of an example that a system changed on its way."""

    def address(change: Any) -> str | None:
        if change.row is None:
            return None
        asked = {"system": change.system, "layout": "rows", "q": str(change.row.example_id)}
        return f"/runs/{run}?{urlencode(asked, errors='surrogatepass')}#rows"

    return address


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
