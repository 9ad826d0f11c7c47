"""Two sets of scored runs on the instances that both have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, NotComparable
from context_bench.traces.coverage import LEVELS, harmonic
from context_bench.traces.rows import TraceRow

Rows = str | Path | Iterable[TraceRow]


@dataclass(frozen=True, slots=True)
class Difference:
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
class Solved:
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
    figures: dict[str, Difference]
    solved: Solved | None
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


def _read(rows: Rows) -> Iterable[TraceRow]:
    from context_bench.traces.row_file import read_rows

    return read_rows(rows, course=False) if isinstance(rows, str | Path) else rows


def _difference(figure: str, shared: list[str], first: _Side, second: _Side, seed: int) -> Difference | None:
    names = [name for name in shared if figure in first.values[name] and figure in second.values[name]]
    if not names:
        return None
    from context_bench.stats.bootstrap import bca_difference

    of: Callable[[_Side], list[float]] = lambda side: [side.values[name][figure] for name in names]  # noqa: E731
    one, other = of(first), of(second)
    found = bca_difference(other, one, [first.repos[name] for name in names], seed=seed)
    return Difference(
        sum(one) / len(one),
        sum(other) / len(other),
        found.value,
        found.low,
        found.high,
        found.method,
        found.n,
        found.clusters,
    )


def _solved(first: _Side, second: _Side) -> Solved | None:
    names = [name for name in first.judged if name in second.judged]
    if not names:
        return None
    from context_bench.stats.intervals import mcnemar

    a, b = first.judged, second.judged
    only_a, only_b = [name for name in names if a[name] > b[name]], [name for name in names if b[name] > a[name]]
    same: Mapping[bool, int] = {
        kind: sum(1 for name in names if a[name] == b[name] and (a[name] >= 0.5) is kind) for kind in (True, False)
    }
    return Solved(len(names), same[True], only_a, only_b, same[False], mcnemar(len(only_a), len(only_b)).p)


def _list(values: Iterable[str]) -> str:
    return " and ".join(sorted(value or "(none)" for value in values))
