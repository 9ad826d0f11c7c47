"""Group commit: workers hand in what they finished and go on when it is durable; several share one transaction.

`RunStatistics` counts the finished work of each system: rows, failures, tokens, money. The live display shows these
counts. Below, the settings of the process in which this goes on: open connections, the store's thread, the heartbeat,
garbage collection, and the line about waiting.

Worker threads: a thread past its deadline is abandoned and replaced. Heartbeat: other machines do not take over a live
run. Garbage collection: long-lived objects are frozen, and collections are rare. A terminal line tells that an endpoint
is asked again, since a wait looks like work.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import Stop
from context_bench.core.machine import FIRST, YOUNG, Clock
from context_bench.core.protocols import Recorder
from context_bench.core.records import Forwarded
from context_bench.engine.observe import with_late
from context_bench.engine.plan import PlannedArm, SetUp, WorkOutcome
from context_bench.engine.planner import PlanCounts
from context_bench.engine.progress import Progress, Step
from context_bench.engine.schedule import Schedule
from context_bench.engine.store.run_writer import Writer

#: Seconds that a finished outcome waits at most for others to share its transaction.
WAIT = 0.05
#: Seconds after which it is written already if the loop has time, and by how many a timer may be late on a loop that
#: has.
SOON, _LATE = 0.005, 0.001


class GroupCommit:
    """Batches outcomes of concurrent workers. A batch is written when every busy worker waits, or after `wait` seconds.

    It is written after `soon` seconds where the loop has nothing else to do: then what is waited for are answers, and
    workers that wait for the store keep requests from being sent. A busy loop is what is waited for itself, and large
    batches leave it more time. `write` runs in `thread`, never on the loop. While one batch is written the next
    gathers.
    """

    def __init__(
        self, write: Callable[[list[WorkOutcome]], None], thread: Executor, wait: float = WAIT, soon: float = SOON
    ) -> None:
        self._write = write
        self._thread = thread
        self._wait, self._soon = wait, min(soon, wait)
        self._busy = 0
        self._pending: list[tuple[WorkOutcome, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0  # when the pending ones are written in any case, on the loop's clock
        self._flight: asyncio.Future[None] | None = None

    def enter(self) -> None:
        """A worker has taken a job."""
        self._busy += 1

    def leave(self) -> None:
        """A worker has no job: nobody need wait for it."""
        self._busy -= 1
        self._consider()

    async def put(self, outcome: WorkOutcome) -> None:
        """Return when `outcome` is durable; raises what the store raised. A cancelled caller's outcome is written all
        the same.
        """
        await self.leave_behind(outcome)

    def leave_behind(self, outcome: WorkOutcome) -> asyncio.Future[None]:
        """Have `outcome` written with the next batch; the future is done when it is durable."""
        done = asyncio.get_running_loop().create_future()
        self._pending.append((outcome, done))
        self._consider()
        return done

    async def drain(self) -> None:
        """Write everything handed in so far."""
        while self._pending or self._flight is not None:
            if self._flight is None:
                self._flush()
            assert self._flight is not None
            await asyncio.wait([self._flight])
            await asyncio.sleep(0)  # let the callback of the batch run

    def _consider(self) -> None:
        if self._flight is not None or not self._pending:
            return
        if len(self._pending) >= self._busy:
            self._flush()
        elif self._timer is None:
            self._latest = asyncio.get_running_loop().time() + self._wait
            self._look_again()

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._soon, self._due, loop.time() + self._soon)

    def _due(self, asked_for: float) -> None:
        """Write, unless the loop is so busy that it comes to this late."""
        now = asyncio.get_running_loop().time()
        if now - asked_for > _LATE and now < self._latest:
            self._look_again()
        else:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flight is not None or not self._pending:
            return
        batch, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        self._flight = loop.run_in_executor(self._thread, self._write, [outcome for outcome, _ in batch])
        self._flight.add_done_callback(lambda flight: self._landed(flight, batch))

    def _landed(self, flight: asyncio.Future[None], batch: list[tuple[WorkOutcome, asyncio.Future[None]]]) -> None:
        self._flight = None
        error = None if flight.cancelled() else flight.exception()
        for _, done in batch:
            if done.done():
                continue
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)
        self._consider()


_REMEMBERED = 2_000  # rows, for requests that come late


@dataclass(slots=True)
class Executed:
    """Result of a run.

    `completed`: everything owed was tried. `stopped`: what ended it early (cost cap, run deadline, a source that
    broke), `None` also when it was interrupted. `planned`: all examples were read, so that what is owed is known.
    `counts`: `owed`, `done`, `failed`, `reused`, `reused_age` (seconds since the oldest reused row was made),
    `restarted` (groups done again), `set_up_again` (groups set up once more), `unmatched`, `seconds` (wall),
    `interrupted`, and by system `systems[name]` = `done`, `failed`, `judge_failed`, `reused`, `seconds` (of work),
    `cost`, and where it has set-ups `setups`, `setups_failed`. Rows done here, not earlier.
    """

    run_id: str
    name: str
    completed: bool
    counts: dict[str, Any] = field(default_factory=dict)
    stopped: Stop | None = None
    examples: int = 0
    planned: bool = True

    @property
    def reused_note(self) -> str:
        """A sentence on the rows taken from the store: their number, and the age of the oldest; empty without any."""
        if not self.counts.get("reused"):
            return ""
        age = self.counts.get("reused_age") or 0.0
        unit, size = next(
            ((unit, size) for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)) if age >= 2 * size),
            ("seconds", 1),
        )
        return (
            f"{self.counts['reused']:,} rows were already in the store (the oldest made {age / size:.0f} {unit} ago) "
            "and were not run again"
        )


@dataclass(slots=True)
class _SystemCount:
    done: int = 0
    failed: int = 0
    judge_failed: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    setups: int = 0
    setups_failed: int = 0


@dataclass(slots=True)
class _Row:
    """The place in the store of a finished row, or of a group's set-up, for requests that arrive late."""

    id: int
    setup: bool = False


