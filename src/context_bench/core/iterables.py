"""Groups of values in their order, by count or by size, and a cheap way past values that are not needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


def by_count(values: Iterable[T], most: int) -> Iterator[list[T]]:
    """`most` at a time; the last group may be smaller."""
    ahead = iter(values)
    while group := list(islice(ahead, most)):
        yield group


def by_size(values: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """As many at a time as are `most` large together; a larger one is alone. `size` is asked once for each."""
    group, total = list[T](), 0
    for value in values:
        more = size(value)
        if group and total + more > most:
            yield group
            group, total = [], 0
        group.append(value)
        total += more
    if group:
        yield group


def skip(values: Iterator[Any], count: int) -> int:
    """Pass over `count` values, by `values.skip(count)` where there is one; returns how many there were."""
    own = getattr(values, "skip", None)
    if own is not None:
        return int(own(count))
    counted = enumerate(islice(values, count), 1)
    last = deque(counted, maxlen=1)
    return last[0][0] if last else 0
