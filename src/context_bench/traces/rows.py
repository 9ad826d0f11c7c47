"""One run scored against its gold, as reports need it: the figures, the course of the run, and where in the files it
happened.

```python
row = TraceRow("claude", "django__django-123", score=score, steps=steps, files={"src/a.py": FileMap(120, init=[(10, 20)], read=[(1, 60)])})
TraceRow.from_json(row.to_json()) == row
row.missed                                         # {"src/a.py": []} is left out: only files with gold lines that nobody read
```

`None` stands for what is not known or was not measured, never for 0. Line ranges count from 1, both ends included.

Means over many rows have intervals clustered by repository:

* `macro`: the mean of the tasks' figures (shown by the seed and by tables of the paper); tasks without the figure are
  counted beside it.
* `micro`: Σ intersection / Σ size (printed last by the original), so that long golds weigh more.
* `f1_macro` is the mean of the tasks' F1, `f1_of_means` the harmonic mean of mean coverage and mean precision.
  Published tables mix both.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from context_bench.core.numbers import count
from context_bench.core.records import Usage
from context_bench.core.spans import Ranges, merged, without
from context_bench.core.usage import usage_of
from context_bench.stats.bootstrap import cluster_sums, ratio_intervals, resampled_sums
from context_bench.stats.intervals import bounded
from context_bench.stats.means import MIN_CLUSTERS, codes_of
from context_bench.stats.solving import STATUSES, Status
from context_bench.traces.coverage import LEVELS, POLICIES, Level, Score, harmonic
from context_bench.transcripts.trace import Ranges as EventRanges

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figures = dict[str, float | None]  # by level


@dataclass(slots=True)
class CallView:
    """The effect of one call on one file; the fields are those of `Event`. `path` is `None` if it looked at no file."""

    tool: str
    kind: str
    path: str | None = None
    ranges: EventRanges = None
    provenance: str = "args"
    strength: str = "shown"
    ok: bool = True


@dataclass(slots=True)
class StepView:
    """One tool call of the run. `number`: its place among the steps of the curve, from 1 (`None`: it was no retrieval,
    so no step).

    `coverage`: by level, after it (empty: not scored). `turn`, `t` (seconds since the epoch) and `tokens` (processed
    before) where known.
    """

    step: int
    turn: int | None = None
    t: float | None = None
    tokens: int | None = None
    calls: list[CallView] = field(default_factory=list)
    coverage: Figures = field(default_factory=dict)
    number: int | None = None


@dataclass(slots=True)
class FileMap:
    """One file as lines of the commit the agent started from.

    `lines`: how many it has (`None`: it is not there, or there was no repository). `init`, `add`: gold, the region to
    edit and what had to be known. `edited`: lines that the patch deletes, and those that its insertions follow.
    `final`: in the context the agent named itself. `listed`: its name was shown.
    """

    lines: int | None = None
    init: Ranges = field(default_factory=list)
    add: Ranges = field(default_factory=list)
    read: Ranges = field(default_factory=list)
    listed: bool = False
    edited: Ranges = field(default_factory=list)
    final: Ranges = field(default_factory=list)

    @property
    def gold(self) -> Ranges:
        """Both regions."""
        return merged([*self.init, *self.add])

    @property
    def missed(self) -> Ranges:
        """Gold that was not read."""
        return without(self.gold, self.read)


@dataclass(slots=True)
class TraceRow:
    """One run of one agent on one task. `run`: the label of the set the trace came from.

    `score` is `None` where there is nothing to score it with; `error` says why (`no_gold`, …), or what went wrong.
    `status`: what the harness said of the patch. `attempt`: which run of the set on this instance, from 1. `drift`:
    gold whose text is not at its lines (`file`, `first`, `last`, `moved`). `gold_sha`, `trace_sha`: hashes of the gold
    and of what the trace holds apart from its instance. `counted`: what the figures count beside what was shown.
    `skipped`: records of the log that could not be read, by reason. `key`: of everything the row depends on, so that it
    need not be made twice.
    """

    run: str
    instance_id: str
    repo: str | None = None
    language: str | None = None
    agent: str = ""
    model: str | None = None
    score: Score | None = None
    steps: list[StepView] = field(default_factory=list)
    files: dict[str, FileMap] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)
    status: Status = "unknown"
    error: str | None = None
    drift: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage | None = None
    cost: float | None = None
    seconds: float | None = None
    trace_sha: str = ""
    gold_sha: str = ""
    policy: str = "strict"
    counted: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    commit: str | None = None
    attempt: int = 1
    key: str = ""

    @property
    def missed(self) -> dict[str, Ranges]:
        """Gold lines that nobody read, by file."""
        return {path: missed for path, one in self.files.items() if (missed := one.missed)}

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `score` is the row in the original's shape (`evaluator_result`), empty fields are left out."""
        row: dict[str, Any] = {
            "run": self.run,
            "instance_id": self.instance_id,
            "policy": self.policy,
            "status": self.status,
        }
        for name in _PLAIN:
            if (value := getattr(self, name)) or (name in _NUMBERS and value is not None):
                row[name] = value
        if self.score is not None:
            row["score"] = score_to_json(self.score)
        if self.steps:
            row["steps"] = [_step_to_json(step) for step in self.steps]
        if self.files:
            row["files"] = {path: _map_to_json(one) for path, one in self.files.items()}
        if self.usage is not None:
            row["usage"] = {f.name: value for f in fields(Usage) if (value := getattr(self.usage, f.name)) is not None}
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> TraceRow:
        """The row that `to_json` wrote; `ValueError` says what is not as it should be."""
        if (
            not isinstance(row, Mapping)
            or not isinstance(row.get("run"), str)
            or not isinstance(row.get("instance_id"), str)
        ):
            raise ValueError("not a row of a scored trace: expected an object with `run` and `instance_id`")
        if row.get("status", "unknown") not in STATUSES:
            raise ValueError(f"status is {row['status']!r}, expected one of {', '.join(STATUSES)}")
        try:
            out = cls(
                row["run"],
                row["instance_id"],
                **{name: row[name] for name in (*_PLAIN, "status", "policy") if name in row},
            )
            out.score = None if row.get("score") is None else score_from_json(row["score"])
            out.steps = [_step_from_json(step) for step in row.get("steps") or ()]
            out.files = {str(path): _map_from_json(one) for path, one in (row.get("files") or {}).items()}
            out.usage = usage_of(row.get("usage"))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a row of a scored trace: {error}") from None
        return out


