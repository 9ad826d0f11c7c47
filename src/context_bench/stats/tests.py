"""Tests and sample sizes: equivalence and non-inferiority, rank tests, corrections for many tests, power.

Non-inferiority is the question for a compressor: is a loss of the margin ruled out? "No significant difference" does
not answer it. Rank tests use only the order of differences, as a check beside the mean difference. Corrections adjust
p-values so that the usual threshold keeps its meaning. Power gives the examples needed, and the loss that a given
number can show: normal approximation, `effect` = design effect of clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.stats.distributions import chi_square_tail, quantile, root, upper_tail
from context_bench.stats.intervals import SLACK, Bounded, bounded
from context_bench.stats.means import MIN_CLUSTERS, codes_of, paired_difference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """One-sided: `p` of H0 "the system loses `margin` or more"; small = ruled out. `bound`: one-sided lower bound of
    the difference.

    `p` and `bound` are `None` where nothing can be said: fewer than 6 clusters, or all differences equal and no known
    range.
    """

    difference: float
    bound: float | None
    p: float | None
    margin: float
    n: int
    clusters: int
    method: str


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided tests: `p` (the larger of the two) of H0 "the two are apart by `margin` or more"; [`low`, `high`]
    is their interval.

    Equivalent at 5 % if `p` < 0.05, which is when the 90 % interval lies within ±`margin`.
    """

    difference: float
    low: float | None
    high: float | None
    p_loss: float | None
    p_gain: float | None
    p: float | None
    margin: float
    n: int
    clusters: int
    method: str


def noninferiority(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | None = None,
    *,
    margin: float,
    score_range: tuple[float, float] | None = (0.0, 1.0),
    confidence: float = 0.95,
) -> NonInferiority:
    """Test that the system loses less than `margin` (> 0, in the unit of the scores), paired by example.

    Scores in a known range go by the score bound (Tango's for 0/1 scores), which never has width 0; `score_range=None`
    by Student's t with clusters − 1 degrees of freedom. Unlike a verdict it does not ask whether this data could have
    shown a loss (`core.verdict`).
    """
    both = tost(system, baseline, clusters, margin=margin, score_range=score_range, confidence=confidence)
    return NonInferiority(both.difference, both.low, both.p_loss, margin, both.n, both.clusters, both.method)


def tost(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | None = None,
    *,
    margin: float,
    score_range: tuple[float, float] | None = (0.0, 1.0),
    confidence: float = 0.95,
) -> Equivalence:
    """Test that the two are apart by less than `margin` either way; arguments as for `noninferiority`."""
    first, second = np.asarray(system, dtype=float), np.asarray(baseline, dtype=float)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(f"expected two equally long lists of scores, got {first.shape} and {second.shape}")
    if not margin > 0:
        raise ValueError(f"margin must be above 0, not {margin}")
    d, codes = first - second, codes_of(clusters, len(first))
    groups = int(codes.max()) + 1
    if groups < MIN_CLUSTERS:
        return Equivalence(float(d.mean()), None, None, None, None, None, margin, len(d), groups, "too few clusters")
    if score_range is None:
        return _by_t(first, second, clusters, margin, confidence)
    width = score_range[1] - score_range[0]
    values = np.concatenate([first, second])
    if values.min() < score_range[0] or values.max() > score_range[1]:
        raise ValueError(f"scores outside {score_range}; give their range, or score_range=None where they have none")
    loss = bounded(d, codes, low=-width, high=width, guarded=True)
    gain = bounded(-d, codes, low=-width, high=width, guarded=True)
    return _by_bound(loss, gain, margin, confidence)


def _by_bound(loss: Bounded, gain: Bounded, margin: float, confidence: float) -> Equivalence:
    ps = loss.p_harmless(margin), gain.p_harmless(margin)
    design = loss.design
    low, high = loss.harmless_bound(confidence), -gain.harmless_bound(confidence)
    return Equivalence(loss.mean, low, high, *ps, max(ps), margin, design.n, design.clusters, "score bound")


