"""Percentiles by nearest rank: always a value that was measured, as needs no interpolation between two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The ⌈`share` · n⌉-th smallest of sorted values (0 ≤ `share` ≤ 1, n ≥ 1)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
