"""Percentiles of sorted values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The ⌈`share` · n⌉-th smallest of sorted values (0 ≤ `share` ≤ 1, n ≥ 1): always a value that was measured."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def interpolated(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie (0 ≤ `share` ≤ 1, n ≥ 1), linear between neighbours."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
