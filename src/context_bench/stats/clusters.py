"""Clusters: units that were drawn together (questions on one document) and so carry less news than their number.

The intra-cluster correlation ρ of a rare event cannot be read off the data that happen to be there: with no failure seen, or with all
failures in one cluster, the estimate is 0 or noise. Taken at face value it lets a system that loses whole documents pass as harmless in up
to 90 % of runs (`benchmarks/coverage.py`). So ρ is drawn towards `RHO_PRIOR` while few clusters tell anything, and the prior fades
with the square of the number of clusters that do.

Where "no loss" is to be claimed, only clusters with a loss tell, and what they tell can only raise ρ: changes for better and worse that
come singly, as noise does, say nothing about whole documents that are lost now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

RHO_PRIOR = 0.5
PRIOR_CLUSTERS = 3.0
GUARDED_PRIOR_CLUSTERS = 4.0
SHARE_OF_CARRIERS = 1.5
MIN_CLUSTERS = 6  # below: no interval, no verdict (decision 25)
ROUGH_BELOW = 10


@dataclass(frozen=True, slots=True)
class Design:
    """How n values fall into clusters. `effect`: variance of the mean relative to n independent values; `effective_n` = n / effect.

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
    import numpy as np

    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"{n} values but {len(clusters)} cluster labels")
    known: dict[Any, int] = {}
    return np.fromiter((known.setdefault(label, len(known)) for label in clusters), dtype=np.int64, count=n)


def design(values: NDArray[Any], codes: NDArray[Any], informative: NDArray[Any], *, guarded: bool = False) -> Design:
    """The design of `values` (one-way ANOVA estimate of ρ, drawn towards the prior).

    `informative` marks the values that tell how the event of interest clusters (discordant pairs, the rarer outcome). Where a few
    clusters make nearly all of the spread, only they count as telling. `guarded`: the prior is stronger and can only raise ρ.
    """
    import numpy as np

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
