"""Summarise many scored traces as one JSON document. Rows are read once; memory hardly grows with a run's length.

Means over tasks (macro) and over everything read (micro), both F1 recipes, by language, each with an interval clustered
by repository and with the number of rows it rests on; and what is in none of them, by reason: rows with an error, golds
without a trace, traces without gold, records skipped, gold whose text has moved, paths that lead nowhere, artefacts
handed in twice.

The per-task log has the columns of the seed's appendix, `appendix_minimal_per_task_log.csv`. A value that was not
measured is an empty cell. `input_tokens` are those read from no cache. `contextbench_editloc_*` are the seed's values,
under either policy: deleted lines inside the edit region over deleted lines, twice, and 0 for a patch that only adds.
Our own figures are in `evaluator_result`, the row as JSON.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from context_bench.core.ledger import size
from context_bench.reports.visible_text import csv_cell
from context_bench.stats.solving import Case, Solving, solving
from context_bench.traces.coverage import LEVELS, POLICIES, Score
from context_bench.traces.edits import summed
from context_bench.traces.figures import Means, means, means_by
from context_bench.traces.reports.views import course
from context_bench.traces.trace_rows import FileMap, TraceRow
from context_bench.transcripts.trace import utf8_clean

SCHEMA = "context-bench.traces/1"
#: Shares of a run that its curve is kept at: exact for every multiple of 5 %.
_POINTS = 20
_LESS = ("redundancy", "redundancy_excluding_after_edit", "usage_drop", "cost", "steps")
_MOST_IDS = 10_000


@dataclass
class SetSummary:
    """One set of runs. `rows` are slim (see `slim`). `without_trace`: golds nobody's trace is about."""

    label: str
    rows: list[TraceRow]
    figures: Means
    languages: dict[str, Means]
    solving: Solving | None
    regions: dict[str, Means] = field(default_factory=dict)
    without_trace: list[str] = field(default_factory=list)
    missed_lines: int = 0

    @property
    def errors(self) -> Counter[str]:
        """Rows without figures, by reason."""
        return Counter(row.error for row in self.rows if row.error)


