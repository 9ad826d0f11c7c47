"""Is a loss of the margin ruled out? The question for a compressor; "no significant difference" does not answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from context_bench.stats.bounded import Bounded


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """One-sided: `p` of H0 "the system loses `margin` or more"; small = ruled out. `bound`: one-sided lower bound of the difference.

    `p` and `bound` are `None` where nothing can be said: fewer than 6 clusters, or all differences equal and no known range.
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
    """Two one-sided tests: `p` (the larger of the two) of H0 "the two are apart by `margin` or more"; [`low`, `high`] is their interval.

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

    Scores in a known range go by the score bound (Tango's for 0/1 scores), which never has width 0; `score_range=None` by Student's t
    with clusters − 1 degrees of freedom. Unlike a verdict it does not ask whether this data could have shown a loss (`core.verdict`).
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
    import numpy as np

    from context_bench.stats.bounded import bounded
    from context_bench.stats.clusters import MIN_CLUSTERS, codes_of

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
    ps = loss.p_above(-margin), gain.p_above(-margin)
    design = loss.design
    low, high = loss.lower_bound(confidence), -gain.lower_bound(confidence)
    return Equivalence(loss.mean, low, high, *ps, max(ps), margin, design.n, design.clusters, "score bound")


def _by_t(first: NDArray[Any], second: NDArray[Any], clusters: Sequence[Any] | None, margin: float, confidence: float) -> Equivalence:
    from context_bench.stats.means import paired_difference
    from context_bench.stats.students import quantile, upper_tail

    found = paired_difference(first, second, clusters, margin=margin)  # type: ignore[arg-type]
    if found.se is None or found.noninferiority_p is None:
        return Equivalence(found.mean, None, None, None, None, None, margin, found.n, found.clusters, "no spread")
    df = float(found.clusters - 1)
    half = quantile(confidence, df) * found.se
    gain = upper_tail((margin - found.mean) / found.se, df)
    ps = found.noninferiority_p, gain
    return Equivalence(found.mean, found.mean - half, found.mean + half, *ps, max(ps), margin, found.n, found.clusters, "Student's t")
