"""Solve rate, and what goes along with it: were the solved tasks those whose gold was read?

```
rate       = resolved / all tasks of the run      empty patch, error and missing are not resolved (Wilson's interval)
table      = tasks by covered (line coverage ≥ τ) × resolved
terciles   = share resolved among the third of the tasks with the least, middle and most coverage
r          = point-biserial correlation of coverage with resolved (interval: repositories drawn again)
```

All of it is association over tasks that nobody assigned: a task may be both easy to find one's way in and easy to
solve. Nothing here says what reading more would have done. Failures of the machinery (`infra`) say nothing of the
patch: they count in the rate unless excluded, and are never in the table, the terciles, the correlation or the
quadrants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:  # whoever only reads verdicts needs no statistics
    from context_bench.stats.intervals import Interval

Status = Literal["resolved", "unresolved", "error", "unknown"]
STATUSES: tuple[Status, ...] = get_args(Status)
COVERED = 0.5
CAVEAT = "an association over tasks, not an effect of reading: tasks may be both easy to read and easy to solve"


@dataclass(frozen=True, slots=True)
class Case:
    """One task of a run. `coverage`: share of the gold that was read (`None`: not scored). `infra`: the machinery
    failed, not the patch.
    """

    instance_id: str
    status: Status
    coverage: float | None = None
    repo: str | None = None
    infra: bool = False

    @property
    def resolved(self) -> bool:
        """True if the patch solves the task."""
        return self.status == "resolved"


@dataclass(frozen=True, slots=True)
class Tercile:
    """A third of the tasks by coverage, from `low` to `high`; equal coverages lie in one third, so thirds may differ in
    size.
    """

    low: float
    high: float
    n: int
    resolved: int
    rate: Interval


@dataclass(frozen=True, slots=True)
class Correlation:
    """Point-biserial correlation; no interval below 6 repositories, or where too many draws have no spread."""

    value: float
    low: float | None
    high: float | None
    n: int
    clusters: int


@dataclass(slots=True)
class Solving:
    """The solve rate of a run and what it goes along with. `rate` is `None` where no verdict is known at all.

    `n`: the denominator. `clustered`: the rate's interval with repositories as clusters (`None` below 6). `table`:
    counts of `covered_resolved`, `covered_unresolved`, `uncovered_resolved`, `uncovered_unresolved`; tasks that are in
    none of it are in `left_out`, by reason. `read_failed`: covered and not solved, most covered first; `solved_unread`:
    solved and not covered, least covered first.
    """

    n: int
    counts: dict[str, int]
    excluded_infra: int
    threshold: float
    rate: Interval | None = None
    clustered: Interval | None = None
    table: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    terciles: list[Tercile] = field(default_factory=list)
    correlation: Correlation | None = None
    read_failed: list[str] = field(default_factory=list)
    solved_unread: list[str] = field(default_factory=list)
    caveat: str = CAVEAT

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def solving(
    cases: Sequence[Case],
    *,
    threshold: float = COVERED,
    exclude_infra: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> Solving:
    """Solve rate and its companions. `threshold`: the coverage from which on a task counts as covered.

    A task without a verdict is not resolved as soon as any task has one: a harness that names some tasks and not this
    one did not see a patch. `exclude_infra` takes failures of the machinery out of the denominator.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, expected a coverage from 0 to 1")
    counted = [one for one in cases if not (exclude_infra and one.infra and not one.resolved)]
    tally = Counter(one.status for one in cases)
    counts = {name: tally[name] for name in ("resolved", "unresolved", "error", "unknown")}
    counts["infra"] = sum(one.infra for one in cases)
    out = Solving(len(counted), counts, len(cases) - len(counted), threshold)
    if any(one.status != "unknown" for one in counted):
        from context_bench.stats.intervals import wilson

        solved = sum(one.resolved for one in counted)
        out.rate = wilson(solved, len(counted), confidence)
        out.clustered = _clustered(counted, confidence)
    _companions(out, cases, confidence, seed)
    return out


