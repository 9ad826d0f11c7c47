"""Means, their standard errors, and paired differences, with clusters.

Clusters are units that were drawn together (questions on one document) and so carry less news than their number.

The intra-cluster correlation ρ of a rare event cannot be read off the data at hand: with no failure seen, or with all
failures in one cluster, the estimate is 0 or noise. Taken at face value it lets a system that loses whole documents
pass as harmless in up to 90 % of runs (`benchmarks/coverage.py`). So ρ is drawn towards `RHO_PRIOR` while few clusters
are informative, and the prior fades with the square of their number.

Where "no loss" is to be claimed, only clusters with a loss are informative, and they can only raise ρ. Changes for
better and worse that come singly, as noise does, say nothing about whole documents that are lost now and then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.stats.distributions import quantile, upper_tail

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

RHO_PRIOR = 0.5
PRIOR_CLUSTERS = 3.0
GUARDED_PRIOR_CLUSTERS = 4.0
SHARE_OF_CARRIERS = 1.5
MIN_CLUSTERS = 6  # below: no interval, no verdict (decision 25)
ROUGH_BELOW = 10


@dataclass(frozen=True, slots=True)
class Design:
    """Clustering of n values. `effect`: variance of the mean relative to n independent values; `effective_n` = n /
    effect.

    `weighted_size` = Σ m² / n: the size of the cluster in which a value drawn at random lies.
    """

    n: int
    clusters: int
    weighted_size: float
    rho: float
    effect: float

    @property
    def effective_n(self) -> float:
        return self.n / self.effect

    @property
    def df(self) -> float:
        """Degrees of freedom: clusters − 1 where values share clusters, else unlimited."""
        return float("inf") if self.clusters == self.n else float(self.clusters - 1)


def codes_of(clusters: Sequence[Any] | NDArray[Any] | None, n: int) -> NDArray[Any]:
    """Clusters as whole numbers 0…G−1 in order of first appearance; `None` = every value stands alone."""
    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"{n} values but {len(clusters)} cluster labels")
    numbers: dict[Any, int] = {}
    return np.fromiter((numbers.setdefault(label, len(numbers)) for label in clusters), dtype=np.int64, count=n)


def design(values: NDArray[Any], codes: NDArray[Any], informative: NDArray[Any], *, guarded: bool = False) -> Design:
    """The design of `values` (one-way ANOVA estimate of ρ, drawn towards the prior).

    `informative` marks the values that tell how the event of interest clusters (discordant pairs, the rarer outcome).
    Where a few clusters make nearly all of the spread, only they count as telling. `guarded`: the prior is stronger and
    can only raise ρ.
    """
    n = len(values)
    counts = np.bincount(codes)
    groups = len(counts)
    weighted = float((counts @ counts) / n)
    if groups == n or groups < 2:
        return Design(n, groups, weighted, 0.0, 1.0 if groups == n else weighted)
    sizes = counts.astype(float)
    sums = np.bincount(codes, values)
    mean = values.mean()
    between = float((sums**2 / sizes).sum() - n * mean**2)
    within = float((values**2).sum() - n * mean**2) - between
    ms_between, ms_within = between / (groups - 1), within / (n - groups)
    typical = (n - weighted) / (groups - 1)
    total = ms_between + (typical - 1) * ms_within
    seen = min(1.0, max(0.0, (ms_between - ms_within) / total)) if total > 1e-15 else RHO_PRIOR
    squares = (sums - mean * sizes) ** 2
    carriers = float(squares.sum() ** 2 / (squares**2).sum()) if squares.any() else 0.0
    telling = min(float((np.bincount(codes, informative) > 0).sum()), SHARE_OF_CARRIERS * carriers)
    prior = prior_weight(telling, GUARDED_PRIOR_CLUSTERS if guarded else PRIOR_CLUSTERS)
    rho = seen + prior * (max(RHO_PRIOR, seen) - seen if guarded else RHO_PRIOR - seen)
    return Design(n, groups, weighted, rho, 1 + (weighted - 1) * rho)


def prior_weight(telling: float, needed: float = PRIOR_CLUSTERS) -> float:
    """Weight of the prior when `telling` clusters carry the event; one half at `needed` clusters."""
    return 1 / (1 + (telling / needed) ** 2)


@dataclass(frozen=True, slots=True)
class MeanSE:
    """A mean and its standard errors; `None` where one value or one cluster leaves nothing to estimate them from.

    `se` is the one to use: clustered, corrected by G / (G − 1) (equals statsmodels' OLS on a constant with
    `cov_type="cluster"`). `se_iid` ignores clusters, `se_uncorrected` leaves the correction out, `se_miller` is the
    form of arXiv:2411.00640.
    """

    mean: float
    se: float | None
    se_iid: float | None
    se_uncorrected: float | None
    se_miller: float | None
    n: int
    clusters: int


def mean_se(values: Sequence[float] | NDArray[Any], clusters: Sequence[Any] | None = None) -> MeanSE:
    """Mean of `values` with plain and clustered standard errors; no clusters given = every value stands alone."""
    array = np.asarray(values, dtype=float)
    n = len(array)
    if not n:
        raise ValueError("a mean needs at least one value")
    codes = codes_of(clusters, n)
    mean = float(array.mean())
    off = array - mean
    sums = np.bincount(codes, off)
    groups = len(sums)
    between = float(sums @ sums)
    if n < 2 or groups < 2:
        return MeanSE(mean, None, None, None, None, n, groups)
    iid = float(off @ off) / (n - 1) / n
    cross = (between - float(off @ off)) / n**2
    return MeanSE(
        mean,
        se=math.sqrt(groups / (groups - 1) * between) / n,
        se_iid=math.sqrt(iid),
        se_uncorrected=math.sqrt(between) / n,
        se_miller=math.sqrt(max(0.0, iid + cross)),
        n=n,
        clusters=groups,
    )


@dataclass(frozen=True, slots=True)
class ClusterRobust:
    """A mean over clusters, its standard error by CR2 and Satterthwaite's degrees of freedom for Student's t."""

    mean: float
    se: float
    df: float

    def p_below(self, null: float) -> float:
        """One-sided p of H0: the true mean is `null` or more."""
        if self.se <= 1e-15:
            return 0.0 if self.mean < null else 1.0
        return upper_tail((null - self.mean) / self.se, self.df)

    def upper_bound(self, confidence: float) -> float:
        """One-sided upper bound of the mean."""
        return self.mean + quantile(confidence, self.df) * self.se


def cluster_robust(values: NDArray[Any], codes: NDArray[Any]) -> ClusterRobust:
    """The mean of `values` by bias-reduced linearisation, which holds for few clusters of unequal size too.

    CR2 of Bell and McCaffrey 2002 with the degrees of freedom of Pustejovsky and Tipton 2018 (arXiv:1601.01981), both
    for a plain mean under a working model without correlation. At least two clusters.
    """
    sizes = np.bincount(codes).astype(float)
    n = float(sizes.sum())
    mean = float(values.mean())
    kept = 1 - sizes / n
    off = np.bincount(codes, values - mean)
    pairs = sizes**2 / kept
    squares = float((sizes**2).sum()) + float(pairs.sum() ** 2 - (pairs**2).sum()) / n**2
    return ClusterRobust(mean, math.sqrt(float((off**2 / kept).sum())) / n, n**2 / squares)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of system − baseline on the same examples, by Student's t (df = clusters − 1).

    Where all differences are equal there is nothing to judge their spread by: `se` is 0 and every bound and p is
    `None`. For scores in a known range use `bounded`, which needs no such retreat.
    """

    mean: float
    se: float | None
    low: float | None
    high: float | None
    p: float | None
    lower_one_sided: float | None
    noninferiority_p: float | None
    tost_p: float | None
    n: int
    clusters: int


