"""Limits on one account: requests under way at once, and requests and tokens a minute.

Both limiters may be shared by clients on several event loops, and adapt to the account's answers and headers. A request
holds one slot from just before it is sent until its reply is whole; the caller measures the wait for a slot, which is
never part of a latency. An account refuses requests that come too fast, which costs time, and with some providers
quota: pacing spreads them. Places in line are given in the order of asking, so nobody is overtaken.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from context_bench.core.errors import BadInput
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.measures import percent
from context_bench.core.records import Usage

#: Below this share of a quota what is left of it is spread over the time until it is full again.
SCARCE = 0.1
#: A quota that is full again only after more seconds than this (a day's, say) is not spread: the run may well need less
#: than is left.
LONGEST = 60.0


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota of an account, as it reported it: `kind` "requests" or "tokens", how many are `left`, which `share` of
    all that is, and in how many `seconds` it is full again.
    """

    kind: str
    left: float
    share: float
    seconds: float


class Pace:
    """Hands out moments at which requests may be sent; shared by all clients of one account, on whatever event loops
    they run.

    `rpm`: requests a minute, evenly spread: in any 60 seconds at most so many are sent. `tpm`: tokens a minute, prompt
    and reply: what was sent and received in any 60 seconds passes it by at most the last request. `None`: no such
    limit. Only wishes of the user and of the account's headers (`adapt_to`) slow anything down.
    """

    def __init__(self, rpm: float | None = None, tpm: float | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        for name, value in (("requests", rpm), ("tokens", tpm)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{name} a minute are a number above 0, not {value!r}")
        self.rpm, self.tpm = rpm, tpm
        self._clock, self._lock = clock, threading.Lock()
        self._each = {"requests": 60 / rpm if rpm else 0.0, "tokens": 60 / tpm if tpm else 0.0}
        self._free = {"requests": -math.inf, "tokens": -math.inf}
        self._scarce: dict[str, tuple[float, float]] = {}  # kind → (until, seconds for each of what is left)
        self._idle = not (rpm or tpm)

    @property
    def idle(self) -> bool:
        """Nothing slows requests down: there is no need to ask for a place."""
        return self._idle

    def place(self, tokens: int) -> float:
        """The moment (on the clock's `monotonic`) at which a request of so many tokens may be sent; it is taken by
        asking.
        """
        now = self._clock.monotonic()
        if self._idle:
            return now
        with self._lock:
            start = max(now, *self._free.values())
            self._push("requests", start, 1)
            self._push("tokens", start, tokens)
        return start

    def add(self, tokens: int) -> None:
        """Count tokens that were not known when the place was taken: those of the reply."""
        if tokens > 0 and not self._idle:
            with self._lock:
                self._push("tokens", max(self._clock.monotonic(), self._free["tokens"]), tokens)

    def adapt_to(self, quotas: Iterable[Quota]) -> str | None:
        """Learn what the account says is left; where that is scarce, why the pace goes down from here (only if it is
        new).
        """
        worst: dict[str, Quota] = {}
        for quota in quotas:
            if quota.seconds <= LONGEST and (quota.kind not in worst or quota.share < worst[quota.kind].share):
                worst[quota.kind] = quota
        if not worst:
            return None
        with self._lock:
            reasons = [reason for quota in worst.values() if (reason := self._learn(quota)) is not None]
            self._idle = not (self.rpm or self.tpm or self._scarce)
        return "; ".join(reasons) or None

    def _learn(self, quota: Quota) -> str | None:
        now = self._clock.monotonic()
        before = self._scarce.pop(quota.kind, None)
        if quota.share >= SCARCE:
            return None
        until = now + quota.seconds
        self._scarce[quota.kind] = until, quota.seconds / quota.left if quota.left > 0 else math.inf
        if quota.left <= 0:
            self._free[quota.kind] = max(self._free[quota.kind], until)
        if before is not None and before[0] > now:
            return None
        return f"{percent(quota.share)} of the {quota.kind} left, spread over {quota.seconds:.3g} s"

    def _push(self, kind: str, start: float, amount: float) -> None:
        """Let the next one wait for what this one takes."""
        free = start + amount * self._each[kind]
        until, each = self._scarce.get(kind, (-math.inf, 0.0))
        if start < until:
            free = max(free, min(until, start + amount * each))
        self._free[kind] = max(self._free[kind], free)


class RequestEnd(Enum):
    """End of a request, as far as its account's capacity is concerned."""

    CLEAN = "clean"  # answered at the first attempt
    NEUTRAL = "neutral"  # says nothing about capacity: answered after a retry, refused for its content, cancelled
    TROUBLED = "troubled"  # 5xx, timeout, broken connection: no growth on this evidence
    LIMITED = "limited"  # refused for quota


def billed_beyond(about: int, usage: Usage | None) -> int:
    """Tokens that the account was billed for beyond those (`about`) that it was asked to let pass: the reply's."""
    return 0 if usage is None else max(0, (usage.input_tokens or 0) + (usage.output_tokens or 0) - about)


class Limiter(Protocol):
    """Hands out slots. `release` is called exactly once for each `acquire` that returned."""

    async def acquire(self, tokens: int = 0) -> int:
        """Wait until a request of so many tokens may be sent; returns how many are under way then, this one
        included.
        """

    def release(
        self, outcome: RequestEnd, pause: float = 0.0, *, tokens: int = 0, quotas: Sequence[Quota] = ()
    ) -> None:
        """Give the slot back. `pause`: seconds for which the provider asked everybody to stay away; `tokens`: used
        beyond those told to `acquire`; `quotas`: what the reply's headers say is left.
        """


class Waiters:
    """Coroutines standing in line, on whatever event loops they run."""

    def __init__(self) -> None:
        self._line: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._line)

    def join(self) -> asyncio.Future[None]:
        """Stand in line; the future is done when it is this waiter's turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._line.append((loop, future))
        return future

    def call_next(self, missed: Callable[[], None]) -> bool:
        """Call the first in line who has not given up; false if there is none. `missed` is called if that one gives up
        before it hears.
        """
        while True:
            with self._lock:
                if not self._line:
                    return False
                loop, future = self._line.popleft()
            if future.cancelled():
                continue
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody there any more
                loop.call_soon_threadsafe(_call, future, missed)
                return True

    def call_all(self) -> None:
        """Call everybody."""
        while self.call_next(lambda: None):
            pass


def _call(future: asyncio.Future[None], missed: Callable[[], None]) -> None:
    if future.done():
        missed()
    else:
        future.set_result(None)


@dataclass(frozen=True, slots=True)
class LimitChange:
    """One change of a limit or of the pace under it: when (seconds since the epoch), to how many at once, and why."""

    at: float
    limit: int
    reason: str


class _Slots:
    """Common part of the limiters: a count of slots in use, a line of those who wait, a pace, and the history of all
    changes.
    """

    def __init__(self, limit: int, clock: Clock, pace: Pace | None) -> None:
        self.limit = limit
        self.in_use = 0  # slots, those of requests that wait for their moment included
        self.in_flight = 0  # requests that were sent
        self.pace = pace or Pace(clock=clock)
        self.history: deque[LimitChange] = deque([LimitChange(clock.now(), limit, "start")], maxlen=1000)
        self._clock = clock
        self._paused_until = -math.inf
        self._lock = threading.RLock()
        self._waiters = Waiters()

    async def acquire(self, tokens: int = 0) -> int:
        """Wait for a slot, first come first served, for the end of a pause, and for the moment that the pace gives."""
        with self._lock:
            free = self.in_use < self.limit and not self._waiters
            turn = None if free else self._waiters.join()
            if free:
                self.in_use += 1
        try:
            if turn is not None:
                await turn
            if self._paused_until > -math.inf or not self.pace.idle:
                await self._moment(tokens)
        except BaseException:
            if turn is None or (turn.done() and not turn.cancelled()):
                self._give_back()  # the slot was ours already
            raise
        with self._lock:
            self._sent()
            return self.in_flight

    async def _moment(self, tokens: int) -> None:
        """Wait for the end of a pause and then for a place; a pause that begins meanwhile costs the place, or all would
        come at its end.
        """
        place: float | None = None
        while True:
            now = self._clock.monotonic()
            if self._paused_until > now:
                place = None
                await self._clock.sleep(self._paused_until - now)
                continue
            if place is None:
                place = self.pace.place(tokens)
                now = self._clock.monotonic()  # or a place that is free at once would look like one a moment ahead
            if place <= now:
                return
            await self._clock.sleep(place - now)

    def _sent(self) -> None:
        self.in_flight += 1

    def _landed(self, pause: float, tokens: int) -> None:
        """A request that was sent is over."""
        self.pace.add(tokens)
        with self._lock:
            self.in_flight -= 1
            self._give_back(pause)

    def _give_back(self, pause: float = 0.0) -> None:
        with self._lock:
            self.in_use -= 1
            if pause > 0:
                self._paused_until = max(self._paused_until, self._clock.monotonic() + pause)
            while self.in_use < self.limit and self._waiters.call_next(self._give_back):
                self.in_use += 1  # for the one who was called

    def _note(self, reason: str) -> None:
        self.history.append(LimitChange(self._clock.now(), self.limit, reason))


class FixedLimiter(_Slots):
    """Always the same number of slots: for measuring latency, where a moving limit would change what is measured.

    The pace is the user's alone: what quota headers say changes nothing. Pauses that the provider asks for hold, and
    are in `history`.
    """

    def __init__(self, limit: int, *, clock: Clock = SYSTEM_CLOCK, pace: Pace | None = None) -> None:
        super().__init__(max(1, limit), clock, pace)

    def release(
        self, outcome: RequestEnd, pause: float = 0.0, *, tokens: int = 0, quotas: Sequence[Quota] = ()
    ) -> None:
        """Give the slot back; a pause that the provider asked for holds for everybody."""
        with self._lock:
            if outcome is RequestEnd.LIMITED and self._clock.monotonic() >= self._paused_until:
                self._note(f"refused for quota, {pause:.3g} s pause")
            self._landed(pause, tokens)


class AdaptiveLimiter(_Slots):
    """Finds out how many requests an account takes at once.

    Begins with `start` slots and doubles them after each clean round until the first refusal for quota; from then on a
    clean round adds 5 % (at least one). A round is as many clean answers as there are slots, of which at least 80 %
    were really in use. A refusal (429) takes the limit down to 80 %, at most once per `calm` seconds, or per the pause
    that the provider asked for if that is longer; for that pause nothing new is sent. Trouble (5xx, timeouts) begins
    the round anew but does not cut. When the account's headers say that little of a quota is left, requests are spread
    over the time until it is full (`pacing`). Every change is in `history`.
    """

    def __init__(
        self,
        start: int = 20,
        low: int = 1,
        high: int = 100,
        *,
        calm: float = 15.0,
        clock: Clock = SYSTEM_CLOCK,
        pace: Pace | None = None,
    ) -> None:
        self.low, self.high = max(1, low), max(1, low, high)
        super().__init__(min(max(start, self.low), self.high), clock, pace)
        self._calm = calm
        self._clean, self._peak, self._cut_before = 0, 0, False
        self._next_cut = -math.inf

    def release(
        self, outcome: RequestEnd, pause: float = 0.0, *, tokens: int = 0, quotas: Sequence[Quota] = ()
    ) -> None:
        """Give the slot back and learn from how the request ended and from what is left of the quotas."""
        scarce = self.pace.adapt_to(quotas) if quotas else None
        with self._lock:
            if outcome is RequestEnd.LIMITED:
                self._cut(pause)
            elif outcome is RequestEnd.TROUBLED or scarce:
                self._clean, self._peak = 0, 0
            elif outcome is RequestEnd.CLEAN:
                self._grow()
            if scarce:
                self._note(scarce)
            self._landed(pause, tokens)

    def _sent(self) -> None:
        super()._sent()
        self._peak = max(self._peak, self.in_flight)

    def _cut(self, pause: float) -> None:
        self._clean, self._peak, self._cut_before = 0, 0, True
        now = self._clock.monotonic()
        if now < self._next_cut:
            return
        self._next_cut = now + max(self._calm, pause)
        self._set(max(self.low, int(self.limit * 0.8)), "refused for quota")

    def _grow(self) -> None:
        self._clean += 1
        if self._clean < self.limit:
            return
        used, self._clean, self._peak = self._peak, 0, self.in_flight - 1
        if used >= 0.8 * self.limit:
            more = max(1, round(self.limit * 0.05)) if self._cut_before else self.limit
            self._set(min(self.high, self.limit + more), "clean round")

    def _set(self, limit: int, reason: str) -> None:
        if limit != self.limit:
            self.limit = limit
            self._note(reason)