def _companions(out: Solving, cases: Sequence[Case], confidence: float, seed: int) -> None:
    left = Counter(reason for one in cases if (reason := _left_out(one)) is not None)
    out.left_out = dict(sorted(left.items()))
    joint = [(one, one.coverage) for one in cases if _left_out(one) is None and one.coverage is not None]
    names = ("uncovered_unresolved", "uncovered_resolved", "covered_unresolved", "covered_resolved")
    out.table = dict.fromkeys(reversed(names), 0)
    for one, coverage in joint:
        out.table[names[2 * (coverage >= out.threshold) + one.resolved]] += 1
    ordered = sorted(joint, key=lambda pair: (pair[1], pair[0].instance_id))
    out.solved_unread = [one.instance_id for one, coverage in ordered if one.resolved and coverage < out.threshold]
    failed = [pair for pair in joint if not pair[0].resolved and pair[1] >= out.threshold]
    out.read_failed = [one.instance_id for one, _ in sorted(failed, key=lambda pair: (-pair[1], pair[0].instance_id))]
    out.terciles = _terciles([(coverage, one.resolved) for one, coverage in ordered], confidence)
    out.correlation = _correlation(joint, confidence, seed)


def _left_out(one: Case) -> str | None:
    """The reason why a case is not in the table."""
    if one.infra and not one.resolved:
        return "infra"
    if one.status == "unknown":
        return "no verdict"
    return "no coverage" if one.coverage is None else None


def _clustered(cases: Sequence[Case], confidence: float) -> Interval | None:
    from context_bench.stats.intervals import Interval, bounded
    from context_bench.stats.means import MIN_CLUSTERS

    repos = [one.repo or one.instance_id for one in cases]
    if len(set(repos)) < MIN_CLUSTERS:
        return None
    share = bounded([float(one.resolved) for one in cases], repos, low=0.0, high=1.0)
    low, high = share.interval(confidence)
    return Interval(share.mean, low, high, confidence)


def _terciles(ordered: Sequence[tuple[float, bool]], confidence: float) -> list[Tercile]:
    """Thirds of pairs sorted by coverage."""
    n = len(ordered)
    if n < 3:
        return []
    from context_bench.stats.intervals import wilson

    first, second = ordered[(n + 2) // 3 - 1][0], ordered[(2 * n + 2) // 3 - 1][0]
    thirds: list[list[tuple[float, bool]]] = [[], [], []]
    for coverage, resolved in ordered:
        thirds[(coverage > first) + (coverage > second)].append((coverage, resolved))
    return [
        Tercile(third[0][0], third[-1][0], len(third), solved, wilson(solved, len(third), confidence))
        for third in thirds
        if third
        for solved in [sum(resolved for _, resolved in third)]
    ]


def _correlation(joint: Sequence[tuple[Case, float]], confidence: float, seed: int) -> Correlation | None:
    import numpy as np

    from context_bench.stats.bootstrap import RESAMPLES, cluster_sums, resampled_sums
    from context_bench.stats.means import MIN_CLUSTERS, codes_of

    n = len(joint)
    x, y = np.array([coverage for _, coverage in joint]), np.array([float(one.resolved) for one, _ in joint])
    if n < 3 or np.ptp(x) < 1e-12 or np.ptp(y) == 0:
        return None
    x = x - x.mean()  # sums of squares of centred values lose no digits
    codes = codes_of([one.repo or one.instance_id for one, _ in joint], n)
    columns = cluster_sums(codes, np.ones(n), x, y, x * x, y * y, x * y)
    value = float(_pearson(columns.sum(axis=0)[None])[0])
    clusters = len(columns)
    low = high = None
    if clusters >= MIN_CLUSTERS:
        drawn = _pearson(resampled_sums(columns, seed=seed))
        drawn = drawn[~np.isnan(drawn)]
        if len(drawn) >= (1 - (1 - confidence) / 2) * RESAMPLES:
            low, high = (float(end) for end in np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]))
    return Correlation(value, low, high, n, clusters)


def _pearson(sums: Any) -> Any:
    """Pearson's r of rows of n, Σx, Σy, Σx², Σy², Σxy; NaN where there is no spread."""
    import numpy as np

    n, x, y, xx, yy, xy = sums.T
    spread_x, spread_y = np.maximum(xx - x * x / n, 0.0), np.maximum(yy - y * y / n, 0.0)
    spread = np.sqrt(spread_x * spread_y)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.where(spread > 1e-12, (xy - x * y / n) / spread, np.nan), -1.0, 1.0)
