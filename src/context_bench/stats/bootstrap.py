"""Cluster bootstrap: whole clusters are drawn again, 10,000 times, in chunks, so that memory stays small at any n.

One draw serves every column: it is turned into how often each cluster was drawn, and one matrix product gives the sums
of all columns, so that further columns are nearly free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from context_bench.stats.distributions import quantile, upper_tail
from context_bench.stats.means import MIN_CLUSTERS, codes_of

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

RESAMPLES = 10_000
_CHUNK_CELLS = 100_000
_KEPT_GROUPS, _KEPT_CELLS = 255, 2_550_000  # so few that a byte holds how often one is drawn: 2.5 MB of draws
#: So many clusters or more are gathered into so many blocks first, so that an interval takes no longer for a million
#: rows than for 2,048.
_MANY = _BLOCKS = 2_048
#: Multiplications up to which OpenBLAS does a product in the thread that asks for it, and columns in one product.
_ONE_THREAD, _ACROSS = 2**18, 16


def resampled_sums(columns: NDArray[Any], resamples: int = RESAMPLES, seed: int = 0) -> NDArray[Any]:
    """`columns` (clusters × k) → sums (resamples × k) over G clusters drawn with replacement. Same seed, same draws."""
    import numpy as np

    columns = np.ascontiguousarray(columns, dtype=np.float64)
    groups, width = columns.shape
    sums = np.empty((resamples, width))
    kept = groups <= _KEPT_GROUPS and groups * resamples <= _KEPT_CELLS
    start = 0
    for times in _kept_draws(groups, resamples, seed) if kept else _draws(groups, resamples, seed):
        _product(times.astype(np.float64, copy=False), columns, sums[start : start + len(times)])
        start += len(times)
    return sums


def _product(times: NDArray[Any], columns: NDArray[Any], out: NDArray[Any]) -> None:
    """`times @ columns` into `out`, in pieces of which BLAS gives none to threads: these wait for one another at full
    speed.
    """
    groups, width = columns.shape
    across = min(width, _ACROSS)
    rows = max(1, _ONE_THREAD // max(1, groups * across))
    for row in range(0, len(times), rows):
        for column in range(0, width, across):
            place = slice(row, row + rows), slice(column, column + across)
            out[place] = times[place[0]] @ columns[:, place[1]]


def _draws(groups: int, resamples: int, seed: int) -> Iterator[NDArray[Any]]:
    """Draws of each of `groups`, chunk by chunk of resamples; a chunk is overwritten by the next."""
    import numpy as np

    generator = np.random.Generator(np.random.SFC64(seed % 2**64))
    step = max(1, min(resamples, _CHUNK_CELLS // groups))
    times = np.empty((step, groups))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        for row, places in enumerate(_places(generator, groups, rows)):
            times[row] = np.bincount(places, minlength=groups)
        yield times[:rows]


def _places(generator: Generator, groups: int, rows: int) -> Iterable[NDArray[Any]]:
    """So many places below `groups`, `rows` times. Of blocks, what `integers` gives, from its own bits in a tenth of
    the time.
    """
    import numpy as np

    if groups != _BLOCKS:
        kind = np.uint16 if groups <= 2**16 else np.uint32
        return (generator.integers(0, groups, groups, dtype=kind) for _ in range(rows))
    words = generator.bit_generator.random_raw(rows * _BLOCKS // 4).astype("<u8", copy=False)
    places: NDArray[Any] = words.view(np.uint16) >> np.uint16(17 - _BLOCKS.bit_length())
    return places.reshape(rows, _BLOCKS)


@lru_cache(maxsize=8)
def _kept_draws(groups: int, resamples: int, seed: int) -> list[NDArray[Any]]:
    """The same of few groups, drawn once: a report asks for dozens of intervals over the same examples."""
    import numpy as np

    return [times.astype(np.uint8) for times in _draws(groups, resamples, seed)]


def cluster_sums(codes: NDArray[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    """Sums of each column within each cluster: (clusters × columns)."""
    import numpy as np

    return np.column_stack([np.bincount(codes, column) for column in columns])


def ratio_intervals(
    tops: NDArray[Any], bottoms: NDArray[Any], confidence: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> list[tuple[float, float] | None]:
    """Intervals of Σ top / Σ bottom, column by column, over resampled clusters, with one draw for all columns.

    `tops`, `bottoms`: (clusters × k), one sum per cluster. Percentiles, moved outwards for few clusters as Student's t
    is wider than the normal (Hesterberg's expanded percentiles), and no end nearer than Student's t has it, which a
    skewed ratio of few clusters needs. `None` for a column whose bottom was 0 in so many draws that an end of the
    interval would be infinite. From 2,048 clusters on, what is drawn are blocks of clusters.
    """
    return ratio_intervals_of(zip(tops.T, bottoms.T, strict=True), confidence, resamples=resamples, seed=seed)


def ratio_intervals_of(
    parts: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    confidence: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[tuple[float, float] | None]:
    """`ratio_intervals` of pairs (top, bottom) that are made one after the other: of many clusters only one pair is
    held.
    """
    import numpy as np

    tops, bottoms, nearest, groups, t = [], [], [], 0, math.inf
    for top, bottom in parts:
        if len(top) != groups:
            groups = len(top)
            t = quantile(0.5 + confidence / 2, float(groups - 1)) if groups > 1 else math.inf
        nearest.append(_linearised(top, bottom, t) if bottom.any() else (math.nan, math.nan))
        tops.append(blocked(top, seed))
        bottoms.append(blocked(bottom, seed))
    if not nearest:
        return []
    width = len(nearest)
    sums = resampled_sums(np.column_stack([*tops, *bottoms]), resamples, seed)
    tail = upper_tail(t * math.sqrt(groups / max(1, groups - 1)))
    found: list[tuple[float, float] | None] = []
    for column, (least, most) in enumerate(nearest):
        usable = sums[sums[:, width + column] != 0]
        if len(sums) - len(usable) > tail * len(sums):
            found.append(None)
            continue
        low, high = np.quantile(usable[:, column] / usable[:, width + column], [tail, 1 - tail])
        found.append((min(float(low), least), max(float(high), most)))
    return found


def blocked(sums: NDArray[Any], seed: int) -> NDArray[Any]:
    """Many clusters as 2,048 blocks put together at random: sums over drawn blocks vary, and are skewed, as sums over
    clusters are.
    """
    import numpy as np

    return sums if len(sums) < _MANY else np.bincount(_block_of(len(sums), seed), sums)


@lru_cache(maxsize=1)
def _block_of(groups: int, seed: int) -> NDArray[Any]:
    """The block of each of many clusters; the last answer is kept, since every column of a report asks for it."""
    import numpy as np

    return (np.random.Generator(np.random.SFC64(seed % 2**64)).permutation(groups) % _BLOCKS).astype(np.uint16)


def _linearised(top: NDArray[Any], bottom: NDArray[Any], t: float) -> tuple[float, float]:
    """Σ top / Σ bottom ± t standard errors; not below 0 where neither top nor bottom is."""
    ratio = float(top.sum() / bottom.sum())
    off = top - ratio * bottom
    groups = len(top)
    half = (
        t * math.sqrt(groups / max(1, groups - 1) * float(off @ off)) / abs(float(bottom.sum())) if groups > 1 else 0.0
    )
    lowest = 0.0 if min(top.min(), bottom.min()) >= 0 else -math.inf
    return max(lowest, ratio - half), ratio + half


def ratio_interval(
    top: NDArray[Any], bottom: NDArray[Any], confidence: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """`ratio_intervals` of one column."""
    return ratio_intervals(top[:, None], bottom[:, None], confidence, resamples=resamples, seed=seed)[0]


@dataclass(frozen=True, slots=True)
class BootstrapInterval:
    """A bootstrap interval; its ends are `None` below 6 clusters or without spread. `method`: `BCa`, or `percentile`
    where that fails.
    """

    value: float
    low: float | None
    high: float | None
    method: str
    n: int
    clusters: int


def bca_difference(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | None = None,
    confidence: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BootstrapInterval:
    """Mean paired difference with a bias-corrected and accelerated interval (Efron 1987) over resampled clusters.

    For continuous scores, beside other results. Verdicts do not use it: losses that are rare and large are mostly not
    among the data that it could draw again, so that it calls a loss of the margin harmless far too often
    (`docs/decisions/0003`); see `bounded`.
    """
    import numpy as np

    d = np.asarray(system, dtype=float) - np.asarray(baseline, dtype=float)
    if d.ndim != 1 or not len(d):
        raise ValueError("a difference needs at least one pair of scores")
    groups = cluster_sums(codes_of(clusters, len(d)), d, np.ones(len(d)))
    value = float(d.mean())
    if len(groups) < MIN_CLUSTERS or np.ptp(d) == 0:
        return BootstrapInterval(value, None, None, "", len(d), len(groups))
    sums = resampled_sums(groups, resamples, seed)
    drawn = sums[:, 0] / sums[:, 1]
    left = groups.sum(axis=0) - groups
    tails, method = _bca_tails(value, drawn, left[:, 0] / left[:, 1], confidence)
    low, high = np.quantile(drawn, tails)
    return BootstrapInterval(value, float(low), float(high), method, len(d), len(groups))


def _bca_tails(
    value: float, drawn: NDArray[Any], without_one: NDArray[Any], confidence: float
) -> tuple[list[float], str]:
    """The two shares of the draws to cut off. `without_one`: the estimate with each cluster left out in turn."""
    plain = [0.5 - confidence / 2, 0.5 + confidence / 2]
    below = float((drawn < value).mean() + (drawn <= value).mean()) / 2
    away = without_one.mean() - without_one
    spread = float((away**2).sum()) ** 1.5
    if not 0 < below < 1 or spread == 0:
        return plain, "percentile"
    bias, acceleration = quantile(below), float((away**3).sum()) / (6 * spread)
    shifted = [bias + (bias + quantile(tail)) / (1 - acceleration * (bias + quantile(tail))) for tail in plain]
    return [upper_tail(-each) for each in shifted], "BCa"


@dataclass(frozen=True, slots=True)
class Ratios:
    """Both ways to average ratios over examples or sessions. They rank systems differently where lengths vary, so both
    are given.

    `of_sums` = Σ top / Σ bottom (what the bill says), `mean` = mean of top / bottom (what one session may expect).
    Intervals are 95 % cluster bootstrap (`None` below 6 clusters). `left_out`: bottoms of 0, which have no ratio of
    their own.
    """

    of_sums: float | None
    of_sums_low: float | None
    of_sums_high: float | None
    mean: float | None
    mean_low: float | None
    mean_high: float | None
    n: int
    left_out: int


def ratios(
    top: Sequence[float] | NDArray[Any],
    bottom: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ratios:
    """Ratio of sums and mean of ratios of `top` / `bottom`, example by example (or session by session)."""
    import numpy as np

    above, below = np.asarray(top, dtype=float), np.asarray(bottom, dtype=float)
    if above.shape != below.shape or above.ndim != 1 or not len(above):
        raise ValueError(f"expected two equally long lists of numbers, got {above.shape} and {below.shape}")
    usable = below != 0
    each = np.divide(above, below, out=np.zeros_like(above), where=usable)
    sums = cluster_sums(codes_of(clusters, len(above)), above, each, below, usable.astype(float))
    found: list[tuple[float, float] | None] = [None, None]
    if len(sums) >= MIN_CLUSTERS:
        found = ratio_intervals(sums[:, :2], sums[:, 2:], resamples=resamples, seed=seed)
    whole, single = found[0] or (None, None), found[1] or (None, None)
    return Ratios(
        of_sums=float(above.sum() / below.sum()) if below.sum() else None,
        of_sums_low=whole[0],
        of_sums_high=whole[1],
        mean=float(each[usable].mean()) if usable.any() else None,
        mean_low=single[0],
        mean_high=single[1],
        n=len(above),
        left_out=int((~usable).sum()),
    )