def _by_t(
    first: NDArray[Any], second: NDArray[Any], clusters: Sequence[Any] | None, margin: float, confidence: float
) -> Equivalence:

    found = paired_difference(first, second, clusters, margin=margin)  # type: ignore[arg-type]
    if found.se is None or found.noninferiority_p is None:
        return Equivalence(found.mean, None, None, None, None, None, margin, found.n, found.clusters, "no spread")
    df = float(found.clusters - 1)
    half = quantile(confidence, df) * found.se
    gain = upper_tail((margin - found.mean) / found.se, df)
    ps = found.noninferiority_p, gain
    return Equivalence(
        found.mean, found.mean - half, found.mean + half, *ps, max(ps), margin, found.n, found.clusters, "Student's t"
    )


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


_EXACT_UP_TO = 100


@dataclass(frozen=True, slots=True)
class Wilcoxon:
    """Wilcoxon's signed-rank test. `effect`: matched-pairs rank-biserial correlation, −1 (system always lower) to 1.

    `pairs` were compared, `ties` of them were equal.
    """

    p: float
    effect: float
    pairs: int
    ties: int


def wilcoxon(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | None = None,
) -> Wilcoxon:
    """Are differences of the system from the baseline symmetric around 0? Two-sided p; 1.0 without a difference.

    Equal pairs take part in the ranking and then drop out (Pratt 1959). Exact (all signs of the ranks as they are, ties
    included) up to 100 differences, else the normal approximation. Pairs of one cluster are averaged first, since the
    test takes every pair for independent. It is no test of the mean, and a large p shows nothing: see `noninferiority`.
    """
    d = np.asarray(system, dtype=float) - np.asarray(baseline, dtype=float)
    if d.ndim != 1 or not len(d) or not np.isfinite(d).all():
        raise ValueError("expected at least one pair of finite scores")
    codes = codes_of(clusters, len(d))
    d = np.bincount(codes, d) / np.bincount(codes)
    ties = int((d == 0).sum())
    if ties == len(d):
        return Wilcoxon(1.0, 0.0, len(d), ties)
    ranked, signs = ranks(abs(d))[d != 0], np.sign(d[d != 0])
    seen = float(abs(ranked @ signs))
    effect = float(ranked @ signs / ranked.sum())
    p = _exact(ranked, seen) if len(ranked) <= _EXACT_UP_TO else _normal(ranked, seen)
    return Wilcoxon(p, effect, len(d), ties)


