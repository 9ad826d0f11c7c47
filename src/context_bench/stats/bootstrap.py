"""Cluster bootstrap: whole clusters are drawn again, 10,000 times, in chunks, so that memory stays small at any n.

One draw serves every column: it is turned into how often each cluster was drawn, and one matrix product gives the sums
of all columns, so that further columns are nearly free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.stats.distributions import quantile, upper_tail
from context_bench.stats.means import MIN_CLUSTERS, codes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import BitGenerator, Generator
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")

RESAMPLES = 10_000
_CHUNK_CELLS = 100_000
_KEPT_GROUPS, _KEPT_CELLS = 255, 2_550_000  # so few that a byte holds how often one is drawn: 2.5 MB of draws
_TOGETHER = 512  # so few are drawn for many rows at once; of more, drawing row by row is as fast
#: So many clusters or more are gathered into so many blocks first, so that an interval takes no longer for a million
#: rows than for 2,048.
_MANY = _BLOCKS = 2_048
#: Multiplications up to which OpenBLAS does a product in the thread that asks for it, and columns in one product.
_ONE_THREAD, _ACROSS = 2**18, 16


def resampled_sums(columns: NDArray[Any], resamples: int = RESAMPLES, seed: int = 0) -> NDArray[Any]:
    """`columns` (clusters × k) → sums (resamples × k) over G clusters drawn with replacement. Same seed, same draws."""
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
    """Counts of each of `groups` in its draws, chunk by chunk of resamples; a chunk is overwritten by the next."""
    generator, left = np.random.Generator(np.random.SFC64(seed % 2**64)), np.empty(0, np.uint16)
    step = max(1, min(resamples, _CHUNK_CELLS // groups))
    times = np.empty((step, groups))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        if 1 < groups <= _TOGETHER:
            places, left = _places_of_few(generator.bit_generator, groups, rows, left)
            places += np.arange(0, rows * groups, groups)[:, None]
            times[:rows] = np.bincount(places.ravel(), minlength=rows * groups).reshape(rows, groups)
        else:
            for row, drawn in enumerate(_places(generator, groups, rows)):
                times[row] = np.bincount(drawn, minlength=groups)
        yield times[:rows]


def _places(generator: Generator, groups: int, rows: int) -> Iterable[NDArray[Any]]:
    """So many places below `groups`, `rows` times. Of blocks, what `integers` gives, from its own bits in a tenth of
    the time.
    """
    if groups != _BLOCKS:
        kind = np.uint16 if groups <= 2**16 else np.uint32
        return (generator.integers(0, groups, groups, dtype=kind) for _ in range(rows))
    words = generator.bit_generator.random_raw(rows * _BLOCKS // 4).astype("<u8", copy=False)
    places: NDArray[Any] = words.view(np.uint16) >> np.uint16(17 - _BLOCKS.bit_length())
    return places.reshape(rows, _BLOCKS)


def _places_of_few(bits: BitGenerator, groups: int, rows: int, left: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """(rows × groups) places below `groups`: what `integers` gives row by row from the same bits, all rows at once in a
    tenth of the time; and the bits that are left for the next rows.

    It makes a place of 16 bits, begins every row with 32 fresh ones, and passes over numbers by which some places would
    be likelier (D. Lemire, Fast random integer generation in an interval, 2019).
    """
    wanted = rows * (groups + 2)
    while True:
        if len(left) < wanted:
            fresh = bits.random_raw(-(-(wanted - len(left)) // 4)).astype("<u8", copy=False)
            left = np.concatenate([left, fresh.view(np.uint16)])
        scaled = left * np.uint32(groups)
        fair = (scaled & np.uint32(0xFFFF)) >= (2**16 - groups) % groups
        where = np.flatnonzero(fair)
        begins, end, used = np.empty(rows, np.intp), 0, 0
        for row in range(rows):
            begins[row] = end
            end += groups
            if end > len(where):
                break
            used = int(where[end - 1]) + 1
            if used % 2:  # the other half of 32 bits is not used
                end += int(fair[used])
                used += 1
        else:
            chosen = where[begins[:, None] + np.arange(groups)]
            return (scaled[chosen] >> np.uint32(16)).astype(np.intp), left[used:]
        wanted += rows + wanted // 8


@lru_cache(maxsize=8)
def _kept_draws(groups: int, resamples: int, seed: int) -> list[NDArray[Any]]:
    """The same of few groups, drawn once: a report asks for dozens of intervals over the same examples."""
    return [times.astype(np.uint8) for times in _draws(groups, resamples, seed)]


def cluster_sums(codes: NDArray[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    """Sums of each column within each cluster: (clusters × columns)."""
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
    return sums if len(sums) < _MANY else np.bincount(_block_of(len(sums), seed), sums)


@lru_cache(maxsize=1)
def _block_of(groups: int, seed: int) -> NDArray[Any]:
    """The block of each of many clusters; the last answer is kept, since every column of a report asks for it."""
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


def skewed_upper_end(top: NDArray[Any], bottom: NDArray[Any], confidence: float = 0.95) -> float:
    """Upper end of Σ top / Σ bottom for sums with a heavy right tail, such as costs; both by cluster.

    Johnson's t with Hall's cubic transformation (Hall 1992, Journal of the Royal Statistical Society B 54, 221–228) on
    the linearised ratio: where few dear clusters make the sum, dearer ones are among those not seen.
    """
    ratio, groups = float(top.sum() / bottom.sum()), len(top)
    off = top - ratio * bottom
    spread = float(off @ off) / groups
    if groups < 2 or spread <= 0:
        return ratio
    a = float((off**3).mean()) / spread**1.5 / math.sqrt(groups)
    t = -quantile(0.5 + confidence / 2, float(groups - 1))
    moved = 3 / a * (float(np.cbrt(1 + a * (t - a / 6))) - 1) if a > 1e-6 else t
    return ratio - moved * groups * math.sqrt(spread / (groups - 1)) / float(bottom.sum())


def rests_on_few(amounts: NDArray[Any]) -> bool:
    """True where one more dear case may change the mean of these amounts (≥ 0) by more than its interval says.

    Where their logarithms vary with σ², a log-normal mean of n has skewness (e^σ² + 2) √(e^σ² − 1) / √n. From 3 on
    intervals hold it in less than 92 % (`benchmarks/coverage.py costs`); below 50 amounts more than 1 is doubtful.
    """
    paid = amounts[amounts > 0]
    if len(paid) < 2:
        return False
    spread = min(float(np.log(paid).var(ddof=1)), 50.0)
    skewness = (math.exp(spread) + 2) * math.sqrt(math.expm1(spread)) / math.sqrt(len(paid))
    return skewness > (3.0 if len(paid) >= 50 else 1.0)


def ratio_interval(
    top: NDArray[Any], bottom: NDArray[Any], confidence: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """`ratio_intervals` of one column."""
    return ratio_intervals(top[:, None], bottom[:, None], confidence, resamples=resamples, seed=seed)[0]


def bootstrap_mean(
    values: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    confidence: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Cluster-bootstrap interval of a mean without known range: bootstrap-t, never narrower than Student's t.

    `None` below 6 clusters or where all clusters say the same. From 2,048 clusters on, what is drawn are blocks of
    clusters. Not for pass rates and other scores with a known range: see `bounded`.
    """
    array = np.asarray(values, dtype=float)
    codes = clusters if isinstance(clusters, np.ndarray) else codes_of(clusters, len(array))
    sizes = np.bincount(codes).astype(float)
    groups, n, mean = len(sizes), len(array), float(array.mean())
    if groups < MIN_CLUSTERS:
        return None
    off = np.bincount(codes, array - mean)
    se = math.sqrt(groups / (groups - 1)) * math.sqrt(float(off @ off)) / n
    if se <= 1e-12 * max(1.0, abs(mean)):
        return None
    off, sizes = blocked(off, seed), blocked(sizes, seed)
    scale = math.sqrt(len(off) / (len(off) - 1))
    sums = resampled_sums(np.column_stack([off, sizes, off**2, off * sizes, sizes**2]), resamples, seed)
    shift = sums[:, 0] / sums[:, 1]
    spread = np.maximum(sums[:, 2] - 2 * shift * sums[:, 3] + shift**2 * sums[:, 4], 0.0)
    se_again = scale * np.sqrt(spread) / sums[:, 1]
    told = se_again > 1e-3 * se  # a draw of one cluster over and over tells nothing
    tails = np.quantile(shift[told] / se_again[told], [0.5 - confidence / 2, 0.5 + confidence / 2])
    least = quantile(0.5 + confidence / 2, groups - 1.0)
    return mean - max(float(tails[1]), least) * se, mean - min(float(tails[0]), -least) * se


