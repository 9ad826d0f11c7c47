"""Score intervals and tests for means in a range and for 0/1 outcomes. They need no resampling and never have width 0.

Wilson's interval, McNemar's test, Tango's interval and test for paired outcomes, and their common form for any values
in a range. The deciding variance is the one under the hypothesis, not the observed one. Of all distributions on the
range whose mean is the hypothesised one, take the likeliest given the values seen (empirical likelihood, with the ends
of the range allowed mass of their own). For 0/1 values this *is* Wilson's interval, for paired differences in {−1, 0,
1} it *is* Tango's. Forty times "no difference" does not prove that there is none: the unseen end of the scale keeps the
mass that the hypothesis requires.

`guarded` values are differences that somebody will call "no loss" or "a loss" by. Losses that were not seen could make
the first wrong. So the correlation within clusters is drawn towards its prior by the clusters that show a loss, never
downwards, and where clusters hold several values, clusters that were lost as a whole are counted (`LostClusters`). Both
one-sided claims are moved by a part of one pair (`SLACK`, `SLACK_OF_A_LOSS`), which keeps the exact error of Tango's
test at the margin below 6 % (`docs/decisions/0003`).

`Scored` and `estimate` apply them to the rows of a run: one value a question, clusters drawn whole.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.core.records import Estimate, EvalRow
from context_bench.core.rows import qa_type, score
from context_bench.stats.distributions import chi_square_tail, quantile, root, upper_tail
from context_bench.stats.means import MIN_CLUSTERS, ClusterRobust, Design, cluster_robust, codes_of, design

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

# Of a pair; without it the error is up to 6.8 % where nothing but losses can happen (n = 133 … 139 at 2 points)
SLACK = 0.07
# The same for the claim that a loss is shown: at 2 points and n = 20 … 510 the error is up to 9.9 % without it, 6.2 %
# with half a pair, 5.9 % with this (`benchmarks/coverage.py inferior`)
SLACK_OF_A_LOSS = 0.6
#: How far beyond the margin the share of lost clusters may be bounded: one that is lost loses hardly all that it has.
LOST_AT_MOST = 1.05
#: Values that share a cluster with one drawn at random, itself counted, from which clusters "hold several".
SEVERAL = 2.0
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class LostClusters:
    """Clusters lost as a whole: at least two of their values, and half of them, fell by half the scale.

    If one document in 50 is lost whole, most samples of 40 documents hold none that was, whatever number of questions
    is asked on each. So a claim of "no loss" has to bound the share of lost clusters too, by their number alone.
    """

    lost: int
    clusters: int

    def p(self, margin: float) -> float:
        """One-sided p of H0: `margin` or more of all values are lost with their whole cluster (0 < `margin`).

        The share of lost clusters is held to `LOST_AT_MOST` times the margin (by the binomial distribution, as Clopper
        and Pearson do), and there must be as many clusters as `least_clusters` says.
        """
        share = min(1.0, LOST_AT_MOST * margin)
        return max(_binomial_tail(self.lost, self.clusters, share), (1 - min(1.0, margin)) ** self.clusters)

    def margin(self, confidence: float) -> float:
        """The smallest margin that is ruled out; 1 where none is."""
        level = 1 - confidence
        if self.p(1.0) >= level:
            return 1.0
        return float(root(lambda margin: self.p(margin) - level, _NEAR, 1.0, xtol=1e-10))

    def enough(self, margin: float, level: float, chance: float, most: int) -> int | None:
        """Clusters of which a `chance` of samples rules `margin` out; `None` if even `most` would not do.

        The share lost by chance alone is drawn towards one half, as if one of two more clusters had been lost.
        """
        share = (self.lost + 1) / (self.clusters + 2)
        lost, clusters = 0, least_clusters(margin, level)
        while clusters <= most:
            if LostClusters(lost, clusters).p(margin) > level:
                clusters += max(1, clusters // 100)
            elif _binomial_tail(lost, clusters, share) >= chance:
                return clusters
            else:
                lost += 1
        return None


def least_clusters(margin: float, alpha: float = 0.05) -> int:
    """Clusters from which it can be ruled out that `margin` of them were lost whole: 149 at 2 points.

    With fewer, samples without a lost cluster are more frequent than `alpha`.
    """
    if not 0 < margin < 1:
        raise ValueError(f"margin must lie between 0 and 1, not {margin}")
    return math.ceil(min(math.log(alpha) / math.log1p(-margin), 2.0**53) - 1e-9)


def _binomial_tail(most: int, n: int, share: float) -> float:
    """P(X ≤ `most`) of a binomial variable of `n` trials with chance `share`."""
    if most >= n or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    whole, yes, no = math.lgamma(n + 1), math.log(share), math.log1p(-share)
    terms = (whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * yes + (n - k) * no for k in range(most + 1))
    return min(1.0, math.fsum(math.exp(term) for term in terms))


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values in [`low`, `high`], gathered by value, with the design of their clusters. Made by `bounded`.

    `guard`: of guarded values, the design that claims about their lower side go by; `lost`: their clusters, where these
    hold several; `robust`: the mean that claims about their upper side go by, where gains have little room. `slack`,
    `slack_above`: part of one value by which claims about the lower and the upper side are moved.
    """

    points: Any
    weights: Any
    mean: float
    low: float
    high: float
    design: Design
    guard: Design | None = None
    lost: LostClusters | None = None
    robust: ClusterRobust | None = None
    slack: float = 0.0
    slack_above: float = 0.0

    @property
    def variance(self) -> float:
        """Observed variance (n − 1 in the denominator)."""
        n = self.design.n
        return float((self.weights * (self.points - self.mean) ** 2).sum()) * n / (n - 1) if n > 1 else 0.0

    def flipped(self) -> Bounded:
        """The mirror image: what was low is high."""
        # where gains have little room, the upper side goes by `robust`: beside it no correlation is assumed
        independent = Design(self.design.n, self.design.n, 1.0, 0.0, 1.0)
        return Bounded(
            -self.points,
            self.weights,
            -self.mean,
            -self.high,
            -self.low,
            self.design if self.robust is None else independent,
            slack=self.slack_above,
            slack_above=self.slack,
        )

    def score(self, null: float, *, slack: float = 0.0) -> float:
        """Distance of the mean above `null` in standard errors, as they would be if the mean were `null` (below the
        mean seen).

        `slack`: share of one value's half range by which the mean is taken to be nearer.
        """
        variance = self._variance_under(null)
        excess = max(0.0, self.mean - null - slack * (self.high - self.low) / 2 / self.design.n)
        if variance <= 0:
            return math.inf if excess > _NEAR else 0.0
        return excess / math.sqrt(variance * (self.guard or self.design).effect / self.design.n)

    def p_above(self, null: float) -> float:
        """One-sided p of H0: the true mean is `null` or less."""
        if null < self.low:
            return 0.0
        if null >= self.mean:
            mirrored = self.flipped()
            return 1 - upper_tail(mirrored.score(-null), mirrored.design.df) if null < self.high else 1.0
        return upper_tail(self.score(null, slack=self.slack), self.design.df)

    def p_below(self, null: float) -> float:
        """One-sided p of H0: the true mean is `null` or more."""
        by_score = self.flipped().p_above(-null)
        return by_score if self.robust is None else max(by_score, self.robust.p_below(null))

    def p_harmless(self, margin: float) -> float:
        """One-sided p of H0: a loss of `margin` or more (> 0), spread over the values or as whole clusters."""
        spread = self.p_above(-margin)
        return spread if self.lost is None else max(spread, self.lost.p(margin))

    def harmless_bound(self, confidence: float) -> float:
        """The largest difference that is below every loss that `p_harmless` does not rule out."""
        spread = self.lower_bound(confidence)
        return spread if self.lost is None else min(spread, -self.lost.margin(confidence))

    def lower_bound(self, confidence: float) -> float:
        """One-sided lower bound of the mean: the smallest hypothesis that is not refused."""
        return self._lowest(confidence, self.slack)

    def _lowest(self, confidence: float, slack: float) -> float:
        limit = quantile(confidence, self.design.df)
        outermost = self.low + _NEAR * (self.high - self.low)
        if self.mean <= outermost or self.score(outermost, slack=slack) <= limit:
            return self.low
        return float(
            root(lambda null: min(self.score(null, slack=slack), 1e6) - limit, outermost, self.mean, xtol=1e-10)
        )

    def upper_bound(self, confidence: float) -> float:
        """One-sided upper bound of the mean."""
        return self._highest(confidence, self.slack_above)

    def _highest(self, confidence: float, slack: float) -> float:
        by_score = -self.flipped()._lowest(confidence, slack)
        return by_score if self.robust is None else max(by_score, min(self.high, self.robust.upper_bound(confidence)))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval of the mean (of guarded values: without the slack, so that without clusters it is the
        published interval).
        """
        side = 0.5 + confidence / 2
        return self._lowest(side, 0.0), self._highest(side, 0.0)

    def _variance_under(self, null: float) -> float:
        """Variance of the likeliest distribution with mean `null` ≤ mean: values are weighted 1 / (1 + tilt · (value −
        null)).
        """
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
        """The tilt that moves the mean to the hypothesis, or `most`, at which the low end of the range begins to take
        mass.
        """

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
    little_to_gain: bool = False,
) -> Bounded:
    """Gather `values`, all within [`low`, `high`], for intervals and tests of their mean.

    `guarded`: they are differences system − baseline, and a claim that the system loses no more than something, or
    more, may be made of them. `little_to_gain`: the baseline scores so high that no cluster can gain much, so that the
    upper side of clustered values goes by `cluster_robust`.
    """
    array = np.asarray(values, dtype=float)
    if (
        array.ndim != 1
        or not len(array)
        or not np.isfinite(array).all()
        or array.min() < low - _NEAR
        or array.max() > high + _NEAR
    ):
        raise ValueError(f"expected at least one value, all within [{low}, {high}]")
    points, counts = np.unique(array, return_counts=True)
    codes = clusters if isinstance(clusters, np.ndarray) else codes_of(clusters, len(array))
    telling = array != points[int(counts.argmax())]
    plain = Bounded(points, counts / len(array), float(array.mean()), low, high, design(array, codes, telling))
    if not guarded:
        return plain
    shared = 1 < plain.design.clusters < plain.design.n
    return replace(
        plain,
        guard=design(array, codes, array < 0, guarded=True),
        lost=_lost_clusters(array, codes, low / 2) if shared and plain.design.weighted_size >= SEVERAL else None,
        robust=cluster_robust(array, codes) if shared and little_to_gain else None,
        slack=SLACK,
        slack_above=SLACK_OF_A_LOSS,
    )


def _lost_clusters(values: NDArray[Any], codes: NDArray[Any], half: float) -> LostClusters:
    """Clusters in which two values or more, and half of all, are `half` (< 0) or lower."""
    fallen, sizes = np.bincount(codes, values <= half + _NEAR), np.bincount(codes)
    return LostClusters(int(((fallen >= 2) & (2 * fallen >= sizes)).sum()), len(sizes))


def median_interval(
    values: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float] | None:
    """Interval of the median; see `quantile_interval`."""
    return quantile_interval(values, 0.5, clusters, confidence)


def quantile_interval(
    values: Sequence[float] | NDArray[Any],
    share: float,
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float] | None:
    """Interval of the value below which `share` of all values lie (Woodruff 1952: the interval of that share, read off
    the sorted values).

    `None` below 6 clusters, and where the interval would reach beyond the largest or smallest value seen: the 95th
    percentile of 20 values has no upper limit.
    """
    array = np.asarray(values, dtype=float)
    below = (array <= np.quantile(array, share)).astype(float)
    design = bounded(below, clusters, low=0.0, high=1.0).design
    if design.clusters < MIN_CLUSTERS:
        return None
    half = quantile(0.5 + confidence / 2, design.df) * math.sqrt(share * (1 - share) * design.effect / design.n)
    if share != 0.5 and not (share - half > 0 and share + half < 1):
        return None
    low, high = np.quantile(array, [max(0.0, share - half), min(1.0, share + half)])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number between two bounds; `confidence` is two-sided."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


def wilson(k: float, n: float, confidence: float = 0.95, *, df: float = math.inf) -> Interval:
    """Wilson's score interval of k successes in n; for clustered values give effective counts (k/n kept) and `df`."""
    if not n > 0 or not 0 <= k <= n:
        raise ValueError(f"{k} successes of {n} is not a share; expected 0 ≤ k ≤ n and n > 0")
    z = quantile(0.5 + confidence / 2, df)
    share, shrink = k / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return Interval(
        share, 0.0 if k == 0 else max(0.0, middle - half), 1.0 if k == n else min(1.0, middle + half), confidence
    )


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's test of b against c discordant pairs: exact binomial below 25, else χ² with continuity correction."""

    p: float
    exact: bool
    discordant: int