def _exact(ranks: NDArray[Any], seen: float) -> float:
    """Share of all assignments of signs with a rank sum at least as far from 0; ranks are whole or half, so they are
    doubled.
    """
    doubled = np.rint(2 * ranks).astype(int)
    reach = int(doubled.sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for rank in doubled:
        shares = (np.roll(shares, rank) + np.roll(shares, -rank)) / 2
    sums = np.arange(-reach, reach + 1)
    return min(1.0, float(shares[np.abs(sums) >= round(2 * seen)].sum()))


def _normal(ranks: NDArray[Any], seen: float) -> float:

    return min(1.0, 2 * upper_tail(seen / float((ranks**2).sum()) ** 0.5))


@dataclass(frozen=True, slots=True)
class Pairwise:
    """Two systems of a Friedman test; `p_adjusted` is Holm-corrected over all pairs."""

    first: str
    second: str
    p: float
    p_adjusted: float


@dataclass(frozen=True, slots=True)
class Friedman:
    """Friedman's test that several systems are alike. `mean_ranks`: 1 = lowest score; `pairwise`: Wilcoxon's test of
    each two.
    """

    p: float
    statistic: float
    mean_ranks: dict[str, float]
    pairwise: list[Pairwise]
    n: int


def friedman(scores: Mapping[str, Sequence[float]], clusters: Sequence[Any] | None = None) -> Friedman:
    """Do three or more systems differ on the same examples at all, and which? Scores by system, same examples in the
    same order.
    """
    table = np.asarray(list(scores.values()), dtype=float)
    if table.ndim != 2 or table.shape[0] < 3 or not table.shape[1] or not np.isfinite(table).all():
        raise ValueError("expected finite scores of three or more systems on the same examples")
    codes = codes_of(clusters, table.shape[1])
    table = np.array([np.bincount(codes, row) / np.bincount(codes) for row in table])
    by_example = np.array([ranks(scores_there) for scores_there in table.T]).T
    statistic, p = 0.0, 1.0
    if (table != table[0]).any():
        statistic = _friedman_statistic(by_example)
        p = chi_square_tail(statistic, len(table) - 1)
    names = list(scores)
    tests = [(a, b, wilcoxon(table[a], table[b]).p) for a, b in combinations(range(len(names)), 2)]
    adjusted = holm([p_pair for _, _, p_pair in tests])
    pairwise = [
        Pairwise(names[a], names[b], p_pair, held) for (a, b, p_pair), held in zip(tests, adjusted, strict=True)
    ]
    return Friedman(
        p,
        statistic,
        {name: float(rank) for name, rank in zip(names, by_example.mean(axis=1), strict=True)},
        pairwise,
        table.shape[1],
    )


def _friedman_statistic(ranked: NDArray[Any]) -> float:
    """Friedman's χ² of ranks by system and example, corrected for ties: the spread of the systems' rank sums over that
    which the ranks of an example have (Conover 1999, 5.8).
    """
    systems, examples = ranked.shape
    middle = (systems + 1) / 2
    between = ((ranked.sum(axis=1) - examples * middle) ** 2).sum()
    within = ((ranked - middle) ** 2).sum()
    return float((systems - 1) * between / within)


def ranks(values: NDArray[Any]) -> NDArray[Any]:
    """Ranks from 1 of a vector's values, equal ones at their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: NDArray[Any] = (np.cumsum(counts) - (counts - 1) / 2)[places.reshape(-1)]
    return means


def unequal_shares(counts: Sequence[tuple[int, int]]) -> float:
    """Do groups differ in their share of one of two kinds? The p of Pearson's χ² for the (kind, other) counts of each
    group, with Yates' correction for two groups; 1.0 where one kind never occurs.
    """
    table = np.asarray(counts, dtype=float)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    if not expected.all():
        return 1.0
    away = abs(table - expected)
    if len(table) == 2:
        away = np.maximum(away - 0.5, 0)
    return chi_square_tail(float((away**2 / expected).sum()), len(table) - 1)


def examples(number: float) -> int:
    """Examples of which so many are needed, as a whole number; 2^53 where it is that many or more."""
    return math.ceil(min(number, 2.0**53) - 1e-9)


def _square(number: float) -> float:
    return number * number  # a float beyond all others is infinite, of which `**` makes an error


def n_paired(delta: float, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> int:
    """Examples needed to find a mean paired difference of `delta` (two-sided test), given the variance of the
    differences.
    """
    _positive("delta", abs(delta))
    return examples(effect * (quantile(1 - alpha / 2) + quantile(power)) ** 2 * variance / delta / delta)


def power_paired(n: int, delta: float, variance: float, alpha: float = 0.05, *, effect: float = 1.0) -> float:
    """Chance of finding a mean paired difference of `delta` with `n` examples (two-sided test)."""
    _positive("n", n)
    if variance <= 0:
        return 1.0 if delta else alpha
    shift, z = abs(delta) / math.sqrt(variance * effect / n), quantile(1 - alpha / 2)
    return upper_tail(z - shift) + upper_tail(z + shift)


def mde(n: int, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> float:
    """The smallest mean paired difference that `n` examples find with the given power."""
    _positive("n", n)
    return (quantile(1 - alpha / 2) + quantile(power)) * math.sqrt(variance * effect / n)


def n_mcnemar(discordant: float, difference: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Pairs needed by McNemar's test: `discordant` share of pairs that differ, `difference` of the two pass rates."""
    _positive("difference", abs(difference))
    if not abs(difference) <= discordant <= 1:
        raise ValueError(
            f"a difference of {difference} needs a discordant share between {abs(difference)} and 1, not {discordant}"
        )
    first = quantile(1 - alpha / 2) * math.sqrt(discordant)
    second = quantile(power) * math.sqrt(max(0.0, discordant - difference**2))
    return examples((first + second) ** 2 / difference / difference)


def n_noninferiority(
    margin: float,
    variance: float,
    *,
    true_difference: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
    effect: float = 1.0,
) -> int:
    """Examples needed to show "not worse by `margin`" (one-sided), if the true difference is `true_difference` (>
    −margin).

    The test stands on the variance under "the loss is the margin" (Tango's restricted estimate), the data on
    `variance`, so both count: with the second alone 155 examples are named for 2 points where 1 % of pairs change, and
    decide in 53 % of runs. Never fewer than it takes when no pair at all differs: 140 at a margin of 2 points.
    """
    _positive("margin", margin)
    _positive("margin + true difference", margin + true_difference)
    return examples(effect * _independent_examples(margin, variance, true_difference, alpha, power))


def _independent_examples(margin: float, variance: float, true: float, alpha: float, power: float) -> float:
    """Pairs that stand alone, for `n_noninferiority`; not rounded."""
    distance = margin + true
    spread = quantile(1 - alpha) * math.sqrt(_null_variance(margin, variance, true))
    spread += quantile(power) * math.sqrt(variance)
    return _square((spread + math.sqrt(max(0.0, spread**2 + 4 * distance * SLACK))) / 2 / distance)


def _null_variance(margin: float, variance: float, true: float) -> float:
    """Variance of a paired difference under "the loss is the margin", where it is `variance` about `true` in fact.

    Tango's restricted estimate for pairs of 0/1 scores. Scores that spread wider than those can, and a margin of their
    whole range, take the variance as it is.
    """
    changing = variance + true**2
    if margin >= 1 or changing > 1:
        return variance
    gained, lost = max(0.0, (changing + true) / 2), max(0.0, (changing - true) / 2)
    middle = -gained - lost - (2 - gained + lost) * margin
    root = math.sqrt(max(0.0, middle**2 - 8 * lost * margin * (1 + margin)))
    return max(variance, (root - middle) / 2 - margin * (1 + margin))


def n_without_change(margin: float, alpha: float = 0.05) -> float:
    """Examples from which `margin` is supported when not one pair differs: 140 at 2 points.

    Tango's bound alone says z² (1 − margin) / margin = 133, at which a true loss of 2 points stays unseen in 6.8 % of
    runs. The claim is made from where that is below 6 % (`bounded.SLACK`).
    """
    _positive("margin", margin)
    spread = quantile(1 - alpha) * math.sqrt(max(0.0, margin * (1 - margin)))
    return _square((spread + math.sqrt(spread**2 + 4 * margin * SLACK)) / 2 / margin)


def smallest_margin(n: int, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> float:
    """The smallest margin that `n` examples support with the given power if the two systems are truly equal."""
    _positive("n", n)

    def lacking(margin: float) -> float:
        return effect * _independent_examples(margin, variance, 0.0, alpha, power) - n

    least, farthest = 1e-12, 1.0
    if lacking(least) <= 0:
        return least
    while lacking(farthest) > 0:
        farthest *= 2
    return float(root(lacking, least, farthest, xtol=1e-12))


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """Sources of the variance of a paired difference when each example is answered several times.

    `between`: variance of the examples' true differences (ω²); `system`, `baseline`: variance of one answer around its
    example's mean.
    """

    between: float
    system: float
    baseline: float

    def of_difference(self, system_answers: int = 1, baseline_answers: int = 1) -> float:
        """Variance of one example's difference of means over so many answers: ω² + σ²_A / K_A + σ²_B / K_B. Goes into
        `n_paired`, `mde`.
        """
        _positive("answers per example", min(system_answers, baseline_answers))
        return self.between + self.system / system_answers + self.baseline / baseline_answers


def variance_parts(system: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> VarianceParts:
    """The parts from scores (examples × answers, at least two each): within-example variances, and what is left between
    examples.
    """
    first, second = np.asarray(system, dtype=float), np.asarray(baseline, dtype=float)
    if (
        first.ndim != 2
        or second.ndim != 2
        or len(first) != len(second)
        or len(first) < 2
        or min(first.shape[1], second.shape[1]) < 2
    ):
        raise ValueError(
            f"expected two or more answers to the same two or more examples, got {first.shape} and {second.shape}"
        )
    within = [float(side.var(axis=1, ddof=1).mean()) for side in (first, second)]
    seen = float((first.mean(axis=1) - second.mean(axis=1)).var(ddof=1))
    return VarianceParts(max(0.0, seen - within[0] / first.shape[1] - within[1] / second.shape[1]), *within)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, not {value}")
