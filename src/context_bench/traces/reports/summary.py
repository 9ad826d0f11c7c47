"""What many scored traces come to: read once, in memory that hardly grows with a run's length, and written as one JSON document.

Means over tasks (macro) and over everything read (micro), both F1 recipes, by language, each with an interval clustered by repository and
with the number of rows it rests on; and what is in none of them, by reason: rows with an error, golds without a trace, traces without gold,
records skipped, gold whose text has moved, paths that lead nowhere, artefacts handed in twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.core.spans import size
from context_bench.stats.solving import Case, Solving, cases_of, solving
from context_bench.traces.coverage import LEVELS, POLICIES, Score
from context_bench.traces.funnel import summed
from context_bench.traces.reports.views import course
from context_bench.traces.rows import FileMap, Means, TraceRow, means, means_by

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
                [{"run": run, "instance_id": name, "attempt": number} for run, name, number in group] for group in self.duplicates
            ],
            "unread": self.unread,
            "metrics": {name: value for name, value in metrics.items() if value is not None},
            "known": list(metrics),
            "less_is_better": [f"{label}{name}" for label in self._prefixes() for name in _LESS],
        }

    def metrics(self) -> dict[str, float | None]:
        """The means under plain names (`coverage.line`, `solve_rate`), with the set before them where there are several."""
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

    `judged`: by set, tasks that the harness judged and no trace is about; they count in the solve rate. `infra`: by set, ids whose
    machinery failed. `threshold`: line coverage from which on a task counts as read.
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
        scores, repos = [row.score for row in scored if row.score is not None], [row.repo or row.instance_id for row in scored]
        languages = [row.language for row in scored]
        solved = None
        if any(row.status != "unknown" for row in found) or (judged or {}).get(label):
            cases = [*cases_of(found, infra=set((infra or {}).get(label, ()))), *(judged or {}).get(label, ())]
            solved = solving(cases, threshold=threshold, exclude_infra=exclude_infra)
        by_language = means_by(languages, scores, repos) if len(set(languages)) > 1 else {}
        missed = sum(size(ranges) for row in found for ranges in row.missed.values())
        lacking = list((without_trace or {}).get(label, ()))
        made[label] = SetSummary(label, found, means(scores, repos), by_language, solved, _by_region(scores, repos), lacking, missed)
    return TraceSummary(dict(about or {}), made, [group for group in same.values() if len(group) > 1], dict(unread or {}))


def _by_region(scores: Sequence[Score], repos: Sequence[str]) -> dict[str, Means]:
    """The same against the region to edit alone, and against what had to be known alone."""
    out = {}
    for name in ("init", "add"):
        parts = [(replace(one, final=one.regions[name]), repo) for one, repo in zip(scores, repos, strict=True) if name in one.regions]
        if parts:
            out[name] = means([one for one, _ in parts], [repo for _, repo in parts])
    return out


def slim(row: TraceRow) -> TraceRow:
    """A row without its steps, with its curve at every 5 % and, of its files, the missed gold: what tables need of it."""
    score = row.score
    if score is not None:
        editloc = score.editloc and {name: value for name, value in score.editloc.items() if name not in ("deleted_lines", "anchors")}
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
    known: dict[str, list[float]] = {name: [] for name in ("steps", "lines_per_step", "input_tokens", "output_tokens", "cost", "seconds")}
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
            name: {key: mean.to_json() for key, mean in found.figures.items() if key.startswith(("macro.coverage", "micro.coverage"))}
            for name, found in one.regions.items()
        },
        "languages": {
            name or "(none)": {"rows": found.rows, "figures": {key: mean.to_json() for key, mean in found.figures.items() if mean.n}}
            for name, found in one.languages.items()
        },
        "means": {name: {"value": value, "n": n} for name, (value, n) in totals(rows).items()},
        "course": course(rows),
        "funnel": summed(found for row in rows if (found := row.statistics.get("funnel"))),
        "solving": None if one.solving is None else one.solving.to_json(),
    }


def troubles(rows: Sequence[TraceRow]) -> dict[str, Any]:
    """What was passed over or could not be placed, counted."""
    skipped: Counter[str] = Counter()
    for row in rows:
        skipped.update(row.skipped)
    scores = [row.score for row in rows if row.score is not None]
    return {
        "without_repository": dict(
            Counter(note.removeprefix("no_repo: ") for row in rows for note in row.notes if note.startswith("no_repo: "))
        ),
        "gold_content_mismatch": {"items": sum(len(row.drift) for row in rows), "rows": sum(1 for row in rows if row.drift)},
        "gold_missing_files": sum(len(score.gold_missing_files) for score in scores),
        "unresolved_paths": {"paths": sum(len(s.unresolved) for s in scores), "rows": sum(1 for s in scores if s.unresolved)},
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
