"""What was worked out, kept for as long as the run has not changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from context_bench.engine.store.browsing import Listed

T = TypeVar("T")

#: Seconds that anything about a run that ended, or that goes on, is believed. A run that ended may be judged again.
ENDED, RUNNING = 60.0, 2.0


@dataclass(slots=True)
class Kept:
    """At most `most` values, the least used forgotten first; of a run that goes on the latest only. May be used from several threads."""

    most: int
    monotonic: Callable[[], float] = time.monotonic
    _values: OrderedDict[Hashable, tuple[Hashable, float, Any]] = field(default_factory=OrderedDict)  # with the run's stamp, and since when
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Listed, what: Hashable, made: Callable[[], T]) -> T:
        """The value for `what` of the run as it is now."""
        key = (run.number, what)
        with self._lock:
            stamp, since, value = self._values.get(key, (None, 0.0, None))
            if stamp == run.stamp and self.monotonic() - since < (RUNNING if run.running else ENDED):
                self._values.move_to_end(key)
                kept: T = value
                return kept
        made_now = made()
        with self._lock:
            self._values[key] = run.stamp, self.monotonic(), made_now
            self._values.move_to_end(key)
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return made_now

    def __len__(self) -> int:
        return len(self._values)