@dataclass
class TraceSummary:
    """Everything. `about`: policy, gold, grammars and the like; `unread`: files that hold no trace, by reason."""

    about: dict[str, Any]
    sets: dict[str, SetSummary]
    duplicates: list[list[tuple[str, str, int]]]
    unread: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document; `metrics` is what `context-bench gate` reads."""
        metrics = self.metrics()
        return {
            "schema": SCHEMA,
            **self.about,
            "sets": {label: set_to_json(one) for label, one in self.sets.items()},
            "duplicates": [
                [{"run": run, "instance_id": name, "attempt": number} for run, name, number in group]
                for group in self.duplicates
            ],
            "unread": self.unread,
            "metrics": {name: value for name, value in metrics.items() if value is not None},
            "known": list(metrics),
            "less_is_better": [f"{label}{name}" for label in self._prefixes() for name in _LESS],
        }

    def metrics(self) -> dict[str, float | None]:
        """The means under plain names (`coverage.line`, `solve_rate`), with the set before them where there are
        several.
        """
        out: dict[str, float | None] = {}
        for prefix, one in zip(self._prefixes(), self.sets.values(), strict=True):
            for name, mean in one.figures.figures.items():
                out[prefix + name.removeprefix("macro.").replace("f1_macro.", "f1.")] = mean.value
            out[f"{prefix}solve_rate"] = one.solving.rate.value if one.solving and one.solving.rate else None
            out[f"{prefix}errors"] = float(sum(one.errors.values()))
            for name, (value, _) in totals(one.rows).items():
                out[prefix + name] = value
        return out

    def _prefixes(self) -> list[str]:
        return [f"{label}/" if len(self.sets) > 1 else "" for label in self.sets]


def summarise(
    rows: Iterable[TraceRow],
    *,
    about: Mapping[str, Any] | None = None,
    without_trace: Mapping[str, Sequence[str]] | None = None,
    unread: Mapping[str, str] | None = None,
    judged: Mapping[str, Sequence[Case]] | None = None,
    infra: Mapping[str, Iterable[str]] | None = None,
    threshold: float = 0.5,
    exclude_infra: bool = False,
) -> TraceSummary:
    """The summary of rows, by set in the order in which they come.

    `judged`: by set, tasks that the harness judged and no trace is about; they count in the solve rate. `infra`: by
    set, ids whose machinery failed. `threshold`: line coverage from which on a task counts as read.
    """
    sets: dict[str, list[TraceRow]] = {label: [] for label in without_trace or ()}
    same: dict[str, list[tuple[str, str, int]]] = {}
    for row in rows:
        sets.setdefault(row.run, []).append(slim(row))
        if row.statistics.get("steps"):
            same.setdefault(row.trace_sha, []).append((row.run, row.instance_id, row.attempt))
    made = {}
    for label, found in sets.items():
        scored = [row for row in found if row.score is not None]
        scores, repos = (
            [row.score for row in scored if row.score is not None],
            [row.repo or row.instance_id for row in scored],
        )
        languages = [row.language for row in scored]
        solved = None
        if any(row.status != "unknown" for row in found) or (judged or {}).get(label):
            cases = [*cases_of(found, infra=set((infra or {}).get(label, ()))), *(judged or {}).get(label, ())]
            solved = solving(cases, threshold=threshold, exclude_infra=exclude_infra)
        by_language = means_by(languages, scores, repos) if len(set(languages)) > 1 else {}
        missed = sum(size(ranges) for row in found for ranges in row.missed.values())
        lacking = list((without_trace or {}).get(label, ()))
        made[label] = SetSummary(
            label, found, means(scores, repos), by_language, solved, _by_region(scores, repos), lacking, missed
        )
    return TraceSummary(
        dict(about or {}), made, [group for group in same.values() if len(group) > 1], dict(unread or {})
    )


def cases_of(rows: Iterable[TraceRow], *, level: str = "line", infra: Collection[str] = ()) -> list[Case]:
    """The cases of scored traces. `infra`: ids whose machinery failed."""
    return [
        Case(
            row.instance_id,
            row.status,
            _coverage(row, level),
            row.repo,
            row.instance_id in infra or "infra" in row.notes,
        )
        for row in rows
    ]


def _coverage(row: TraceRow, level: str) -> float | None:
    found = row.score.final.get(level) if row.score is not None and not row.score.error else None
    return found.coverage if found is not None else None


def _by_region(scores: Sequence[Score], repos: Sequence[str]) -> dict[str, Means]:
    """The same against the region to edit alone, and against what had to be known alone."""
    out = {}
    for name in ("init", "add"):
        parts = [
            (replace(one, final=one.regions[name]), repo)
            for one, repo in zip(scores, repos, strict=True)
            if name in one.regions
        ]
        if parts:
            out[name] = means([one for one, _ in parts], [repo for _, repo in parts])
    return out


def slim(row: TraceRow) -> TraceRow:
    """A row without its steps, with its curve at every 5 % and, of its files, the missed gold: what tables need of
    it.
    """
    score = row.score
    if score is not None:
        editloc = score.editloc and {
            name: value for name, value in score.editloc.items() if name not in ("deleted_lines", "anchors")
        }
        score = replace(score, steps=_points(score.steps), gold_symbols=[], pred_symbols=[], editloc=editloc)
    files = {path: FileMap(init=missed) for path, missed in row.missed.items()}
    return replace(row, score=score, steps=[], files=files)


def _points(steps: Sequence[dict[str, float | None]]) -> list[dict[str, float | None]]:
    n = len(steps)
    if n <= _POINTS:
        return list(steps)
    return [steps[done - 1] for done in (math.floor(k * n / _POINTS) for k in range(1, _POINTS + 1))]


def totals(rows: Sequence[TraceRow]) -> dict[str, tuple[float | None, int]]:
    """Means over the runs that tell: steps, lines per step, tokens, dollars, seconds; with how many runs those are."""
    known: dict[str, list[float]] = {
        name: [] for name in ("steps", "lines_per_step", "input_tokens", "output_tokens", "cost", "seconds")
    }
    for row in rows:
        values = {
            "steps": row.score.num_steps if row.score is not None and not row.score.error else None,
            "lines_per_step": row.score.lines_per_step if row.score is not None else None,
            "input_tokens": row.usage.input_tokens if row.usage is not None else None,
            "output_tokens": row.usage.output_tokens if row.usage is not None else None,
            "cost": row.cost,
            "seconds": row.seconds,
        }
        for name, value in values.items():
            if value is not None:
                known[name].append(float(value))
    return {name: (sum(found) / len(found) if found else None, len(found)) for name, found in known.items()}


def set_to_json(one: SetSummary) -> dict[str, Any]:
    """One set. `course`: level → mean coverage after 0, 5, 10 … 100 % of a run's own steps."""
    rows = one.rows
    scored = [row for row in rows if row.score is not None and not row.score.error]
    return {
        "rows": len(rows),
        "scored": len(scored),
        "instances": len({row.instance_id for row in rows}),
        "repositories": len({row.repo for row in rows if row.repo}),
        "errors": dict(one.errors),
        "gold_without_trace": {"count": len(one.without_trace), "ids": one.without_trace[:_MOST_IDS]},
        "traces_without_gold": [row.instance_id for row in rows if row.error == "no_gold"][:_MOST_IDS],
        **troubles(rows),
        "agents": dict(Counter(row.agent for row in rows if row.agent)),
        "models": dict(Counter(row.model for row in rows if row.model)),
        "provenance": _counted(rows, "provenance"),
        "strength": _counted(rows, "strength"),
        "missed_lines": one.missed_lines,
        "figures": {name: mean.to_json() for name, mean in one.figures.figures.items()},
        "regions": {
            name: {
                key: mean.to_json()
                for key, mean in found.figures.items()
                if key.startswith(("macro.coverage", "micro.coverage"))
            }
            for name, found in one.regions.items()
        },
        "languages": {
            name or "(none)": {
                "rows": found.rows,
                "figures": {key: mean.to_json() for key, mean in found.figures.items() if mean.n},
            }
            for name, found in one.languages.items()
        },
        "means": {name: {"value": value, "n": n} for name, (value, n) in totals(rows).items()},
        "course": course(rows),
        "funnel": summed(found for row in rows if (found := row.statistics.get("funnel"))),
        "solving": None if one.solving is None else one.solving.to_json(),
    }


