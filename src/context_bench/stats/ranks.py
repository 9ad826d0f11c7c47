"""Tests that use only the order of differences: a check beside the mean difference, and several systems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from context_bench.stats.corrections import holm

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    system: Sequence[float] | NDArray[Any], baseline: Sequence[float] | NDArray[Any], clusters: Sequence[Any] | None = None
) -> Wilcoxon:
    """Are differences of the system from the baseline symmetric around 0? Two-sided p; 1.0 without a difference.

    Equal pairs take part in the ranking and then drop out (Pratt 1959). Exact (all signs of the ranks as they are, ties included) up to 100
    differences, else the normal approximation. Pairs of one cluster are averaged first, since the test takes every pair for independent.
    It is no test of the mean, and a large p shows nothing: see `noninferiority`.
    """
    import numpy as np
    from scipy.stats import rankdata

    from context_bench.stats.clusters import codes_of

    d = np.asarray(system, dtype=float) - np.asarray(baseline, dtype=float)
    if d.ndim != 1 or not len(d) or not np.isfinite(d).all():
        raise ValueError("expected at least one pair of finite scores")
    codes = codes_of(clusters, len(d))
    d = np.bincount(codes, d) / np.bincount(codes)
    ties = int((d == 0).sum())
    if ties == len(d):
        return Wilcoxon(1.0, 0.0, len(d), ties)
    ranks, signs = rankdata(abs(d))[d != 0], np.sign(d[d != 0])
    seen = float(abs(ranks @ signs))
    effect = float(ranks @ signs / ranks.sum())
    return Wilcoxon(_exact(ranks, seen) if len(ranks) <= _EXACT_UP_TO else _normal(ranks, seen), effect, len(d), ties)


def _exact(ranks: NDArray[Any], seen: float) -> float:
    """Share of all assignments of signs with a rank sum at least as far from 0; ranks are whole or half, so they are doubled."""
    import numpy as np

    doubled = np.rint(2 * ranks).astype(int)
    reach = int(doubled.sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for rank in doubled:
        shares = (np.roll(shares, rank) + np.roll(shares, -rank)) / 2
    sums = np.arange(-reach, reach + 1)
    return min(1.0, float(shares[np.abs(sums) >= round(2 * seen)].sum()))


def _normal(ranks: NDArray[Any], seen: float) -> float:
    from context_bench.stats.students import upper_tail

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
    """Friedman's test that several systems are alike. `mean_ranks`: 1 = lowest score; `pairwise`: Wilcoxon's test of each two."""

    p: float
    statistic: float
    mean_ranks: dict[str, float]
    pairwise: list[Pairwise]
    n: int


def friedman(scores: Mapping[str, Sequence[float]], clusters: Sequence[Any] | None = None) -> Friedman:
    """Do three or more systems differ on the same examples at all, and which? Scores by system, same examples in the same order."""
    import numpy as np
    from scipy.stats import friedmanchisquare, rankdata

    from context_bench.stats.clusters import codes_of

    table = np.asarray(list(scores.values()), dtype=float)
    if table.ndim != 2 or table.shape[0] < 3 or not table.shape[1] or not np.isfinite(table).all():
        raise ValueError("expected finite scores of three or more systems on the same examples")
    codes = codes_of(clusters, table.shape[1])
    table = np.array([np.bincount(codes, row) / np.bincount(codes) for row in table])
    ranks = rankdata(table, axis=0).mean(axis=1)
    statistic, p = 0.0, 1.0
    if (table != table[0]).any():
        found = friedmanchisquare(*table)
        statistic, p = float(found.statistic), float(found.pvalue)
    names = list(scores)
    tests = [(a, b, wilcoxon(table[a], table[b]).p) for a, b in combinations(range(len(names)), 2)]
    adjusted = holm([p_pair for _, _, p_pair in tests])
    pairwise = [Pairwise(names[a], names[b], p_pair, held) for (a, b, p_pair), held in zip(tests, adjusted, strict=True)]
    return Friedman(p, statistic, {name: float(rank) for name, rank in zip(names, ranks, strict=True)}, pairwise, table.shape[1])
