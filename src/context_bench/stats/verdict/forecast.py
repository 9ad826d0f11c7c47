"""Forecasts: how many more examples would decide what a run left open, and whether that can be named at all.

A number of examples is named only if the run knows enough to name it. What it rests on is the share of pairs that
change although nothing is wrong: a run of two equal arms shows it, else the system's own changes do, drawn towards
"one more pair in two more would have changed", for that nothing changed in 40 examples does not mean that nothing ever
will. Clusters that are lost as a whole are reckoned with likewise. Where what the run cannot tell reaches beyond the
cap, the number is the most of it that is named. Figures of how often a second run of the size named decides are on the
page on statistics (`benchmarks/coverage.py forecast`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from context_bench.core.lazy import LazyModule
from context_bench.stats.distributions import quantile, root, upper_tail
from context_bench.stats.intervals import Bounded, bounded, least_clusters, wilson
from context_bench.stats.tests import examples, n_noninferiority, n_without_change

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

#: Times as many examples as there are, beyond which no number is named.
MOST_TIMES = 20
_LEVEL = 0.05
_CHANCE = 0.8  # of a decision
_RANGE = 0.8  # of the forecasts of runs like this one, the share that the range holds
_FEW = 5  # changes, of which fewer say little: then even the most there may be must keep the number within the cap
_MOST_LIKELY = 0.98  # the two-sided limit of those
_APART = 2.0  # standard errors beyond which a system does not change like two equal arms


@dataclass(frozen=True, slots=True)
class ExamplesNeeded:
    """Examples for an 80 % chance of a decision.

    `n`: `None` where none can be named, for the reason in `why`: `margin`, the loss seen is the margin; `few`, more
    than 20 times as many as there are may be needed; `chance`, as many were asked, and it was not decided. `low`,
    `high`: where `n` of runs like this one lies in 4 of 5. `if_half_lost`: examples if half of the margin is truly
    lost. `clusters`: that `n` is in, where examples come in clusters. `least`: examples below which no run can rule
    the margin out; `least_clusters`: clusters below which lost clusters cannot be ruled out. `as_seen`: the loss seen
    is taken for the true one within its error; else the two for truly equal. `apart`: standard errors that the
    difference seen lies above the largest loss, with changes reckoned with that were not seen (see `assurance`).
    """

    n: int | None = None
    low: int | None = None
    high: int | None = None
    if_half_lost: int | None = None
    clusters: int | None = None
    least: int | None = None
    least_clusters: int | None = None
    as_seen: bool = False
    apart: float = 0.0
    why: Literal["", "margin", "few", "chance"] = ""


_UNNAMED = ExamplesNeeded()


@dataclass(frozen=True, slots=True)
class _Changes:
    """Pairs that change although the two are equal: `count` of `n`, and the typical `square` of such a change."""

    count: float
    n: int
    square: float

    @property
    def drawn(self) -> float:
        """The share of pairs that change, drawn towards one half as if one of two more had changed."""
        return (self.count + 1) / (self.n + 2)

    @property
    def bounds(self) -> tuple[float, float]:
        if self.count < 1:
            return 0.0, 1 - (0.5 - _RANGE / 2) ** (1 / self.n)
        between = wilson(self.count, self.n, _RANGE)
        return between.low, between.high


def changes(differences: NDArray[Any], noise: NDArray[Any] | None = None) -> _Changes:
    """Changes of the system's pairs and, if those do not change clearly more or less, of two equal arms'."""
    own = _counted(differences)
    if noise is None or not len(noise):
        return own
    equal, both = _counted(noise), _counted(np.concatenate([differences, noise]))
    share = both.drawn
    error = both.square * math.sqrt(share * (1 - share) * (1 / own.n + 1 / equal.n))
    return own if abs(own.square * own.drawn - equal.square * equal.drawn) > _APART * error else both


def _counted(differences: NDArray[Any]) -> _Changes:
    """Changes of 1 count in full; as many smaller ones as would spread like these count in their own size."""
    squares = differences**2
    total = float(squares.sum())
    square = float((squares**2).sum()) / total if total else 1.0
    return _Changes(min(total / square, len(differences)), len(differences), square)


def forecast(
    gathered: Bounded,
    differences: NDArray[Any],
    codes: NDArray[Any],
    margin: float,
    *,
    noise: NDArray[Any] | None = None,
    refuted: bool,
) -> ExamplesNeeded:
    """The examples that would decide, from bounded differences that left it open. `noise`: differences of two equal
    arms; `refuted`: a loss is shown, so the two are not equal.
    """
    pairs = changes(differences, noise)
    n, clusters, grown = gathered.design.n, gathered.design.clusters, _Grown(differences, codes)
    units = least_clusters(margin) if gathered.lost is not None and margin < 1 else None
    floor = max(examples(n_without_change(margin)), 0 if units is None else math.ceil(units * n / clusters))
    held = floor
    if units is not None and gathered.lost is not None:
        rule_out = gathered.lost.enough(margin, _LEVEL, _CHANCE, MOST_TIMES * clusters)
        held = max(floor, MOST_TIMES * n + 1 if rule_out is None else math.ceil(rule_out * n / clusters))

    def size(share: float, true: float = 0.0) -> int:
        alone = n_noninferiority(margin, pairs.square * share, true_difference=true, alpha=_LEVEL)
        return max(held, math.ceil(grown.examples(alone) - 1e-9))

    low, high = map(size, pairs.bounds)
    likely = size(pairs.drawn)
    if likely <= MOST_TIMES * n < high:  # only runs that saw fewer changes than there are would name a number here
        likely = high = MOST_TIMES * n
    equal = ExamplesNeeded(likely, low, high, size(pairs.drawn, -margin / 2), clusters, floor, units)
    error = math.sqrt(gathered.variance * gathered.design.effect / n)
    made = _named(equal, n, gathered.mean + margin, error, refuted=refuted)
    few = pairs.count < _FEW and size(wilson(pairs.count, pairs.n, _MOST_LIKELY).high) > MOST_TIMES * n
    if made.n is not None and few:
        made = replace(_UNNAMED, why="few", least=floor, least_clusters=units)
    spread = max(gathered.variance, pairs.square * pairs.drawn) * gathered.design.effect
    made = replace(made, apart=(gathered.mean + margin) / math.sqrt(spread / n))
    return replace(made, clusters=None if made.n is None or clusters == n else math.ceil(made.n * clusters / n))


def of_spread(variance: float, n: int, distance: float, margin: float, *, refuted: bool) -> ExamplesNeeded:
    """The forecast of scores without a range. `variance`: n times that of their mean difference, which is `distance`
    above the largest loss.
    """
    size = (quantile(1 - _LEVEL) + quantile(_CHANCE)) ** 2 * variance / margin / margin
    off = quantile(0.5 + _RANGE / 2) * math.sqrt(2 / max(1, n - 1))
    needed, low, high = (max(2, examples(size * part)) for part in (1, max(0.0, 1 - off), 1 + off))
    equal = ExamplesNeeded(needed, low, high, 4 * needed, None, 2)
    error = math.sqrt(variance / n)
    return replace(_named(equal, n, distance, error, refuted=refuted), apart=distance / error if error else 0.0)


def _named(equal: ExamplesNeeded, n: int, distance: float, error: float, *, refuted: bool) -> ExamplesNeeded:
    """The forecast, from that for two equal systems: of the loss seen where it is clearly not theirs, and none where no
    number can be named.
    """
    made = equal
    unnamed = replace(_UNNAMED, least=equal.least, least_clusters=equal.least_clusters)
    if refuted or distance < 0:
        if abs(distance) <= error:
            return replace(unnamed, why="margin", as_seen=True)
        seen = n * _times_as_seen(abs(distance) / error) if error else 0.0
        if seen > MOST_TIMES * n:
            return replace(unnamed, why="few", as_seen=True)
        least = math.ceil(seen)
        needed, low, high = (max(size or 0, least) for size in (equal.n, equal.low, equal.high))
        made = replace(equal, n=needed, low=low, high=high, if_half_lost=None, as_seen=True)
    if made.n is None or made.n > MOST_TIMES * n:
        return replace(unnamed, why="few", as_seen=made.as_seen)
    return made if made.n > n else replace(unnamed, why="chance", as_seen=made.as_seen)


def assurance(errors: float, times: float) -> float:
    """The chance that a run of so many `times` the examples decides, either way: the loss seen is `errors` standard
    errors from the margin, and the true one anywhere about it.

    The average power over a normal distribution of the true loss (assurance: O'Hagan, Stevens and Campbell, Pharm.
    Stat. 2005), whose one-sided tests at 5 % have a closed form.
    """
    limit, size = quantile(1 - _LEVEL), math.sqrt(times)
    return sum(upper_tail((limit - side * errors * size) / math.sqrt(1 + times)) for side in (1, -1))


def _times_as_seen(errors: float) -> float:
    """Times as many examples for an `assurance` of 80 %: 4.4 times at 1.645 errors, 16 at one."""

    def short(times: float) -> float:
        return assurance(errors, times) - _CHANCE

    return float(root(short, 0.0, 1e6, xtol=1e-6)) if short(1e6) > 0 else math.inf


def for_chance(ahead: ExamplesNeeded, n: int, spread: float = 1.0) -> int | None:
    """Examples for an `assurance` of 80 % after a run of `n` with this forecast, in a design whose differences have
    `spread` times the variance; `None` beyond 20 times `n`.
    """
    times = _times_as_seen(abs(ahead.apart) / math.sqrt(spread))
    if times > MOST_TIMES:
        return None
    needed = max(math.ceil(times * n), ahead.least or 0, math.ceil(spread * (ahead.n or 0)))
    return needed if needed <= MOST_TIMES * n else None


class _Grown:
    """The same data with more clusters like these, in which the design effect that a claim must allow for falls."""

    def __init__(self, differences: NDArray[Any], codes: NDArray[Any]) -> None:
        self._differences, self._codes = differences, codes
        self._groups = int(codes.max()) + 1
        self._effects: dict[int, float] = {}

    def examples(self, independent: float) -> float:
        """Examples in clusters that are worth so many independent ones; beyond the cap: more than that."""
        n = len(self._codes)
        if self._groups == n:
            return independent
        enough, short = MOST_TIMES, 0
        if independent * self._effect(MOST_TIMES) > MOST_TIMES * n:
            return independent * self._effect(MOST_TIMES)
        while enough - short > 1:
            middle = (enough + short) // 2
            worth = independent * self._effect(middle) <= middle * n
            enough, short = (middle, short) if worth else (enough, middle)
        return max(short * n + 1.0, independent * self._effect(enough))

    def _effect(self, times: int) -> float:
        if times not in self._effects:
            apart = np.concatenate([self._codes + copy * self._groups for copy in range(times)])
            grown = bounded(np.tile(self._differences, times), apart, low=-1.0, high=1.0, guarded=True)
            self._effects[times] = (grown.guard or grown.design).effect
        return self._effects[times]
