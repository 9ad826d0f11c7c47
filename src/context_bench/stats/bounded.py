"""Means of scores that cannot leave a range: a score interval and test that need no resampling and never have width 0.

The variance that decides is the one under the hypothesis, not the observed one. Of all distributions on the range whose mean is the
hypothesised one, take the likeliest given the values seen (empirical likelihood, with the ends of the range allowed mass of their own).
For 0/1 values this *is* Wilson's interval, for paired differences in {−1, 0, 1} it *is* Tango's; for anything between it is their common
form. So forty times "no difference" does not prove that there is none: the unseen end of the scale keeps the mass that the
hypothesis requires.

`guarded` values are differences that somebody will call "no loss" by. What could be wrong with that are losses that were not seen, so
the correlation within clusters is drawn towards its prior by the clusters that show a loss, never downwards, and the one-sided claim is
moved by `SLACK` of one pair, which keeps the exact error of Tango's test at the margin below 6 % (`docs/decisions/0003`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.stats.clusters import Design, codes_of, design
from context_bench.stats.roots import root
from context_bench.stats.students import quantile, upper_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 0.07  # of a pair; without it the error is up to 6.8 % where nothing but losses can happen (n = 133 … 139 at 2 points)
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values in [`low`, `high`], gathered by value, with the design of their clusters. Made by `bounded`.

    `guard`: of guarded values, the design that claims about their lower side go by.
    """

    points: Any
    weights: Any
    mean: float
    low: float
    high: float
    design: Design
    guard: Design | None = None

    @property
    def variance(self) -> float:
        """Observed variance (n − 1 in the denominator)."""
        n = self.design.n
        return float((self.weights * (self.points - self.mean) ** 2).sum()) * n / (n - 1) if n > 1 else 0.0

    def flipped(self) -> Bounded:
        """The mirror image: what was low is high."""
        return Bounded(-self.points, self.weights, -self.mean, -self.high, -self.low, self.design)

    def score(self, null: float, *, slack: float = 0.0) -> float:
        """How many standard errors, as they would be if the mean were `null` (below the mean seen), the mean lies above it.

        `slack`: share of one value's half range by which the mean is taken to be nearer.
        """
        variance = self._variance_under(null)
        excess = max(0.0, self.mean - null - slack * (self.high - self.low) / 2 / self.design.n)
        if variance <= 0:
            return math.inf if excess > _NEAR else 0.0
        return excess / math.sqrt(variance * (self.guard or self.design).effect / self.design.n)

    @property
    def _slack(self) -> float:
        return SLACK if self.guard else 0.0

    def p_above(self, null: float) -> float:
        """One-sided p of H0: the true mean is `null` or less."""
        if null < self.low:
            return 0.0
        if null >= self.mean:
            return 1 - upper_tail(self.flipped().score(-null), self.design.df) if null < self.high else 1.0
        return upper_tail(self.score(null, slack=self._slack), self.design.df)

    def p_below(self, null: float) -> float:
        """One-sided p of H0: the true mean is `null` or more."""
        return self.flipped().p_above(-null)

    def lower_bound(self, confidence: float) -> float:
        """One-sided lower bound of the mean: the smallest hypothesis that is not refused."""
        return self._lowest(confidence, self._slack)

    def _lowest(self, confidence: float, slack: float) -> float:
        limit = quantile(confidence, self.design.df)
        outermost = self.low + _NEAR * (self.high - self.low)
        if self.mean <= outermost or self.score(outermost, slack=slack) <= limit:
            return self.low
        return float(root(lambda null: min(self.score(null, slack=slack), 1e6) - limit, outermost, self.mean, xtol=1e-10))

    def upper_bound(self, confidence: float) -> float:
        """One-sided upper bound of the mean."""
        return -self.flipped().lower_bound(confidence)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval of the mean (of guarded values: without the slack, so that without clusters it is the published interval)."""
        side = 0.5 + confidence / 2
        return self._lowest(side, 0.0), self.upper_bound(side)

    def _variance_under(self, null: float) -> float:
        """Variance of the likeliest distribution with mean `null` ≤ mean: values are weighted 1 / (1 + tilt · (value − null))."""
        away = self.points - null
        reach = null - self.low
        if reach <= 0:
            return 0.0
        most = 1 / reach
        tilt = self._tilt(away, most)
        share = self.weights / (1 + tilt * away)
        missing = max(0.0, 1 - float(share.sum())) if tilt >= most * (1 - _NEAR) else 0.0
        return float((share * away**2).sum()) + missing * reach**2

    def _tilt(self, away: NDArray[Any], most: float) -> float:
        """The tilt that moves the mean to the hypothesis, or `most`, at which the low end of the range begins to take mass."""

        def pull(tilt: float) -> float:
            return float((self.weights * away / (1 + tilt * away)).sum())

        inside = most * (1 - _NEAR)
        if pull(0.0) <= 0:
            return 0.0
        return most if pull(inside) >= 0 else float(root(pull, 0.0, inside, xtol=1e-12, rtol=1e-10))


def bounded(
    values: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    *,
    low: float,
    high: float,
    guarded: bool = False,
) -> Bounded:
    """Gather `values`, all within [`low`, `high`], for intervals and tests of their mean.

    `guarded`: they are differences system − baseline, and a claim that the system loses no more than something may be made of them.
    """
    import numpy as np

    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all() or array.min() < low - _NEAR or array.max() > high + _NEAR:
        raise ValueError(f"expected at least one value, all within [{low}, {high}]")
    points, counts = np.unique(array, return_counts=True)
    codes = clusters if isinstance(clusters, np.ndarray) else codes_of(clusters, len(array))
    telling = array != points[int(counts.argmax())]
    guard = design(array, codes, array < 0, guarded=True) if guarded else None
    return Bounded(points, counts / len(array), float(array.mean()), low, high, design(array, codes, telling), guard)