def score_to_json(score: Score) -> dict[str, Any]:
    """The row in the original's shape, with the definitions that were compared."""
    row = score.to_row()
    if score.error:
        row["num_steps"] = score.num_steps
        if score.gold_missing_files:
            row["gold_missing_files"] = list(score.gold_missing_files)
    for name in ("gold_symbols", "pred_symbols"):
        if symbols := getattr(score, name):
            row[name] = [list(symbol) for symbol in symbols]
    return row


def score_from_json(row: Mapping[str, Any]) -> Score:
    """The score of such a row; an evaluator's own rows (`evaluator_result`) are read, too."""
    trajectory = row.get("trajectory") or {}
    out = Score(
        str(row["instance_id"]),
        str(row.get("policy") or "strict"),
        num_steps=count(row.get("num_steps")) or 0,
        final=_levels(row.get("final")),
        regions={str(region): _levels(levels) for region, levels in (row.get("regions") or {}).items()},
        steps=[dict(step["coverage"]) for step in trajectory.get("steps") or ()],
        auc=dict(trajectory.get("auc_coverage") or {}),
        auc_tokens=trajectory.get("auc_coverage_tokens"),
        auc_seconds=trajectory.get("auc_coverage_seconds"),
        num_turns=trajectory.get("num_turns"),
        auc_turns=trajectory.get("auc_coverage_turns"),
        redundancy_turns=trajectory.get("redundancy_turns"),
        nonblank=_levels({"line": row["final_line_nonblank"]})["line"] if row.get("final_line_nonblank") else None,
        redundancy=dict(trajectory.get("redundancy") or {}),
        redundancy_excluding_after_edit=dict(trajectory.get("redundancy_excluding_after_edit") or {}),
        lines_per_step=trajectory.get("lines_per_step"),
        first_gold=dict(trajectory.get("first_gold") or {}),
        usage_drop=row.get("usage_drop"),
        editloc=row.get("editloc"),
        gold_missing_files=list(row.get("gold_missing_files") or ()),
        unresolved=Counter(row.get("unresolved_paths") or {}),
        notes=list(row.get("notes") or ()),
        error=row.get("error"),
    )
    for name in ("gold_symbols", "pred_symbols"):
        setattr(
            out, name, [(str(path), str(kind), int(start), int(end)) for path, kind, start, end in row.get(name) or ()]
        )
    return out