def sorted_codes(clusters: Sequence[Hashable] | None, n: int) -> NDArray[Any]:
    """Sessions as whole numbers in the order of their names, so that no interval depends on the order of the probes."""
    if clusters is None or len(clusters) != n:
        return codes_of(clusters, n)
    numbers = {label: number for number, label in enumerate(sorted(set(clusters), key=str))}
    return np.fromiter((numbers[label] for label in clusters), dtype=np.int64, count=n)


def resampled_interval(
    groups: NDArray[Any],
    statistic: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float] | None:
    """95 % interval of a statistic of sums over sessions: percentiles of its values over redrawn sessions, moved
    outwards for few of them.

    `groups`: (sessions × sums); `statistic`: (resamples × sums) → one value each. `None` below 6 sessions, where the
    statistic is undefined in more draws than the interval leaves out, and where all draws agree.
    """
    count = len(groups)
    if count < MIN_CLUSTERS:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = statistic(resampled_sums(groups, resamples, seed))
    usable = drawn[np.isfinite(drawn)]
    tail = upper_tail(quantile(0.975, count - 1.0) * math.sqrt(count / (count - 1)))
    if len(drawn) - len(usable) > tail * len(drawn) or not len(usable):
        return None
    low, high = np.quantile(usable, [tail, 1 - tail])
    return (float(low), float(high)) if high > low else None


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