def mcnemar(b: int, c: int) -> McNemar:
    """Is one direction of change more frequent than the other? Two-sided p; 1.0 without a discordant pair."""
    if min(b, c) < 0:
        raise ValueError(f"discordant pairs cannot be negative: b={b}, c={c}")
    total = b + c
    if total == 0:
        return McNemar(1.0, True, 0)
    if total < 25:
        return McNemar(
            min(1.0, 2 * sum(math.comb(total, fewer) for fewer in range(min(b, c) + 1)) / 2**total), True, total
        )
    return McNemar(chi_square_tail((abs(b - c) - 1) ** 2 / total, 1), False, total)


def tango_score(b: float, c: float, n: float, difference: float) -> float:
    """Tango's score statistic (Stat. Med. 1998) of H0: P(only first right) − P(only second right) = `difference`.

    `b` pairs only the first got right, `c` only the second, of `n`. The variance is the one under H0, so that it is not
    0 when nothing differs.
    """
    if min(b, c) < 0 or b + c > n * (1 + 1e-9) or n <= 0:
        raise ValueError(f"b={b} and c={c} are not discordant pairs of n={n}")
    two_a = 4 * n
    mid = -b - c + (2 * n - b + c) * difference
    last = -c * difference * (1 - difference)
    lost = (math.sqrt(max(0.0, mid * mid - 2 * two_a * last)) - mid) / two_a
    variance = n * (2 * lost + difference * (1 - difference))
    excess = b - c - n * difference
    if variance <= 1e-12 * n:
        return 0.0 if abs(excess) < 1e-9 * n else math.copysign(math.inf, excess)
    return excess / math.sqrt(variance)


