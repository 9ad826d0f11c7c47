"""Figures of many runs: means over tasks and over everything read, both F1 recipes, with intervals clustered by repository.

* `macro`: the mean of the tasks' figures (what the seed and tables of the paper show); tasks without the figure are counted beside it.
* `micro`: Σ intersection / Σ size (what the original prints at the end), so that long golds weigh more.
* `f1_macro` is the mean of the tasks' F1, `f1_of_means` the harmonic mean of mean coverage and mean precision. Published tables mix both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.stats.bootstrap import cluster_sums, ratio_intervals, resampled_sums
from context_bench.stats.intervals import bounded
from context_bench.stats.means import MIN_CLUSTERS, codes_of
from context_bench.traces.coverage import LEVELS, POLICIES, Level, Score, harmonic

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Mean:
    """A figure over tasks. `n`: tasks that have it; `missing`: those that do not. No interval below 6 repositories."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    missing: int = 0
    clusters: int = 0

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {name: getattr(self, name) for name in ("value", "low", "high", "n", "missing", "clusters")}


@dataclass(frozen=True, slots=True)
class Means:
    """`figures["macro.coverage.line"]` and the like; `errors`: rows without any figures, by reason, which are in none of them."""

    figures: dict[str, Mean]
    rows: int
    errors: dict[str, int]


def means(scores: Sequence[Score], repos: Sequence[str] | None = None, *, confidence: float = 0.95, seed: int = 0) -> Means:
    """The figures of a run over tasks. `repos`: the repository of each score, its cluster; without them every task stands alone."""
    if repos is not None and len(repos) != len(scores):
        raise ValueError(f"{len(repos)} repositories for {len(scores)} scores")
    errors: dict[str, int] = {}
    for one in scores:
        if one.error:
            errors[one.error] = errors.get(one.error, 0) + 1
    kept = [(one, repos[n] if repos is not None else n) for n, one in enumerate(scores) if not one.error]
    rows, clusters = [one for one, _ in kept], [cluster for _, cluster in kept]
    figures: dict[str, Mean] = {}
    for name in LEVELS:
        for label, of in _PER_TASK.items():
            figures[f"macro.{label}.{name}"] = _mean([of(one, name) for one in rows], clusters, confidence)
        levels = [one.final[name] for one in rows]
        figures[f"f1_macro.{name}"] = _mean([level.f1 for level in levels], clusters, confidence)
    by_level = {name: [one.final[name] for one in rows] for name in LEVELS}
    nothing = 1.0 if rows and all(POLICIES[one.policy].upstream for one in rows) else None
    figures |= _ratios(by_level, clusters, confidence, seed, nothing) | _f1s_of_means(by_level, clusters, confidence, seed)
    for label in ("coverage", "precision", "f1"):
        figures[f"macro.{label}.line_nonblank"] = _mean([getattr(one.nonblank, label, None) for one in rows], clusters, confidence)
    for label in ("precision", "recall", "anchored_precision"):
        figures[f"macro.editloc_{label}"] = _mean([(one.editloc or {}).get(label) for one in rows], clusters, confidence)
    return Means(figures, len(scores), errors)


def means_by(
    groups: Sequence[str | None], scores: Sequence[Score], repos: Sequence[str] | None = None, *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Means]:
    """The figures by group, such as the language of each task, sorted; tasks without one are in the group `""`."""
    if len(groups) != len(scores):
        raise ValueError(f"{len(groups)} groups for {len(scores)} scores")
    if repos is not None and len(repos) != len(scores):
        raise ValueError(f"{len(repos)} repositories for {len(scores)} scores")
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group or "", []).append(place)
    return {
        group: means([scores[n] for n in members], None if repos is None else [repos[n] for n in members], confidence=confidence, seed=seed)
        for group, members in sorted(places.items())
    }


_PER_TASK: Mapping[str, Callable[[Score, str], float | None]] = {
    "coverage": lambda one, name: one.final[name].coverage,
    "precision": lambda one, name: one.final[name].precision,
    "auc": lambda one, name: one.auc.get(name),
    "auc_tokens": lambda one, name: (one.auc_tokens or {}).get(name),
    "auc_turns": lambda one, name: (one.auc_turns or {}).get(name),
    "auc_seconds": lambda one, name: (one.auc_seconds or {}).get(name),
    "redundancy": lambda one, name: one.redundancy.get(name),
    "redundancy_excluding_after_edit": lambda one, name: one.redundancy_excluding_after_edit.get(name),
    "usage_drop": lambda one, name: (one.usage_drop or {}).get("seen", {}).get(name),
}