class RunStatistics:
    """The counts of one execution. `in_database` runs something in the store's thread."""

    def __init__(
        self, writer: Writer, in_database: Callable[..., Awaitable[Any]], progress: Progress | None, clock: Clock
    ) -> None:
        self.writer, self.in_database, self.progress, self.clock = writer, in_database, progress, clock
        self.counts = {arm.name: _SystemCount() for arm in writer.arms}
        self.ran = 0
        self.unmatched = 0
        self.set_up_again = 0
        self.owners: dict[str, _Row] = {}  # by mark
        self.planned: Schedule | None = None  # nothing is planned where stored answers are judged
        self.shown_plan: tuple[int, int, bool] | None = None
        self.started = clock.monotonic()

    def note(self, outcome: WorkOutcome) -> None:
        """Count a committed outcome and show it."""
        count = self.counts[self.writer.arms[outcome.unit.arm].name]
        cost = outcome.usage.get("cost", 0.0) + sum(score.usage.get("cost", 0.0) for score in outcome.scores)
        count.cost += cost
        count.seconds += outcome.latency or 0.0
        count.judge_failed += any(score.error is not None for score in outcome.scores)
        if outcome.ran:
            count.done += 1
            count.failed += outcome.error is not None
            self.ran += 1
            if outcome.mark is not None and outcome.id is not None:
                self.owners[outcome.mark] = _Row(outcome.id)
        if self.progress is not None:
            name = self.writer.arms[outcome.unit.arm].name
            tokens = None if outcome.input_tokens is None else (outcome.input_tokens, outcome.output_tokens)
            self._show_plan()
            self.progress.advance(
                Step(name, failed=outcome.error is not None, tokens=tokens, cost=cost, latency=outcome.latency)
            )

    def _show_plan(self) -> None:
        """Tell who watches how much there is to do, whenever planning has found out more, if they want to know."""
        if self.planned is None:
            return
        tally, exhausted = self.planned.tally, self.planned.exhausted
        if (tally.planned, tally.reused, exhausted) == self.shown_plan:
            return
        self.shown_plan = (tally.planned, tally.reused, exhausted)
        show = calling.method(self.progress, "planned")
        if show is not None:
            for index, arm in enumerate(self.writer.arms):
                show(
                    arm.name,
                    tally.planned_by_arm.get(index, 0) if exhausted else None,
                    tally.reused_by_arm.get(index, 0),
                )

    def note_setup(self, setup: SetUp) -> None:
        """Count a group's set-up that is over."""
        count = self.counts[self.writer.arms[setup.arm].name]
        count.setups += 1
        count.setups_failed += setup.error is not None
        count.cost += setup.usage.get("cost", 0.0)
        self.set_up_again += setup.attempt > 1
        if setup.mark is not None:
            self.owners[setup.mark] = _Row(setup.id, setup=True)

    def show(self, arm: PlannedArm, setup: SetUp, *, begun: bool) -> None:
        """Tell who watches, if they want to know."""
        show = calling.method(self.progress, "setting_up")
        if show is not None:
            show(arm.name, setup.group, begun)

    def totals(self, tally: PlanCounts, notes: list[str], *, interrupted: bool) -> dict[str, Any]:
        """`Executed.counts`."""
        reused = {self.writer.arms[index].name: count for index, count in tally.reused_by_arm.items()}
        systems = {
            name: {
                "done": count.done,
                "failed": count.failed,
                "judge_failed": count.judge_failed,
                "reused": reused.get(name, 0),
                "seconds": round(count.seconds, 6),
                "cost": count.cost,
                **({"setups": count.setups, "setups_failed": count.setups_failed} if count.setups else {}),
            }
            for name, count in self.counts.items()
        }
        return {
            "owed": tally.planned,
            "done": sum(count.done for count in self.counts.values()),
            "failed": sum(count.failed for count in self.counts.values()),
            "reused": tally.reused,
            "reused_age": None if tally.oldest is None else max(0.0, self.clock.now() - tally.oldest),
            "restarted": tally.restarted,
            "set_up_again": self.set_up_again,
            "unmatched": self.unmatched,
            "seconds": round(self.clock.monotonic() - self.started, 6),
            "interrupted": interrupted,
            "notes": notes,
            "systems": systems,
        }

    async def collect_late(self, recorder: Recorder) -> None:
        """Requests that a proxy sent on after the row was closed join their row; what nobody can be named for is kept
        apart.
        """
        late: dict[str, list[Forwarded]] = {}
        lost: list[Forwarded] = []
        for record in await recorder.late():
            if record.mark in self.owners:
                late.setdefault(str(record.mark), []).append(record)
            else:
                lost.append(record)
        for mark, records in late.items():
            row = self.owners[mark]
            if row.setup:
                await self.in_database(self.writer.join_late_to_setup, row.id, records)
                continue
            wire, tokens = await self.in_database(self.writer.stored_wire, row.id)
            await self.in_database(self.writer.join_late, row.id, records, *with_late(wire, tokens, records))
        lost += await recorder.unmatched()
        self.unmatched += len(lost)
        if lost:
            await self.in_database(self.writer.unmatched, lost)
        for mark in list(self.owners)[:-_REMEMBERED]:
            del self.owners[mark]