def tango_test(b: float, c: float, n: float, difference: float, *, effect: float = 1.0, df: float = math.inf) -> float:
    """One-sided p of H0: true difference ≤ `difference` (small p: the first is better than that).

    For the other side swap `b` and `c` and the sign. `effect`: design effect of the clusters.
    """
    return upper_tail(tango_score(b, c, n, difference) / math.sqrt(effect), df)


def tango(
    b: float, c: float, n: float, confidence: float = 0.95, *, effect: float = 1.0, df: float = math.inf
) -> Interval:
    """Tango's score interval of the paired difference (b − c) / n; never of width 0.

    All differences that the score test does not refuse.
    """
    limit = quantile(0.5 + confidence / 2, df) * math.sqrt(effect)
    value = (b - c) / n
    return Interval(value, _edge(b, c, n, value, -1.0, limit), -_edge(c, b, n, -value, -1.0, limit), confidence)


def _edge(b: float, c: float, n: float, inside: float, outside: float, limit: float) -> float:
    """The point between a difference that is accepted and the end of the scale where the score passes `limit`."""
    if tango_score(b, c, n, outside + 1e-12) <= limit:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        if tango_score(b, c, n, middle) <= limit:
            inside = middle
        else:
            outside = middle
    return outside


@dataclass(slots=True)
class Scored:
    """One score of every question of a system, trials averaged; the haystack is the unit that is drawn."""

    sums: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    clusters: dict[Hashable, Hashable] = field(default_factory=dict)
    kinds: dict[Hashable, str] = field(default_factory=dict)

    def add(self, row: EvalRow, value: float) -> None:
        """Take in the value of one row."""
        key = (row.dataset, str(row.example_id))
        total, n = self.sums.get(key, (0.0, 0))
        self.sums[key] = total + value, n + 1
        label = row.cluster if row.cluster is not None else row.group
        self.clusters[key] = (row.dataset, label) if label is not None else key
        self.kinds[key] = qa_type(row)

    @property
    def values(self) -> dict[Hashable, float]:
        """Question → mean over its trials."""
        return {key: total / n for key, (total, n) in self.sums.items()}

    def mean(self, kind: str | None = None) -> Estimate | None:
        """The mean, over questions of one `kind` if given."""
        chosen = {key: value for key, value in self.values.items() if kind is None or self.kinds[key] == kind}
        return estimate(list(chosen.values()), [self.clusters[key] for key in chosen]) if chosen else None

    def against(self, other: Scored) -> Estimate | None:
        """Mean paired difference self − other over the questions that both have; `None` without any."""
        mine, theirs = self.values, other.values
        both = [key for key in mine if key in theirs]
        if not both:
            return None
        return estimate([mine[key] - theirs[key] for key in both], [self.clusters[key] for key in both], low=-1.0)


def scored(rows: Iterable[EvalRow], names: Sequence[str]) -> dict[str, Scored]:
    """The named scores of a system's rows; those that no row has are absent."""
    found: dict[str, Scored] = {}
    for row in rows:
        for name in names:
            if (value := score(row, name)) is not None:
                found.setdefault(name, Scored()).add(row, value)
    return found


def estimate(values: Sequence[float], clusters: Sequence[Hashable], *, low: float = 0.0, high: float = 1.0) -> Estimate:
    """Mean of values in [`low`, `high`] with its score interval; without one if there are fewer than 6 clusters or
    values lie outside.
    """
    known = Estimate(math.fsum(values) / len(values), n=len(values), clusters=len(set(clusters)))
    if known.clusters >= MIN_CLUSTERS and min(values) >= low and max(values) <= high:
        known.low, known.high = bounded(values, clusters, low=low, high=high).interval()
        known.method = "score interval" + (", clustered" if known.clusters < known.n else "")
    return known
