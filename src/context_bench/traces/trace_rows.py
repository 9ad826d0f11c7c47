"""One run scored against its gold, as reports need it: the figures, the course of the run, and where in the files it
happened.

```python
row = TraceRow("claude", "django__django-123", score=score, steps=steps, files={"src/a.py": FileMap(120, init=[(10, 20)], read=[(1, 60)])})
TraceRow.from_json(row.to_json()) == row
row.missed                                         # {"src/a.py": []} is left out: only files with gold lines that nobody read
```

`None` stands for what is not known or was not measured, never for 0. Line ranges count from 1, both ends included.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.ledger import Ranges, merged, without
from context_bench.core.machine import opened
from context_bench.core.numbers import count, usage_of
from context_bench.core.records import Usage
from context_bench.stats.solving import STATUSES, Status
from context_bench.traces.coverage import LEVELS, Level, Score
from context_bench.transcripts.trace import Ranges as EventRanges

Figures = dict[str, float | None]  # by level
#: The file of rows in a folder that `score_traces` wrote.
ROWS = "rows.jsonl"


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


def read_rows(path: str | Path, *, course: bool = True) -> Iterator[TraceRow]:
    """The rows of a file of them, or of a folder that `score_traces` wrote; `BadInput` names a line that is none."""
    place = Path(path)
    place = place / ROWS if place.is_dir() else place
    try:
        file = opened(place)
    except OSError as error:
        raise BadInput(
            f"cannot read {place}: {error.strerror}; expected rows that `context-bench trace score` wrote"
        ) from None
    with file:
        for number, line in enumerate(file, 1):
            try:
                row = orjson.loads(line)
                if not course:
                    row.pop("steps", None)
                    row.pop("files", None)
                    (row.get("score") or {}).get("trajectory", {}).pop("steps", None)
                yield TraceRow.from_json(row)
            except (ValueError, AttributeError, TypeError) as error:  # a list where an object was meant, at any depth
                told = (str(error).splitlines() or [type(error).__name__])[0]
                raise BadInput(f"{place}, line {number}: not a row of a scored trace ({told:.200})") from None
