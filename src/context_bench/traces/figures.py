"""Figures of scored runs: those of one run, their means over many, and the differences of two sets.

Means over many rows have intervals clustered by repository:

* `macro`: the mean of the tasks' figures (shown by the seed and by tables of the paper); tasks without the figure are
  counted beside it.
* `micro`: Σ intersection / Σ size (printed last by the original), so that long golds weigh more.
* `f1_macro` is the mean of the tasks' F1, `f1_of_means` the harmonic mean of mean coverage and mean precision.
  Published tables mix both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, NotComparable
from context_bench.traces.coverage import LEVELS, POLICIES, Level, Score, harmonic
from context_bench.traces.trace_rows import TraceRow, read_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def figures_of(row: TraceRow) -> dict[str, float]:
    """The figures of a row that are compared; what is unknown is not there."""
    found = row.score
    if found is None or found.error:
        return {}
    out: dict[str, float | None] = {}
    for name in LEVELS:
        level = found.final.get(name)
        if level is not None:
            out[f"coverage.{name}"], out[f"precision.{name}"] = level.coverage, level.precision
            out[f"f1.{name}"] = harmonic(level.coverage, level.precision)
        out[f"auc.{name}"], out[f"redundancy.{name}"] = found.auc.get(name), found.redundancy.get(name)
    out |= {
        "steps": float(found.num_steps),
        "calls": row.statistics.get("steps"),
        "lines_per_step": found.lines_per_step,
    }
    usage = row.usage
    out |= {
        "input_tokens": None if usage is None else usage.input_tokens,
        "output_tokens": None if usage is None else usage.output_tokens,
        "cost": row.cost,
        "seconds": row.seconds,
    }
    return {name: float(value) for name, value in out.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FigureMean:
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
    """`figures["macro.coverage.line"]` and the like; `errors`: rows without any figures, by reason, which are in none
    of them.
    """

    figures: dict[str, FigureMean]
    rows: int
    errors: dict[str, int]


def means(
    scores: Sequence[Score], repos: Sequence[str] | None = None, *, confidence: float = 0.95, seed: int = 0
) -> Means:
    """The figures of a run over tasks. `repos`: the repository of each score, its cluster; without them every task
    stands alone.
    """
    if repos is not None and len(repos) != len(scores):
        raise ValueError(f"{len(repos)} repositories for {len(scores)} scores")
    errors: dict[str, int] = {}
    for one in scores:
        if one.error:
            errors[one.error] = errors.get(one.error, 0) + 1
    kept = [(one, repos[n] if repos is not None else n) for n, one in enumerate(scores) if not one.error]
    rows, clusters = [one for one, _ in kept], [cluster for _, cluster in kept]
    figures: dict[str, FigureMean] = {}
    for name in LEVELS:
        for label, of in _PER_TASK.items():
            figures[f"macro.{label}.{name}"] = _mean([of(one, name) for one in rows], clusters, confidence)
        levels = [one.final[name] for one in rows]
        figures[f"f1_macro.{name}"] = _mean([level.f1 for level in levels], clusters, confidence)
    by_level = {name: [one.final[name] for one in rows] for name in LEVELS}
    nothing = 1.0 if rows and all(POLICIES[one.policy].upstream for one in rows) else None
    figures |= _ratios(by_level, clusters, confidence, seed, nothing) | _f1s_of_means(
        by_level, clusters, confidence, seed
    )
    for label in ("coverage", "precision", "f1"):
        figures[f"macro.{label}.line_nonblank"] = _mean(
            [getattr(one.nonblank, label, None) for one in rows], clusters, confidence
        )
    for label in ("precision", "recall", "anchored_precision"):
        figures[f"macro.editloc_{label}"] = _mean(
            [(one.editloc or {}).get(label) for one in rows], clusters, confidence
        )
    return Means(figures, len(scores), errors)


def means_by(
    groups: Sequence[str | None],
    scores: Sequence[Score],
    repos: Sequence[str] | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
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
        group: means(
            [scores[n] for n in members],
            None if repos is None else [repos[n] for n in members],
            confidence=confidence,
            seed=seed,
        )
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


def _mean(values: Sequence[float | None], clusters: Sequence[Any], confidence: float) -> FigureMean:
    known = [(value, cluster) for value, cluster in zip(values, clusters, strict=True) if value is not None]
    missing = len(values) - len(known)
    if not known:
        return FigureMean(None, missing=missing)
    from context_bench.stats.intervals import bounded
    from context_bench.stats.means import MIN_CLUSTERS

    numbers, groups = [value for value, _ in known], [cluster for _, cluster in known]
    count = len(set(groups))
    value = sum(numbers) / len(numbers)
    if count < MIN_CLUSTERS:
        return FigureMean(value, n=len(known), missing=missing, clusters=count)
    low, high = bounded(numbers, groups, low=min(0.0, *numbers), high=max(1.0, *numbers)).interval(confidence)
    return FigureMean(value, low, high, len(known), missing, count)


def _ratios(
    by_level: Mapping[str, Sequence[Level]],
    clusters: Sequence[Any],
    confidence: float,
    seed: int,
    nothing: float | None,
) -> dict[str, FigureMean]:
    """Coverage and precision over everything read, at every level, from one draw of the clusters.

    `nothing`: the figure where the sizes add up to nothing. With sizes below zero (the original's reversed ranges)
    there is no interval.
    """
    out: dict[str, FigureMean] = {}
    parts: dict[str, tuple[Sequence[Level], str]] = {}
    for name, levels in by_level.items():
        for label, size in (("coverage", "gold_size"), ("precision", "pred_size")):
            if sum(getattr(level, size) for level in levels) > 0:
                parts[f"micro.{label}.{name}"] = levels, size
            else:
                known = 0 if nothing is None else len(levels)
                out[f"micro.{label}.{name}"] = FigureMean(nothing, n=known, missing=len(levels) - known)
    if not parts:
        return out
    import numpy as np

    from context_bench.stats.bootstrap import cluster_sums, ratio_intervals
    from context_bench.stats.means import MIN_CLUSTERS, codes_of

    codes = codes_of(clusters, len(clusters))
    tops = cluster_sums(
        codes, *(np.array([float(level.intersection) for level in levels]) for levels, _ in parts.values())
    )
    bottoms = cluster_sums(
        codes, *(np.array([float(getattr(level, size)) for level in levels]) for levels, size in parts.values())
    )
    count = len(tops)
    ends = ratio_intervals(tops, bottoms, confidence, seed=seed) if count >= MIN_CLUSTERS else [None] * len(parts)
    for column, (key, (levels, size)) in enumerate(parts.items()):
        found = ends[column] if bottoms[:, column].min() >= 0 else None
        low, high = (max(0.0, found[0]), min(1.0, found[1])) if found else (None, None)
        n = sum(1 for level in levels if getattr(level, size))
        value = sum(level.intersection for level in levels) / sum(getattr(level, size) for level in levels)
        out[key] = FigureMean(value, low, high, n, len(levels) - n, count)
    return out


def _f1s_of_means(
    by_level: Mapping[str, Sequence[Level]], clusters: Sequence[Any], confidence: float, seed: int
) -> dict[str, FigureMean]:
    """The harmonic mean of mean coverage and mean precision, at every level, from one draw of the clusters."""
    out: dict[str, FigureMean] = {}
    measured: dict[str, Sequence[Level]] = {}
    for name, levels in by_level.items():
        covered = [level.coverage for level in levels if level.coverage is not None]
        precise = [level.precision for level in levels if level.precision is not None]
        if not covered or not precise:
            out[f"f1_of_means.{name}"] = FigureMean(None, missing=len(levels))
            continue
        measured[name] = levels
        both = sum(1 for level in levels if level.coverage is not None and level.precision is not None)
        value = harmonic(sum(covered) / len(covered), sum(precise) / len(precise))
        out[f"f1_of_means.{name}"] = FigureMean(value, n=both, missing=len(levels) - both)
    if not measured:
        return out
    import numpy as np

    from context_bench.stats.bootstrap import cluster_sums, resampled_sums
    from context_bench.stats.means import MIN_CLUSTERS, codes_of

    codes = codes_of(clusters, len(clusters))
    columns = [
        column for levels in measured.values() for column in (*_sums(levels, "coverage"), *_sums(levels, "precision"))
    ]
    sums = cluster_sums(codes, *columns)
    drawn = resampled_sums(sums, seed=seed) if len(sums) >= MIN_CLUSTERS else None
    for place, name in enumerate(measured):
        found = out[f"f1_of_means.{name}"]
        low = high = None
        if drawn is not None:
            part = drawn[:, 4 * place : 4 * place + 4]
            part = part[(part[:, 1] > 0) & (part[:, 3] > 0)]
            coverage, precision = part[:, 0] / part[:, 1], part[:, 2] / part[:, 3]
            f1 = 2 * coverage * precision / np.maximum(coverage + precision, 1e-300)
            low, high = (float(end) for end in np.quantile(f1, [(1 - confidence) / 2, (1 + confidence) / 2]))
        out[f"f1_of_means.{name}"] = FigureMean(found.value, low, high, found.n, found.missing, len(sums))
    return out


def _sums(levels: Sequence[Level], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    values = [getattr(level, name) for level in levels]
    return np.array([value or 0.0 for value in values]), np.array([float(value is not None) for value in values])


Rows = str | Path | Iterable[TraceRow]


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """B minus A of one figure over the instances that both have it for, with a 95 % interval (`None`: fewer than 6
    repositories, or no difference anywhere). `method`: how the interval was made.
    """

    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    method: str
    n: int
    clusters: int

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class SolvedInBoth:
    """Instances whose patch was judged in both sets. `only_a`, `only_b`: solved by one alone; `p`: McNemar's test of
    these.
    """

    n: int
    both: int
    only_a: list[str]
    only_b: list[str]
    neither: int
    p: float

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass
class TraceComparison:
    """Result of `compare_traces`. `only_a`, `only_b`: scored instances that the other set lacks."""

    a: str
    b: str
    shared: int
    only_a: list[str]
    only_b: list[str]
    figures: dict[str, FigureDifference]
    solved: SolvedInBoth | None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "schema": "context-bench.traces.compare/1",
            **{name: getattr(self, name) for name in ("a", "b", "shared", "only_a", "only_b", "notes")},
            "figures": {name: one.to_json() for name, one in self.figures.items()},
            "solved": None if self.solved is None else self.solved.to_json(),
        }


def compare_traces(
    a: Rows, b: Rows, *, run_a: str | None = None, run_b: str | None = None, seed: int = 0
) -> TraceComparison:
    """Two sets of runs, instance by instance: B minus A.

    `a`, `b`: rows, or files of them (`run_a`, `run_b` choose a set among several). Several runs of an instance count as
    their mean. Intervals: bootstrap over repositories (bias-corrected, accelerated). Solved: McNemar's test over the
    instances judged in both. Raises `NotComparable` where policies or golds differ, or nothing is shared; `BadInput`
    for a set that is not there.
    """
    first, second = _Side(a, run_a), _Side(b, run_b)
    for what, one, other in (("policy", first.policies, second.policies), ("counted", first.counted, second.counted)):
        if one and other and one != other:
            raise NotComparable(
                f"{what} is {_list(one)} in {first.name} and {_list(other)} in {second.name}: score both in the same "
                "way"
            )
    shared = [name for name in first.values if name in second.values]
    if not shared:
        raise NotComparable(f"{first.name} and {second.name} have no scored instance in common")
    moved = [name for name in shared if first.gold[name] != second.gold[name]]
    if moved:
        raise NotComparable(
            f"the gold of {len(moved)} instances is not the same in both, {moved[0]} first: score both against one gold"
        )
    figures = {}
    for figure in dict.fromkeys(key for name in shared for key in first.values[name]):
        if (found := _difference(figure, shared, first, second, seed)) is not None:
            figures[figure] = found
    notes = (
        ["with fewer than 6 repositories there is no interval"]
        if len({first.repos[name] for name in shared}) < 6
        else []
    )
    return TraceComparison(
        first.name,
        second.name,
        len(shared),
        sorted(set(first.values) - set(second.values)),
        sorted(set(second.values) - set(first.values)),
        figures,
        _solved(first, second),
        notes,
    )


class _Side:
    """The figures of one set by instance."""

    def __init__(self, rows: Rows, run: str | None) -> None:
        sums: dict[str, dict[str, list[float]]] = {}
        judged: dict[str, list[float]] = {}
        self.repos: dict[str, str] = {}
        self.gold: dict[str, str] = {}
        self.policies: set[str] = set()
        self.counted: set[str] = set()
        runs: set[str] = set()
        others: set[str] = set()
        for row in _read(rows):
            if run is not None and row.run != run:
                others.add(row.run)
                continue
            runs.add(row.run)
            if row.status != "unknown":
                judged.setdefault(row.instance_id, []).append(float(row.status == "resolved"))
            self.repos.setdefault(row.instance_id, row.repo or row.instance_id)
            if row.score is None or row.score.error:
                continue
            self.policies.add(row.policy)
            self.counted.add(",".join(row.counted))
            self.gold[row.instance_id] = row.gold_sha
            of = sums.setdefault(row.instance_id, {})
            for name, value in figures_of(row).items():
                of.setdefault(name, []).append(value)
        if len(runs) > 1:
            raise NotComparable(
                f"{_list(runs)} are several sets of runs in one file: name one as FILE:SET (in Python run_a, run_b)"
            )
        if run is not None and not runs:
            raise BadInput(f"{rows} has no set {run!r}; it has {_list(others)}" if others else f"{rows} holds no rows")
        self.values = {name: {key: sum(found) / len(found) for key, found in of.items()} for name, of in sums.items()}
        self.judged = {name: sum(found) / len(found) for name, found in judged.items()}
        self.name = next(iter(runs), "") or (str(rows) if isinstance(rows, str | Path) else "traces")


def _read(rows: Rows) -> Iterable[TraceRow]:
    return read_rows(rows, course=False) if isinstance(rows, str | Path) else rows


def _difference(figure: str, shared: list[str], first: _Side, second: _Side, seed: int) -> FigureDifference | None:
    names = [name for name in shared if figure in first.values[name] and figure in second.values[name]]
    if not names:
        return None
    from context_bench.stats.bootstrap import bca_difference

    of: Callable[[_Side], list[float]] = lambda side: [side.values[name][figure] for name in names]  # noqa: E731
    one, other = of(first), of(second)
    found = bca_difference(other, one, [first.repos[name] for name in names], seed=seed)
    return FigureDifference(
        sum(one) / len(one),
        sum(other) / len(other),
        found.value,
        found.low,
        found.high,
        found.method,
        found.n,
        found.clusters,
    )


def _solved(first: _Side, second: _Side) -> SolvedInBoth | None:
    names = [name for name in first.judged if name in second.judged]
    if not names:
        return None
    from context_bench.stats.intervals import mcnemar

    a, b = first.judged, second.judged
    only_a, only_b = [name for name in names if a[name] > b[name]], [name for name in names if b[name] > a[name]]
    same: Mapping[bool, int] = {
        kind: sum(1 for name in names if a[name] == b[name] and (a[name] >= 0.5) is kind) for kind in (True, False)
    }
    return SolvedInBoth(len(names), same[True], only_a, only_b, same[False], mcnemar(len(only_a), len(only_b)).p)


def _list(values: Iterable[str]) -> str:
    return " and ".join(sorted(value or "(none)" for value in values))
