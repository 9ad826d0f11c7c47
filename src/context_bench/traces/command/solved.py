"""What harnesses found of the patches, beside what was read: solved or not, the patch itself, tasks without a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_bench.traces import TraceResults
    from context_bench.traces.keeping import StatusOf
    from context_bench.traces.reports.summary import TraceSummary
    from context_bench.transcripts.solved import Solved


def status_of(solved: Mapping[str, Sequence[Solved]]) -> StatusOf | None:
    """What the reports found, as a question that scoring asks of each run; nothing to ask without reports."""
    if not solved:
        return None

    def status(run: str, gold: Any) -> Any:
        found = _outcome(solved, run, gold)
        return "unknown" if found is None else found.status

    return status


def _outcome(solved: Mapping[str, Sequence[Solved]], run: str, gold: Any) -> Any:
    """What the reports of a set say of a task: the first that knows whether it was solved, else the first that knows the task."""
    found = [one.find(gold.instance_id, *gold.ids) for one in (*solved.get(run, ()), *(solved.get("", ()) if run else ()))]
    told = [one for one in found if one is not None]
    return next((one for one in told if one.status != "unknown"), told[0] if told else None)


def patches_of(solved: Mapping[str, Sequence[Solved]], golds: Any) -> dict[str, dict[str, str]]:
    """The patches among the reports, by set and task: predictions say where a log without a patch has edited."""
    out: dict[str, dict[str, str]] = {}
    for run, reports in solved.items():
        for gold in golds:
            found = (one.find(gold.instance_id, *gold.ids) for one in reports)
            if patch := next((each.patch for each in found if each is not None and each.patch), None):
                out.setdefault(run, {})[gold.instance_id] = patch
    return out


def summarised(
    found: TraceResults, gold: Path, solved: Mapping[str, Sequence[Solved]], threshold: float, exclude_infra: bool
) -> TraceSummary:
    """The summary of all rows, with what the reports say of tasks that no trace is about."""
    from context_bench.traces.reports.summary import about, summarise
    from context_bench.traces.settings import golds_sha
    from context_bench.traces.symbols import grammar_versions

    golds = found.golds
    told = {"name": gold.name, "sha": golds_sha(golds), "instances": len(golds), "skipped": dict(golds.skipped), "repeated": golds.repeated}
    judged, infra = _judged(found, solved)
    return summarise(
        found.rows(),
        about=about(found.policy, counted=found.counted, gold=told, grammars=grammar_versions(), repositories=found.repos),
        without_trace=found.without_trace,
        unread=found.unread,
        judged=judged,
        infra=infra,
        threshold=threshold,
        exclude_infra=exclude_infra,
    )


def _judged(found: TraceResults, solved: Mapping[str, Sequence[Solved]]) -> tuple[dict[str, list[Any]], dict[str, set[str]]]:
    """By set: tasks of the gold that the harness judged and no trace is about, and tasks whose machinery failed."""
    from context_bench.stats.solving import Case

    cases: dict[str, list[Any]] = {}
    infra: dict[str, set[str]] = {}
    for run in found.runs:
        for gold in found.golds:
            outcome = _outcome(solved, run, gold)
            if outcome is None:
                continue
            if outcome.infra:
                infra.setdefault(run, set()).add(gold.instance_id)
            if gold.instance_id not in found.seen.get(run, ()):
                cases.setdefault(run, []).append(Case(gold.instance_id, outcome.status, None, gold.repo, outcome.infra))
    return cases, infra