def _levels(levels: Mapping[str, Any] | None) -> dict[str, Level]:
    names = ("coverage", "precision", "intersection", "gold_size", "pred_size")
    return {name: Level(*(levels[name][key] for key in names)) for name in LEVELS if name in levels} if levels else {}


def _step_to_json(step: StepView) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step.step}
    for name in ("number", "turn", "t", "tokens"):
        if (value := getattr(step, name)) is not None:
            row[name] = value
    if step.calls:
        row["calls"] = [_call_to_json(call) for call in step.calls]
    if step.coverage:
        row["coverage"] = step.coverage
    return row


def _step_from_json(row: Mapping[str, Any]) -> StepView:
    plain = {name: row.get(name) for name in ("number", "turn", "t", "tokens")}
    return StepView(
        row["step"],
        calls=[_call_from_json(call) for call in row.get("calls") or ()],
        coverage=row.get("coverage") or {},
        **plain,
    )


def _call_to_json(call: CallView) -> dict[str, Any]:
    row = {name: value for (name, usual), value in zip(_CALL_FIELDS, _CALL_VALUES(call), strict=True) if value != usual}
    if isinstance(call.ranges, tuple):
        row["ranges"] = [list(pair) for pair in call.ranges]
    return row


def _call_from_json(row: Mapping[str, Any]) -> CallView:
    call = CallView(**row)
    if isinstance(call.ranges, list):
        call.ranges = tuple(_pairs(call.ranges))
    return call


def _map_to_json(one: FileMap) -> dict[str, Any]:
    return {
        f.name: value
        for f in fields(FileMap)
        if (value := getattr(one, f.name)) is not None and value != [] and value is not False
    }


def _map_from_json(row: Mapping[str, Any]) -> FileMap:
    ranges = {name: _pairs(row[name]) for name in ("init", "add", "read", "edited", "final") if name in row}
    return FileMap(row.get("lines"), listed=bool(row.get("listed")), **ranges)


def _pairs(rows: Iterable[Any]) -> Ranges:
    return [(int(first), int(last)) for first, last in rows]


_CALL_FIELDS = [(f.name, f.default) for f in fields(CallView)]
_CALL_VALUES = attrgetter(*(name for name, _ in _CALL_FIELDS))
_NUMBERS = ("cost", "seconds")
_PLAIN = (
    *("key", "repo", "commit", "language", "agent", "model", "statistics", "error", "drift", *_NUMBERS),
    *("attempt", "trace_sha", "gold_sha", "counted", "skipped", "notes"),
)


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
    known: dict[str, Sequence[Level]] = {}
    for name, levels in by_level.items():
        covered = [level.coverage for level in levels if level.coverage is not None]
        precise = [level.precision for level in levels if level.precision is not None]
        if not covered or not precise:
            out[f"f1_of_means.{name}"] = FigureMean(None, missing=len(levels))
            continue
        known[name] = levels
        both = sum(1 for level in levels if level.coverage is not None and level.precision is not None)
        value = harmonic(sum(covered) / len(covered), sum(precise) / len(precise))
        out[f"f1_of_means.{name}"] = FigureMean(value, n=both, missing=len(levels) - both)
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
        out[f"f1_of_means.{name}"] = FigureMean(found.value, low, high, found.n, found.missing, len(sums))
    return out


def _sums(levels: Sequence[Level], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    values = [getattr(level, name) for level in levels]
    return np.array([value or 0.0 for value in values]), np.array([float(value is not None) for value in values])
