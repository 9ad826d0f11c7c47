"""How far a run is, told for as long as it goes on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from context_bench.engine.store.browsing import Listed, Live

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

    look: Callable[[], Awaitable[tuple[Listed, list[Live]]]]
    monotonic: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)
    _seen: tuple[Listed, list[Going]] | None = None
    _due: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self) -> tuple[Listed, list[Going]]:
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
