"""Judges: how far raters agree, and a rating weighted by the judge's own probabilities."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING

from context_bench.core.lazy import LazyModule
from context_bench.stats.distributions import quantile, upper_tail
from context_bench.stats.tests import ranks

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")


def alpha_ordinal(ratings: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None) -> float | None:
    """Krippendorff's α for ordered ratings: one list per rater, `None` where a rater did not rate.

    `weights`: how many items each item stands for, where they were drawn with unequal chances (default: 1 each).
    Gives `None` if nothing varies or no two ratings meet.
    """
    rated = [[rating for rating in unit if rating is not None] for unit in zip(*ratings, strict=True)]
    units = [(unit, weight) for unit, weight in zip(rated, weights or [1.0] * len(rated), strict=True) if len(unit) > 1]
    totals: defaultdict[float, float] = defaultdict(float)
    for unit, weight in units:
        for rating in unit:
            totals[rating] += weight
    n = sum(totals.values())
    values = sorted(totals)
    if len(values) < 2:
        return None
    passed, rank = 0.0, {}
    for value in values:
        rank[value] = passed + totals[value] / 2
        passed += totals[value]
    observed = sum(
        weight * (rank[a] - rank[b]) ** 2 / (len(unit) - 1)
        for unit, weight in units
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    )
    expected = sum(totals[a] * totals[b] * (rank[a] - rank[b]) ** 2 for a in values for b in values) / (n - 1)
    return 1 - observed / expected


@dataclass(frozen=True, slots=True)
class WeightedRating:
    """Σ k p(k) / Σ p(k) over the ratings of a scale. `mass` = Σ p(k): below 0.5 the judge mostly said something else.
    `entropy` in bits.
    """

    rating: float
    mass: float
    entropy: float


def weighted_rating(
    token_probabilities: Mapping[str, float], ratings: Sequence[int] = (1, 2, 3, 4, 5)
) -> WeightedRating | None:
    """The probability-weighted rating (G-Eval) from the probabilities of the tokens that could stand in one place.

    `None` if no rating of the scale is among them.
    """
    known = {str(rating) for rating in ratings}
    shares: dict[int, float] = {}
    for token, probability in token_probabilities.items():
        text = token.strip()
        if text in known:
            shares[int(text)] = shares.get(int(text), 0.0) + probability
    mass = sum(shares.values())
    if mass <= 0:
        return None
    rating = sum(k * p for k, p in shares.items()) / mass
    entropy = -sum(p * math.log2(p) for share in shares.values() if (p := share / mass) > 0)
    return WeightedRating(rating, mass, entropy)


def weighted_kappa(
    first: Sequence[float], second: Sequence[float], weights: Sequence[float] | None = None
) -> float | None:
    """Cohen's κ of two raters with quadratic weights: 1 − Σ wᵢⱼ Oᵢⱼ / Σ wᵢⱼ Eᵢⱼ, wᵢⱼ = (i − j)² up to the scale's
    width, which cancels.

    `weights`: how many items each item stands for (default: 1 each). Gives `None` if both gave the same one rating
    throughout.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} ratings of the one rater but {len(second)} of the other")
    stands_for = weights or [1.0] * len(first)

    def mean(values: Iterable[float]) -> float:
        return sum(weight * value for weight, value in zip(stands_for, values, strict=True)) / sum(stands_for)

    if not first:
        return None
    observed = mean((a - b) ** 2 for a, b in zip(first, second, strict=True))
    mean_first, mean_second = mean(first), mean(second)
    spread = mean((a - mean_first) ** 2 for a in first) + mean((b - mean_second) ** 2 for b in second)
    expected = spread + (mean_first - mean_second) ** 2
    return None if expected <= 1e-12 else 1 - observed / expected


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; `None` below 3 pairs or where one of them never varies."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values but {len(second)}")
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(np.corrcoef(ranks(np.asarray(first)), ranks(np.asarray(second)))[0, 1])


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's τ-b: how alike two orders are; `None` where one of them orders nothing."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    above = [np.sign(np.subtract.outer(values, values)) for values in (np.asarray(first), np.asarray(second))]
    return float((above[0] * above[1]).sum() / math.sqrt((above[0] ** 2).sum() * (above[1] ** 2).sum()))


@dataclass(frozen=True, slots=True)
class Corrected:
    """A judge's number after a correction by human labels, and its standard error; `df`: its degrees of freedom,
    `skew`: the standardised third moment of its distribution.
    """

    value: float
    se: float
    df: float = math.inf
    skew: float = 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student's interval; the normal one where `df` is infinite."""
        half = quantile(0.5 + confidence / 2, self.df) * self.se
        return self.value - half, self.value + half

    def p_above(self, reference: float) -> float:
        """One-sided p-value of "the true value is `reference` or less"."""
        return self._p(reference, 1.0)

    def p_below(self, reference: float) -> float:
        """One-sided p-value of "the true value is `reference` or more"."""
        return self._p(reference, -1.0)

    def _p(self, reference: float, side: float) -> float:
        """The larger of Student's p and that of Hall's (1992) transformed statistic: few rare losses among the labels
        make the standard error too small just where no loss is seen.
        """
        off = self.value - reference
        t = off / self.se if self.se > 0 else math.copysign(math.inf, off) if off else 0.0
        hall = t + self.skew / 3 * t**2 + self.skew**2 / 27 * t**3 + self.skew / 6 if math.isfinite(t) else t
        return max(upper_tail(side * t, self.df), upper_tail(side * hall, self.df))


