"""Many tests at once: p-values adjusted so that the usual threshold keeps its meaning."""

from __future__ import annotations

from collections.abc import Sequence


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (family-wise error), in the given order."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's step-up adjustment (false discovery rate), in the given order."""
    order = sorted(range(len(ps)), key=lambda i: ps[i], reverse=True)
    adjusted, lowest = [0.0] * len(ps), 1.0
    for rank, i in enumerate(order):
        lowest = min(lowest, ps[i] * len(ps) / (len(ps) - rank))
        adjusted[i] = lowest
    return adjusted
