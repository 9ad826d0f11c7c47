"""Group commit: workers hand in what they finished and go on when it is durable; several share one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from context_bench.engine.plan import Outcome

#: Seconds that a finished outcome waits at most for others to share its transaction.
WAIT = 0.05
#: Seconds after which it is written already if the loop has time, and by how many a timer may be late on a loop that has.
SOON, _LATE = 0.005, 0.001


class GroupCommit:
    """Batches outcomes of concurrent workers. A batch is written when every busy worker waits, or after `wait` seconds.

    It is written after `soon` seconds where the loop has nothing else to do: then what is waited for are answers, and workers that wait for
    the store keep requests from being sent. A busy loop is what is waited for itself, and large batches leave it more time.
    `write` runs in `thread`, never on the loop. While one batch is written the next gathers.
    """

    def __init__(self, write: Callable[[list[Outcome]], None], thread: Executor, wait: float = WAIT, soon: float = SOON) -> None:
        self._write = write
        self._thread = thread
        self._wait, self._soon = wait, min(soon, wait)
        self._busy = 0
        self._pending: list[tuple[Outcome, asyncio.Future[None]]] = []
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

    async def put(self, outcome: Outcome) -> None:
        """Return when `outcome` is durable; raises what the store raised. A cancelled caller's outcome is written all the same."""
        await self.leave_behind(outcome)

    def leave_behind(self, outcome: Outcome) -> asyncio.Future[None]:
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

    def _landed(self, flight: asyncio.Future[None], batch: list[tuple[Outcome, asyncio.Future[None]]]) -> None:
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