def rogan_gladen(share: float, n: int, sensitivity: float, m1: int, specificity: float, m0: int) -> Corrected | None:
    """A pass rate as a judge sees it → as people would (Rogan and Gladen 1978): (p + q₀ − 1) / (q₀ + q₁ − 1), held
    within 0 and 1.

    `sensitivity` q₁ and `specificity` q₀ were measured on `m1` items that people passed and `m0` that they failed.
    `None` where the judge tells no more than chance, q₀ + q₁ ≤ 1.
    """
    better = sensitivity + specificity - 1
    if better <= 1e-12 or not min(n, m0, m1):
        return None
    value = min(1.0, max(0.0, (share + specificity - 1) / better))
    spread = share * (1 - share) / n
    spread += (1 - value) ** 2 * specificity * (1 - specificity) / m0 + value**2 * sensitivity * (1 - sensitivity) / m1
    return Corrected(value, math.sqrt(spread) / better)


def prediction_powered(
    judged: Sequence[float], judged_sample: Sequence[float], human_sample: Sequence[float]
) -> Corrected | None:
    """A mean rating as a judge gives it → as people would: mean_N f + mean_n (y − f), Var = var(f)/N + var(y − f)/n.

    `judged`: the judge's ratings f of all N items; the samples: the judge's and people's y of the n labelled ones, in
    the same order. `None` below 2 of either.
    """
    off = [human - judge for judge, human in zip(judged_sample, human_sample, strict=True)]
    if len(judged) < 2 or len(off) < 2:
        return None
    return Corrected(fmean(judged) + fmean(off), math.sqrt(variance(judged) / len(judged) + variance(off) / len(off)))


@dataclass(frozen=True, slots=True)
class Label:
    """People's view of one item that a judge rated too. `human`: their rating; `band`, `share`: the stratum that it
    was drawn from and the share of all items that lie in it.
    """

    human: float
    band: Hashable = None
    share: float = 1.0


def labelled_mean(
    judged: Sequence[float],
    labels: Mapping[int, Label],
    bands: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable] | None = None,
    *,
    tuned: bool = False,
) -> Corrected | None:
    """A judge's mean over all items → people's, by labels that were drawn band by band:
    λ·mean_N(f) + Σ_bands share · mean_band(y − λ·f).

    `judged`: the judge's ratings f of all N items, `bands` their strata (default: one); `labels`: place of an item in
    it → what people made of it. λ = 1, or where `tuned` the λ that makes the variance least: prediction-powered
    inference, PPI++ (Angelopoulos et al., 2023, arXiv:2311.01453) with strata (arXiv:2406.04291). The standard error is
    that of the sums of items' influences over `clusters` (default: each item its own); bands with one label take the
    variance pooled over the others. A tuned λ fits the labels that it was made from: its standard error counts one more
    label, as far off as the farthest. `df`: labels less bands. `None` without more labels than bands, or below 2 items.
    """
    n, drawn = len(judged), _by_band(labels)
    df = len(labels) - len(drawn)
    if n < 2 or df < 1:
        return None
    weight = {place: n * label.share / len(drawn[label.band]) for place, label in labels.items()}
    scale = _tuned(judged, labels, drawn, weight) if tuned else 1.0
    off = {place: label.human - scale * judged[place] for place, label in labels.items()}
    means = {band: fmean(off[place] for place in places) for band, places in drawn.items()}
    centre = scale * fmean(judged)
    shift = sum(labels[places[0]].share * means[band] for band, places in drawn.items())
    own = [None] * n if bands is None else bands
    influence = [
        scale * value - centre + means.get(band, shift) - shift for value, band in zip(judged, own, strict=True)
    ]
    pooled = sum((off[place] - means[label.band]) ** 2 for place, label in labels.items()) / df
    lone = 0.0
    for place, label in labels.items():
        size = len(drawn[label.band])
        lone += pooled * weight[place] ** 2 if size == 1 else 0.0
        influence[place] += weight[place] * (off[place] - means[label.band]) * math.sqrt(size / max(1, size - 1))
    # without it a loss of the margin passed in up to 6.9 % where a judge is seldom wrong (`coverage.py judged`)
    if tuned:
        lone += max((weight[place] * (off[place] - means[label.band])) ** 2 for place, label in labels.items())
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for cluster, part in zip(range(n) if clusters is None else clusters, influence, strict=True):
        sums[cluster] += part
    if len(sums) < 2:
        return None
    spread = len(sums) / (len(sums) - 1) * sum(part**2 for part in sums.values()) + lone
    skew = sum(part**3 for part in sums.values()) / spread**1.5 if spread > 0 else 0.0
    return Corrected(centre + shift, math.sqrt(spread) / n, float(df), skew)


def _by_band(labels: Mapping[int, Label]) -> dict[Hashable, list[int]]:
    """The places that were labelled, by band."""
    drawn: dict[Hashable, list[int]] = {}
    for place, label in labels.items():
        drawn.setdefault(label.band, []).append(place)
    return drawn


def _tuned(
    judged: Sequence[float],
    labels: Mapping[int, Label],
    drawn: Mapping[Hashable, Sequence[int]],
    weight: Mapping[int, float],
) -> float:
    """The λ of least variance: Σ w²·cov(y, f) / (Σ w²·var(f) + N·var(f)), the sums within bands over the labels."""
    together = alone = 0.0
    for places in drawn.values():
        if len(places) > 1:
            mean_f, mean_y = fmean(judged[at] for at in places), fmean(labels[at].human for at in places)
            factor = weight[places[0]] ** 2 * len(places) / (len(places) - 1)
            together += factor * sum((labels[at].human - mean_y) * (judged[at] - mean_f) for at in places)
            alone += factor * sum((judged[at] - mean_f) ** 2 for at in places)
    spread = alone + len(judged) * variance(judged)
    return together / spread if spread > 0 else 0.0
