"""What was worked out, kept for as long as the run has not changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from cachetools import TLRUCache

from context_bench.engine.store.browsing import Listed

T = TypeVar("T")

#: Seconds that anything about a run that ended, or that goes on, is believed. A run that ended may be judged again.
ENDED, RUNNING = 60.0, 2.0


class Kept:
    """At most `most` values, the least used forgotten first; of a run that goes on the latest only. May be used from several threads."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._values: TLRUCache[Hashable, tuple[Listed, Any]] = TLRUCache(most, _expiry, monotonic)
        self._lock = threading.Lock()

    def of(self, run: Listed, what: Hashable, made: Callable[[], T]) -> T:
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


def _expiry(_: Hashable, value: tuple[Listed, Any], now: float) -> float:
    return now + (RUNNING if value[0].running else ENDED)