def troubles(rows: Sequence[TraceRow]) -> dict[str, Any]:
    """Counts of items that were skipped or could not be placed."""
    skipped: Counter[str] = Counter()
    for row in rows:
        skipped.update(row.skipped)
    scores = [row.score for row in rows if row.score is not None]
    return {
        "without_repository": dict(
            Counter(
                note.removeprefix("no_repo: ") for row in rows for note in row.notes if note.startswith("no_repo: ")
            )
        ),
        "gold_content_mismatch": {
            "items": sum(len(row.drift) for row in rows),
            "rows": sum(1 for row in rows if row.drift),
        },
        "gold_missing_files": sum(len(score.gold_missing_files) for score in scores),
        "unresolved_paths": {
            "paths": sum(len(s.unresolved) for s in scores),
            "rows": sum(1 for s in scores if s.unresolved),
        },
        "skipped_records": dict(skipped),
        "failed_reads": sum(int(row.statistics.get("failed_reads") or 0) for row in rows),
        "no_reads": sum(1 for row in rows if any(note.startswith("reads: none") for note in row.notes)),
    }


def _counted(rows: Sequence[TraceRow], name: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.statistics.get(name) or {})
    return dict(found)


def about(policy: str, **more: Any) -> dict[str, Any]:
    """The head of a summary: the policy and what counts as a definition under it, then whatever the caller knows."""
    return {"policy": policy, "profile": POLICIES[policy].profile, "levels": list(LEVELS), **more}


