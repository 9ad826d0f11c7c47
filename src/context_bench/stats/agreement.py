"""Judges: how far raters agree, and a rating weighted by the judge's own probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def alpha_ordinal(ratings: Sequence[Sequence[float | None]]) -> float | None:
    """Krippendorff's α for ordered ratings: one list per rater, `None` where a rater did not rate.

    Gives `None` if nothing varies or no two ratings meet.
    """
    units = [[rating for rating in unit if rating is not None] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    totals = Counter(rating for unit in units for rating in unit)
    n = sum(totals.values())
    values = sorted(totals)
    if len(values) < 2:
        return None
    passed, rank = 0.0, {}
    for value in values:
        rank[value] = passed + totals[value] / 2
        passed += totals[value]
    observed = sum(
        (rank[a] - rank[b]) ** 2 / (len(unit) - 1)
        for unit in units
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


def weighted_kappa(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Cohen's κ of two raters with quadratic weights: 1 − Σ wᵢⱼ Oᵢⱼ / Σ wᵢⱼ Eᵢⱼ, wᵢⱼ = (i − j)² up to the scale's
    width, which cancels.

    Gives `None` if both gave the same one rating throughout.
    """
    n = len(first)
    if n != len(second):
        raise ValueError(f"{n} ratings of the one rater but {len(second)} of the other")
    if not n:
        return None
    observed = sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / n
    mean_first, mean_second = sum(first) / n, sum(second) / n
    spread = sum((a - mean_first) ** 2 for a in first) / n + sum((b - mean_second) ** 2 for b in second) / n
    expected = spread + (mean_first - mean_second) ** 2
    return None if expected <= 1e-12 else 1 - observed / expected


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; `None` below 3 pairs or where one of them never varies."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values but {len(second)}")
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's τ-b: how alike two orders are; `None` where one of them orders nothing."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A judge's number after a correction by human labels, and its standard error."""

    value: float
    se: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Normal interval."""
        from statistics import NormalDist

        half = NormalDist().inv_cdf(0.5 + confidence / 2) * self.se
        return self.value - half, self.value + half


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
    from statistics import fmean, variance

    off = [human - judge for judge, human in zip(judged_sample, human_sample, strict=True)]
    if len(judged) < 2 or len(off) < 2:
        return None
    return Corrected(fmean(judged) + fmean(off), math.sqrt(variance(judged) / len(judged) + variance(off) / len(off)))