# --- the process

#: Descriptors a run needs besides those of its workers: store, logs, pipes, listening sockets.
_SPARE = 64
#: Descriptors of one worker: to the proxy; with an own tap, from it, and on to the provider.
_EACH = 4


def enough_descriptors(workers: int) -> tuple[int, list[str]]:
    """The number of workers that fits, after raising the soft limit of open files as far as needed; and what there is
    to say about it.
    """
    try:
        import resource
    except ImportError:  # no such limit on this system
        return workers, []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = workers * _EACH + _SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return workers, []
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    fits = max(1, (soft - _SPARE) // _EACH)
    if fits >= workers:
        return workers, []
    return fits, [
        f"{workers} workers need about {needed} open files, this system allows {soft}: running with {fits} (ulimit -n "
        "raises it)"
    ]


class OneThread(Executor):
    """An executor with a single daemon thread, started when first used: the interpreter can end while a call hangs in
    it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` in the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the thread end when it is done with what it does."""
        self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, function = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:  # carried to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, function  # nothing of a finished call is kept alive


#: Seconds between two of them; a run that has shown none for six times as long is taken for dead.
EVERY = 20.0


@asynccontextmanager
async def heartbeat(show: Callable[[], Awaitable[object]], every: float = EVERY) -> AsyncIterator[None]:
    """Call `show` again and again for the block, however long an example takes. If it fails, so does the work, and says
    so.
    """

    async def going() -> None:
        with suppress(Stop):
            while True:
                await asyncio.sleep(every)
                await show()

    task = asyncio.create_task(going())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


#: Seconds in which one fault is said once, and kinds of fault that are remembered.
_EVERY, _MOST = 30.0, 100


class Waiting:
    """Called with each fault; passes it to `say` at first, and again only if it is still there much later."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._say, self._monotonic = say, monotonic
        self._said: dict[str, float] = {}

    def __call__(self, fault: str) -> None:
        """One attempt failed with `fault`, and another one will be made."""
        now = self._monotonic()
        known = self._said.get(fault)
        if (known is not None and now - known < _EVERY) or len(self._said) >= _MOST:
            return
        self._said[fault] = now
        self._say(f"{fault}: trying again")


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom, and leave alone what exists now (modules, plans): a tenth of a run's CPU otherwise. As it was
    before, afterwards.

    Does nothing where somebody has turned the collector off or slowed it down further.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not 0 < before[0] <= FIRST:
        yield
        return
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
