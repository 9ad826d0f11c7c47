"""Passing over what is not wanted of an iterator that may know a cheaper way than making it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any


def skip(values: Iterator[Any], count: int) -> int:
    """Pass over `count` values, by `values.skip(count)` where there is one; returns how many there were."""
    own = getattr(values, "skip", None)
    if own is not None:
        return int(own(count))
    counted = enumerate(islice(values, count), 1)
    last = deque(counted, maxlen=1)
    return last[0][0] if last else 0