NAME = "appendix_minimal_per_task_log.csv"
COLUMNS = (
    "task_id",
    "attempt",
    "benchmark",
    "benchmark_version",
    "repo",
    "repo_label",
    "language",
    "agent",
    "model_version",
    "condition",
    "status",
    "runtime_sec",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "total_input_processed_tokens",
    "total_processed_tokens",
    "estimated_cost",
    "tool_calls",
    "shell_commands",
    "file_reads",
    "search_actions",
    "files_edited",
    "patch_size",
    "first_file_opened",
    "first_file_edited",
    "first_test_command",
    "bitloops_context_tokens",
    *(f"contextbench_final_{level}_{name}" for level in LEVELS for name in ("coverage", "precision")),
    *(f"contextbench_traj_{name}_{level}" for name in ("auc", "redundancy") for level in LEVELS),
    "contextbench_editloc_recall",
    "contextbench_editloc_precision",
    "evaluator_result",
)


def lines(rows: Iterable[TraceRow], *, benchmark: str = "", version: str = "") -> Iterator[str]:
    """The file line by line, its head first. `benchmark`, `version`: the gold's name and hash."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = appendix_row(row) | {"benchmark": benchmark, "benchmark_version": version}
        known = {
            name: value if isinstance(value, int | float) else csv_cell(value)
            for name, value in cells.items()
            if value is not None
        }
        writer.writerow(known)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()
    yield stream.getvalue()


def appendix_row(row: TraceRow) -> dict[str, Any]:
    """The cells of one run; `None` where nothing was measured."""
    told = row.statistics
    calls = told.get("calls") or {}
    return {
        "task_id": row.instance_id,
        "attempt": row.attempt,
        "repo": row.repo,
        "repo_label": row.repo.partition("/")[0] if row.repo else None,
        "language": row.language,
        "agent": row.agent or None,
        "model_version": row.model,
        "condition": row.run or None,
        "status": row.status,
        "runtime_sec": row.seconds,
        **_tokens(row),
        "estimated_cost": row.cost,
        "tool_calls": told.get("steps"),
        "shell_commands": told.get("shell_commands"),
        "file_reads": calls.get("read", 0) if calls else None,
        "search_actions": calls.get("search", 0) + calls.get("list", 0) if calls else None,
        "files_edited": told.get("patch_files") or told.get("files_edited"),
        "patch_size": told.get("patch_characters"),
        "first_file_opened": told.get("first_file_opened"),
        "first_file_edited": told.get("first_file_edited"),
        "first_test_command": told.get("first_test_command"),
        **_scores(row),
        "evaluator_result": _result(row),
    }


def _tokens(row: TraceRow) -> dict[str, int | None]:
    usage = row.usage
    if usage is None:
        return {}
    whole, cached = usage.input_tokens, (usage.cache_read or 0) + (usage.cache_write or 0)
    return {
        "input_tokens": None if whole is None else max(0, whole - cached),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "total_input_processed_tokens": whole,
        "total_processed_tokens": None if whole is None or usage.output_tokens is None else whole + usage.output_tokens,
    }


def _scores(row: TraceRow) -> dict[str, float | None]:
    score = row.score
    if score is None or score.error:
        return {}
    out: dict[str, float | None] = {}
    for level, found in score.final.items():
        out[f"contextbench_final_{level}_coverage"], out[f"contextbench_final_{level}_precision"] = (
            found.coverage,
            found.precision,
        )
    for level in LEVELS:
        out[f"contextbench_traj_auc_{level}"], out[f"contextbench_traj_redundancy_{level}"] = (
            score.auc.get(level),
            score.redundancy.get(level),
        )
    if score.editloc:
        share = score.editloc["intersection"] / score.editloc["pred_size"] if score.editloc["pred_size"] else 0.0
        out["contextbench_editloc_recall"] = out["contextbench_editloc_precision"] = share
    return out


def _result(row: TraceRow) -> str:
    found = (
        row.score.to_row()
        if row.score is not None
        else {"instance_id": row.instance_id, "error": row.error or "not scored"}
    )
    try:
        return orjson.dumps(found).decode()
    except TypeError:
        return orjson.dumps(utf8_clean(found)).decode()
