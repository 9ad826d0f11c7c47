"""Several objectives at once: the Pareto front, its certainty and its coverage, and ranks by two metrics.

All objectives are minimised. Summaries of several metrics are put together here without losing a key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.core.records import Estimate
from context_bench.stats.bootstrap import cluster_sums, resampled_sums
from context_bench.stats.means import codes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")


def pareto_ranks(points: Sequence[Sequence[float]] | NDArray[Any]) -> list[int]:
    """1 + how many points dominate each: no worse in every objective and better in one. Equal points do not dominate
    one another.

    `points` (n × objectives), smaller is better; negate what should be large. Infinite values are allowed, NaN is not.
    """
    array = _points(points)
    if not len(array):
        return []
    return [int(1 + _dominators(array, each).sum()) for each in array]


@dataclass(frozen=True, slots=True)
class Reading:
    """A value with its 95 % interval, if it has one; smaller is better."""

    value: float
    low: float | None = None
    high: float | None = None

    def less(self, other: Reading) -> bool:
        """Smaller, and by more than both intervals leave open: where each value lies in the other's interval the two
        are a tie.
        """
        return self.value < other.value and not (self._holds(other.value) and other._holds(self.value))

    def _holds(self, value: float) -> bool:
        return self.low is not None and self.high is not None and self.low <= value <= self.high


def beats(one: Sequence[Reading], other: Sequence[Reading]) -> bool:
    """True if `one` is worse in no objective and better in some; ties are neither."""
    return not any(b.less(a) for a, b in zip(one, other, strict=True)) and any(
        a.less(b) for a, b in zip(one, other, strict=True)
    )


def pareto_front(points: Sequence[Sequence[float]] | NDArray[Any]) -> list[bool]:
    """Points that no other dominates."""
    return [rank == 1 for rank in pareto_ranks(points)]


def _dominators(array: NDArray[Any], point: NDArray[Any]) -> NDArray[Any]:
    return np.logical_and((array <= point).all(axis=-1), (array < point).any(axis=-1))


def hypervolume(points: Sequence[Sequence[float]] | NDArray[Any], reference: Sequence[float]) -> float:
    """Area (2 objectives) or volume (3) between the front and `reference`, exactly. Points beyond the reference add
    nothing.

    Usual reference for shares such as (tokens kept, 1 − retention): (1, 1).
    """
    corner = np.asarray(reference, dtype=float)
    if corner.shape not in ((2,), (3,)):
        raise ValueError(f"a reference of 2 or 3 numbers is needed, not {corner.shape}")
    array = _points(points)
    if not len(array):
        return 0.0
    if array.shape[1] != len(corner):
        raise ValueError(f"points have {array.shape[1]} objectives, the reference {len(corner)}")
    inside = array[(array < corner).all(axis=1)]
    return _volume(inside, corner) if len(corner) == 3 else _area(inside, corner)


def _area(points: NDArray[Any], corner: NDArray[Any]) -> float:
    """From left to right, each point adds the strip below the lowest point so far."""
    area, lowest = 0.0, float(corner[1])
    for x, y in sorted(map(tuple, points.tolist())):
        if y < lowest:
            area += (float(corner[0]) - x) * (lowest - y)
            lowest = y
    return area


def _volume(points: NDArray[Any], corner: NDArray[Any]) -> float:
    """Slabs along the third objective; in each, the area of all points below it."""
    ordered = points[points[:, 2].argsort(kind="stable")]
    volume = 0.0
    for i in range(len(ordered)):
        top = float(ordered[i + 1, 2] if i + 1 < len(ordered) else corner[2])
        if top > ordered[i, 2]:
            volume += (top - float(ordered[i, 2])) * _area(ordered[: i + 1, :2], corner[:2])
    return volume


@dataclass(frozen=True, slots=True)
class FrontShares:
    """`points` (systems × objectives) as measured, who is on the `front`, and the `share` of resamples in which each
    one is.
    """

    points: list[list[float]]
    front: list[bool]
    share: list[float]
    clusters: int
    resamples: int


def front_shares(
    tops: Sequence[Sequence[Sequence[float]]] | NDArray[Any],
    bottoms: Sequence[Sequence[Sequence[float]]] | NDArray[Any] | None = None,
    clusters: Sequence[Any] | None = None,
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> FrontShares:
    """Share of draws in which each system is on the front when the examples are drawn again, whole clusters at a time
    and the same for all systems.

    `tops`, `bottoms`: (systems × objectives × examples); an objective is Σ top / Σ bottom, without `bottoms` the mean
    of `tops`. So tokens kept = forwarded / sent, loss = −score / 1. A share near 1/2 says that the rank is noise.
    """
    above = np.asarray(tops, dtype=float)
    below = np.ones_like(above) if bottoms is None else np.asarray(bottoms, dtype=float)
    if (
        above.ndim != 3
        or above.shape != below.shape
        or not above.size
        or not (np.isfinite(above) & np.isfinite(below)).all()
    ):
        raise ValueError(
            f"expected finite numbers (systems × objectives × examples), got {above.shape} over {below.shape}"
        )
    systems, objectives, n = above.shape
    codes = codes_of(clusters, n)
    flat = [*above.reshape(-1, n), *below.reshape(-1, n)]
    groups = cluster_sums(codes, *flat)
    width = systems * objectives
    totals = groups.sum(axis=0)
    if (totals[width:] == 0).any():
        raise ValueError("an objective's denominators sum to 0")
    points = (totals[:width] / totals[width:]).reshape(systems, objectives)
    sums = resampled_sums(groups, resamples, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = (sums[:, :width] / sums[:, width:]).reshape(-1, systems, objectives)
    drawn = drawn[np.isfinite(drawn).all(axis=(1, 2))]
    share = [
        float((~_dominators(drawn, drawn[:, system : system + 1]).any(axis=1)).mean()) if len(drawn) else float("nan")
        for system in range(systems)
    ]
    return FrontShares(points.tolist(), pareto_front(points), share, len(groups), len(drawn))


def _points(points: Sequence[Sequence[float]] | NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(points, dtype=float)
    if not array.size:
        return np.empty((0, 2))
    if array.ndim != 2 or np.isnan(array).any():
        raise ValueError("points are rows of equally many numbers, none of them missing")
    return array


def combined(
    metrics: Sequence[Any], numbers: Sequence[Mapping[str, float]], primary: str | None = None
) -> dict[str, float]:
    """The numbers of `metrics`, in their order, as one mapping; keys are named by `key_names`."""
    names = key_names(metrics, numbers, primary)
    return {own[key]: value for own, given in zip(names, numbers, strict=True) for key, value in given.items()}


def key_names(
    metrics: Sequence[Any], numbers: Sequence[Iterable[str]], primary: str | None = None
) -> list[dict[str, str]]:
    """For each metric: its key → how that key is called among the numbers of all.

    Where two metrics on different scores or pass marks give the same key, the one on the score `primary` (else the
    first) keeps it, and the other's carries its settings: `mean_score` of `exact_match` is `mean_exact_match`, a second
    pass mark gives `pass_rate_0.5`. A metric that reads no score replaces what it names.
    """
    owners: dict[str, Any] = {}
    names: list[dict[str, str]] = [{} for _ in metrics]
    first_primary = sorted(
        range(len(metrics)),
        key=lambda i: primary is not None and getattr(metrics[i], "score_field", primary) != primary,
    )
    for i in first_primary:
        for key in numbers[i]:
            names[i][key] = _own_name(key, metrics[i], owners.setdefault(key, metrics[i]))
    return names


def _own_name(key: str, metric: Any, owner: Any) -> str:
    own, held = _settings(metric), _settings(owner)
    if "score_field" not in own or "score_field" not in held:
        return key
    parts = {name: value for name, value in own.items() if name in held and value != held[name]}
    if key == "mean_score" and "score_field" in parts:
        return f"mean_{parts['score_field']}"
    return "_".join([key, *(str(value) for value in parts.values())])


def _settings(metric: Any) -> dict[str, Any]:
    return {name: getattr(metric, name) for name in ("score_field", "threshold") if hasattr(metric, name)}


def rank_systems(
    summary: Mapping[str, Mapping[str, float]],
    quality: str = "mean_score",
    cost: str = "cost_of_pass",
    *,
    missing: bool = True,
    estimates: Mapping[str, Mapping[str, Estimate]] | None = None,
) -> dict[str, int]:
    """System → 1 + number of systems that dominate it (quality no lower, cost no higher, one of them strictly). Equal
    systems share a rank.

    `missing`: a missing quality counts as 0 and a missing cost as infinite; else systems without both are left out.
    With `estimates`, differences that lie within both systems' intervals are none.
    """

    def reading(system: str, name: str, default: float, sign: int) -> Reading:
        value = sign * _or(summary[system].get(name), default)
        known = (estimates or {}).get(system, {}).get(name)
        if known is None or known.low is None or known.high is None:
            return Reading(value)
        return Reading(value, *sorted((sign * known.low, sign * known.high)))

    points = {
        system: (reading(system, quality, 0.0, -1), reading(system, cost, math.inf, 1))
        for system, values in summary.items()
        if missing or (quality in values and cost in values)
    }
    return {system: 1 + sum(beats(other, own) for other in points.values()) for system, own in points.items()}


def _or(value: float | None, default: float) -> float:
    return default if value is None or math.isnan(value) else float(value)
