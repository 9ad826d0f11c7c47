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
    """At most `most` values, the least used forgotten first. May be used from several threads."""

    most: int
    monotonic: Callable[[], float] = time.monotonic
    _values: OrderedDict[Hashable, tuple[float, Any]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run: Listed, what: Hashable, made: Callable[[], T]) -> T:
        """The value for `what` of the run as it is now."""
        key = (run.stamp, what)
        with self._lock:
            found = self._values.get(key)
            if found is not None and self.monotonic() - found[0] < (RUNNING if run.running else ENDED):
                self._values.move_to_end(key)
                value: T = found[1]
                return value
        value = made()
        with self._lock:
            self._values[key] = self.monotonic(), value
            self._values.move_to_end(key)
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return value