def paired_difference(
    system: Sequence[float],
    baseline: Sequence[float],
    clusters: Sequence[Any] | None = None,
    *,
    margin: float | None = None,
    confidence: float = 0.95,
) -> PairedDifference:
    """Compare two systems example by example. `margin` (> 0): the loss that would still be acceptable.

    `p` two-sided against no difference; `noninferiority_p` against a loss of `margin` or more; `tost_p` against being
    apart by `margin` either way.
    """
    d = np.asarray(system, dtype=float) - np.asarray(baseline, dtype=float)
    found = mean_se(d, clusters)
    se = found.se
    if se is None or se <= 1e-15:
        return PairedDifference(found.mean, se, None, None, None, None, None, None, found.n, found.clusters)
    df = float(found.clusters - 1)
    two, one = quantile(0.5 + confidence / 2, df) * se, quantile(confidence, df) * se
    above = below = None
    if margin is not None:
        above = upper_tail((found.mean + margin) / se, df)
        below = upper_tail((margin - found.mean) / se, df)
    return PairedDifference(
        found.mean,
        se,
        low=found.mean - two,
        high=found.mean + two,
        p=2 * upper_tail(abs(found.mean) / se, df),
        lower_one_sided=found.mean - one,
        noninferiority_p=above,
        tost_p=None if above is None or below is None else max(above, below),
        n=found.n,
        clusters=found.clusters,
    )
