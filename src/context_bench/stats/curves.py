"""Quality against size: retention, area under the rate–quality curve, fold at 95 %, Bjøntegaard's rate difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Retention:
    """Mean of the system relative to the baseline's, with a paired cluster-bootstrap interval.

    `reliable` is false when the baseline's mean lies within two standard errors of 0, or of the score without any context: a ratio to
    almost nothing says nothing, and where there was nothing to lose all was retained.
    """

    value: float | None
    low: float | None
    high: float | None
    reliable: bool
    n: int
    clusters: int


def retention(
    system: Sequence[float],
    baseline: Sequence[float],
    clusters: Sequence[Any] | None = None,
    *,
    no_context: Sequence[float] | None = None,
    seed: int = 0,
) -> Retention:
    """mean(system) / mean(baseline) on the same examples; interval from 6 clusters on. `no_context`: scores without any context."""
    import numpy as np

    from context_bench.stats.bootstrap import cluster_sums, ratio_interval
    from context_bench.stats.means import MIN_CLUSTERS, codes_of, mean_se

    top, bottom = _pair(system, baseline)
    codes = codes_of(clusters, len(top))
    count = int(codes.max()) + 1 if len(codes) else 0
    base = mean_se(bottom, clusters)
    if not base.mean:
        return Retention(None, None, None, False, len(top), count)
    reliable = base.se is not None and abs(base.mean) > 2 * base.se
    if no_context is not None:
        gained = mean_se(np.subtract(*_pair(baseline, no_context)), clusters)
        reliable = reliable and gained.se is not None and gained.mean > 2 * gained.se
    low = high = None
    if reliable and count >= MIN_CLUSTERS:
        sums = cluster_sums(codes, np.asarray(top), np.asarray(bottom))
        low, high = ratio_interval(sums[:, 0], sums[:, 1], seed=seed) or (None, None)
    return Retention(float(np.mean(top)) / base.mean, low, high, reliable, len(top), count)


def _pair(first: Sequence[float], second: Sequence[float]) -> tuple[Any, Any]:
    import numpy as np

    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(f"expected two equally long lists of scores, got {a.shape} and {b.shape}")
    return a, b


def aurq(fold: Sequence[float], quality: Sequence[float], baseline_quality: float, *, up_to: float | None = None) -> float:
    """Area under quality over log2(fold), relative to keeping the baseline's quality all the way.

    `fold` = tokens before / after, from 1 (uncompressed) upwards; `up_to` = the largest fold to count (default: the largest measured;
    never beyond it).
    """
    xs, ys = _curve(fold, quality)
    end = xs[-1] if up_to is None else math.log2(up_to)
    if not baseline_quality or not xs[0] < end <= xs[-1] + 1e-12:
        raise ValueError(f"no area up to fold {up_to} of a curve from {fold[0]} to {fold[-1]} against a baseline of {baseline_quality}")
    area = 0.0
    for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
        if x0 >= end:
            break
        stop = min(x1, end)
        at_stop = y0 + (y1 - y0) * (stop - x0) / (x1 - x0)
        area += (stop - x0) * (y0 + at_stop) / 2
    return area / ((end - xs[0]) * baseline_quality)


def fold_at(share: float, fold: Sequence[float], quality: Sequence[float], baseline_quality: float) -> float | None:
    """The largest fold up to which the interpolated curve stays at or above `share` of the baseline's quality; `None` if it never is."""
    xs, ys = _curve(fold, quality)
    floor = share * baseline_quality
    if ys[0] < floor:
        return None
    for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
        if y1 < floor:
            return float(2 ** (x0 + (x1 - x0) * (y0 - floor) / (y0 - y1)))
    return float(2 ** xs[-1])


def _curve(fold: Sequence[float], quality: Sequence[float]) -> tuple[list[float], list[float]]:
    if len(fold) != len(quality) or len(fold) < 2 or any(a >= b for a, b in pairwise(fold)) or fold[0] <= 0:
        raise ValueError("a curve needs two or more points with rising, positive folds and one quality each")
    return [math.log2(value) for value in fold], [float(value) for value in quality]


def bd_rate(
    tokens_anchor: Sequence[float], quality_anchor: Sequence[float], tokens_test: Sequence[float], quality_test: Sequence[float]
) -> float:
    """Bjøntegaard's rate difference in percent: how many more (+) or fewer (−) tokens the test needs at equal quality.

    Akima interpolation. At least four points each; the quality ranges must overlap by three quarters of the narrower one.
    """
    import numpy as np
    from scipy.interpolate import Akima1DInterpolator

    sides = []
    for tokens, quality in ((tokens_anchor, quality_anchor), (tokens_test, quality_test)):
        if len(tokens) < 4 or len(set(quality)) < len(quality):
            raise ValueError("each side needs at least four points with distinct qualities")
        order = np.argsort(quality)
        sides.append((np.asarray(quality, dtype=float)[order], np.log10(np.asarray(tokens, dtype=float)[order])))
    low, high = max(side[0][0] for side in sides), min(side[0][-1] for side in sides)
    narrower = min(side[0][-1] - side[0][0] for side in sides)
    if high - low < 0.75 * narrower:
        raise ValueError(f"the quality ranges overlap only from {low:.4g} to {high:.4g}; no rate difference can be given")
    areas = [float(Akima1DInterpolator(*side).integrate(low, high)) for side in sides]
    return float((10 ** ((areas[1] - areas[0]) / (high - low)) - 1) * 100)
