"""One compressor at several sizes is a curve: quality against how far the history was folded."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.core.records import Estimate
from context_bench.stats.curves import aurq, bd_rate, fold_at
from context_bench.stats.retained import resampled_interval, sorted_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_FOLD = 8.0  # counted at most, if all curves reach it
SHARE = 0.95  # of full history's quality, for the fold up to which a compressor is as good as harmless
_RESAMPLES = 2_000  # each one is a curve of its own


@dataclass(frozen=True, slots=True)
class Sized:
    """A system at one size: scores, and tokens before and after, of the same probes in the same order for all sizes of all curves."""

    system: str
    scores: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """`fold` = Σ before / Σ after (1 = nothing taken away), `keep` = 1 / fold."""

    system: str
    fold: float
    keep: float
    quality: float


@dataclass(frozen=True, slots=True)
class RateCurve:
    """`aurq`: area under quality over log2(fold) from 1 to `up_to`, relative to full history's quality all the way (1 = no loss).
    `fold_at_95`: largest fold before which the curve never falls below 95 % of it. `reached`: it fell below within what was measured.
    """

    name: str
    points: list[CurvePoint]
    up_to: float
    aurq: Estimate | None
    fold_at_95: Estimate | None
    reached: bool
    why: str = ""


def family_of(name: str) -> str:
    """What a system is called without its size: `bm25:k1=2` of `bm25:keep=0.1,k1=2`. Systems of one family make one curve."""
    base, _, options = name.partition(":")
    if not options or "=" not in options:
        return name
    kept = [each for each in options.split(",") if each.partition("=")[0].strip() not in ("keep", "budget", "tokens", "max_tokens", "n")]
    return ":".join([base, *([",".join(kept)] if kept else [])])


def rate_curves(
    families: Mapping[str, Sequence[Sized]], full: Sequence[float], clusters: Sequence[Hashable], *, seed: int = 0
) -> list[RateCurve]:
    """The curves of families with two sizes or more; each begins with full history at fold 1. Areas go up to the fold that all reach."""
    several = {name: sizes for name, sizes in families.items() if len(sizes) > 1}
    if not several or not len(full):
        return []
    codes = sorted_codes(clusters, len(full))
    up_to = min(LARGEST_FOLD, *(max(_fold(size) for size in sizes) for sizes in several.values()))
    return [_curve(name, sizes, full, codes, up_to, seed) for name, sizes in several.items()]


def bd_rates(families: Mapping[str, Sequence[Sized]]) -> dict[tuple[str, str], float]:
    """(one, other) → how many percent more or fewer tokens the other needs at equal quality; of families with four sizes or more whose
    qualities overlap.
    """
    found = {}
    wide = [(name, sizes) for name, sizes in families.items() if len(sizes) >= 4]
    for at, (one, first) in enumerate(wide):
        for other, second in wide[at + 1 :]:
            try:
                found[one, other] = bd_rate(*_rated(first), *_rated(second))
            except ValueError:
                continue
    return found


def _rated(sizes: Sequence[Sized]) -> tuple[list[float], list[float]]:
    return [math.fsum(size.after) for size in sizes], [math.fsum(size.scores) / len(size.scores) for size in sizes]


def _fold(size: Sized) -> float:
    after = math.fsum(size.after)
    return math.fsum(size.before) / after if after else math.inf


def _curve(name: str, sizes: Sequence[Sized], full: Sequence[float], codes: NDArray[Any], up_to: float, seed: int) -> RateCurve:
    import numpy as np

    from context_bench.stats.bootstrap import cluster_sums

    columns = [np.asarray(each, dtype=float) for size in sizes for each in (size.scores, size.before, size.after)]
    groups = cluster_sums(codes, np.asarray(full, dtype=float), np.ones(len(full)), *columns)
    totals = groups.sum(axis=0)
    drawn = [CurvePoint(size.system, _fold(size), 1 / _fold(size), math.fsum(size.scores) / len(size.scores)) for size in sizes]
    points = sorted(drawn, key=lambda point: point.fold)
    area, edge = _measures(totals, up_to)
    if math.isnan(area):
        return RateCurve(name, points, up_to, None, None, False, "no curve: the sizes do not differ, or full history scores 0")
    known = []
    for at, value in enumerate((area, edge)):

        def measured(drawn: NDArray[Any], at: int = at) -> NDArray[Any]:
            return np.array([_measures(one, up_to)[at] for one in drawn])

        low, high = resampled_interval(groups, measured, resamples=_RESAMPLES, seed=seed) or (None, None)
        method = "" if low is None else "cluster bootstrap"
        known.append(Estimate(float(value), low, high, n=len(full), clusters=len(groups), method=method))
    base = float(totals[0] / totals[1])
    return RateCurve(name, points, up_to, known[0], known[1], any(point.quality < SHARE * base for point in points))


def _measures(sums: NDArray[Any], up_to: float) -> tuple[float, float]:
    """Area and fold at 95 % of one set of sums: full's scores, probes, then scores, before, after of each size. NaN where undefined."""
    base = sums[0] / sums[1]
    found = {1.0: base}
    for at in range(2, len(sums), 3):
        score, before, after = sums[at : at + 3]
        if after > 0 and before > after:
            found[before / after] = score / sums[1]
    folds = sorted(found)
    if len(folds) < 2 or base <= 0:
        return math.nan, math.nan
    qualities = [found[fold] for fold in folds]
    reach = min(up_to, folds[-1])
    return aurq(folds, qualities, base, up_to=reach), fold_at(SHARE, folds, qualities, base) or 1.0
