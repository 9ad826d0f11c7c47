"""Sections on runs over probes, in reading order: quality by type, what is retained, what it takes, losses, the judge,
drift, variance.
"""

from __future__ import annotations

from typing import Any

from context_bench.compression.sections.costs import curves, lost, taken
from context_bench.compression.sections.scores import (
    by_type,
    calibrated,
    drift,
    judge_card,
    retained,
    rubric,
    variance,
)
from context_bench.reports.declared import ReportContext, mapping
from context_bench.reports.page import Section

__all__ = ["compression", "grader", "run_facts"]

_GRADERS = {"atoms": "offline grader (atoms): knows words, not meaning"}


def compression(report: ReportContext) -> list[Section | None]:
    """The sections of a run over probes; none for any other run."""
    figures = mapping(report.result.compression)
    every = {name: own for name, own in mapping(figures.get("systems")).items() if isinstance(own, dict)}
    systems = {name: every[name] for name in report.systems if name in every}
    if not every:
        return []
    return [
        by_type(report, systems, figures, grader(report)),
        rubric(systems),
        retained(systems, report.roles),
        curves(report, figures),
        taken(report, systems, figures),
        lost(systems, report.roles),
        judge_card(report, systems),
        drift(systems),
        variance(systems, report.roles),
    ]


def grader(report: ReportContext) -> str:
    """The grader of the run's score, in words."""
    field = report.score_field or ""
    if field.startswith("probe_"):
        return _GRADERS["atoms"]
    known = mapping(report.result.manifest.get("judge_calibration"))
    standing_of = "not calibrated against people, so no verdict rests on it"
    if known.get("score") == field:
        standing_of = f"{known.get('label')}, by {known.get('n')} answers that people rated"
    return f"{_judge_named(report)}: {standing_of}" if field.startswith("rubric") else field


def _judge_named(report: ReportContext) -> str:
    model = mapping(report.result.manifest.get("options")).get("judge_model")
    return f"rubric judge{f' {model}' if model else ''}"


def run_facts(report: ReportContext) -> list[tuple[str, Any]]:
    """The head of the page of such a run: the responder, the points where sessions were cut, the grader."""
    about = mapping(mapping(report.result.compression).get("about"))
    model = mapping(report.result.manifest.get("options")).get("model")
    named = ", ".join(map(str, model)) if isinstance(model, list) else model
    responder = about.get("responder")
    sets = report.result.manifest.get("datasets")
    counts = mapping(mapping(sets[0]).get("counts")) if isinstance(sets, list) and sets else {}
    points, sessions = counts.get("points"), counts.get("sessions")
    spread = (
        f"{points} point{'s' if points != 1 else ''} of {sessions} session{'s' if sessions != 1 else ''}"
        if points
        else None
    )
    by_rubric = (report.score_field or "").startswith("rubric")
    return [
        ("Answered by", "sentence reader (no model)" if responder == "sentence" else named or responder),
        ("Compressed at", about.get("points")),
        ("Over", spread),
        ("Graded by", (f"{_judge_named(report)} ({calibrated(report)})" if by_rubric else grader(report)) or None),
    ]