def _mean(values: Sequence[float | None], clusters: Sequence[Any], confidence: float) -> Mean:
    known = [(value, cluster) for value, cluster in zip(values, clusters, strict=True) if value is not None]
    missing = len(values) - len(known)
    if not known:
        return Mean(None, missing=missing)
    numbers, groups = [value for value, _ in known], [cluster for _, cluster in known]
    count = len(set(groups))
    value = sum(numbers) / len(numbers)
    if count < MIN_CLUSTERS:
        return Mean(value, n=len(known), missing=missing, clusters=count)
    low, high = bounded(numbers, groups, low=min(0.0, *numbers), high=max(1.0, *numbers)).interval(confidence)
    return Mean(value, low, high, len(known), missing, count)


def _ratios(
    by_level: Mapping[str, Sequence[Level]], clusters: Sequence[Any], confidence: float, seed: int, nothing: float | None
) -> dict[str, Mean]:
    """Coverage and precision over everything read, at every level, from one draw of the clusters.

    `nothing`: the figure where the sizes add up to nothing. With sizes below zero (the original's reversed ranges) there is no interval.
    """
    out: dict[str, Mean] = {}
    parts: dict[str, tuple[Sequence[Level], str]] = {}
    for name, levels in by_level.items():
        for label, size in (("coverage", "gold_size"), ("precision", "pred_size")):
            if sum(getattr(level, size) for level in levels) > 0:
                parts[f"micro.{label}.{name}"] = levels, size
            else:
                known = 0 if nothing is None else len(levels)
                out[f"micro.{label}.{name}"] = Mean(nothing, n=known, missing=len(levels) - known)
    if not parts:
        return out
    import numpy as np

    codes = codes_of(clusters, len(clusters))
    tops = cluster_sums(codes, *(np.array([float(level.intersection) for level in levels]) for levels, _ in parts.values()))
    bottoms = cluster_sums(codes, *(np.array([float(getattr(level, size)) for level in levels]) for levels, size in parts.values()))
    count = len(tops)
    ends = ratio_intervals(tops, bottoms, confidence, seed=seed) if count >= MIN_CLUSTERS else [None] * len(parts)
    for column, (key, (levels, size)) in enumerate(parts.items()):
        found = ends[column] if bottoms[:, column].min() >= 0 else None
        low, high = (max(0.0, found[0]), min(1.0, found[1])) if found else (None, None)
        n = sum(1 for level in levels if getattr(level, size))
        value = sum(level.intersection for level in levels) / sum(getattr(level, size) for level in levels)
        out[key] = Mean(value, low, high, n, len(levels) - n, count)
    return out


def _f1s_of_means(by_level: Mapping[str, Sequence[Level]], clusters: Sequence[Any], confidence: float, seed: int) -> dict[str, Mean]:
    """The harmonic mean of mean coverage and mean precision, at every level, from one draw of the clusters."""
    out: dict[str, Mean] = {}
    known: dict[str, Sequence[Level]] = {}
    for name, levels in by_level.items():
        covered = [level.coverage for level in levels if level.coverage is not None]
        precise = [level.precision for level in levels if level.precision is not None]
        if not covered or not precise:
            out[f"f1_of_means.{name}"] = Mean(None, missing=len(levels))
            continue
        known[name] = levels
        both = sum(1 for level in levels if level.coverage is not None and level.precision is not None)
        value = harmonic(sum(covered) / len(covered), sum(precise) / len(precise))
        out[f"f1_of_means.{name}"] = Mean(value, n=both, missing=len(levels) - both)
    if not known:
        return out
    import numpy as np

    codes = codes_of(clusters, len(clusters))
    columns = [each for levels in known.values() for each in (*_sums(levels, "coverage"), *_sums(levels, "precision"))]
    sums = cluster_sums(codes, *columns)
    drawn = resampled_sums(sums, seed=seed) if len(sums) >= MIN_CLUSTERS else None
    for place, name in enumerate(known):
        found = out[f"f1_of_means.{name}"]
        low = high = None
        if drawn is not None:
            part = drawn[:, 4 * place : 4 * place + 4]
            part = part[(part[:, 1] > 0) & (part[:, 3] > 0)]
            coverage, precision = part[:, 0] / part[:, 1], part[:, 2] / part[:, 3]
            f1 = 2 * coverage * precision / np.maximum(coverage + precision, 1e-300)
            low, high = (float(end) for end in np.quantile(f1, [(1 - confidence) / 2, (1 + confidence) / 2]))
        out[f"f1_of_means.{name}"] = Mean(found.value, low, high, found.n, found.missing, len(sums))
    return out


def _sums(levels: Sequence[Level], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    values = [getattr(level, name) for level in levels]
    return np.array([value or 0.0 for value in values]), np.array([float(value is not None) for value in values])
