"""Sections on runs over probes, in reading order: quality by type, what is retained, what it takes, losses, the judge,
drift, variance.
"""

from __future__ import annotations

from typing import Any

from context_bench.compression.sections.costs import curves, lost, taken
from context_bench.compression.sections.quality import (
    by_type,
    drift,
    judge_card,
    retained,
    rubric,
    rubric_chart,
    state,
    type_chart,
    variance,
)
from context_bench.reports.declared import mapping
from context_bench.reports.page import Section
from context_bench.reports.report_context import ReportContext

__all__ = ["compression", "grader", "run_facts"]

_GRADERS = {"atoms": "offline grader (atoms): knows words, not meaning"}


def compression(material: ReportContext) -> list[Section | None]:
    """The sections of a run over probes; none for any other run."""
    told = mapping(material.result.compression)
    systems = {name: own for name, own in mapping(told.get("systems")).items() if isinstance(own, dict)}
    if not systems:
        return []
    ordered = {name: systems[name] for name in material.systems if name in systems}
    types, dimensions = by_type(ordered, told, grader(material)), rubric(ordered)
    if types is not None and (chart := type_chart(types, ordered, material.score_field)).data:
        types.charts = [chart]
    if dimensions is not None and (chart := rubric_chart(ordered)).data:
        dimensions.charts = [chart]
    return [
        types,
        dimensions,
        retained(ordered, material.roles),
        curves(material, told),
        taken(material, ordered, told),
        lost(ordered, material.roles),
        judge_card(material, ordered),
        drift(ordered),
        variance(ordered, material.roles),
    ]


def grader(material: ReportContext) -> str:
    """The grader of the run's score, in words."""
    field = material.score_field or ""
    if field.startswith("probe_"):
        return _GRADERS["atoms"]
    options = mapping(material.result.manifest.get("options"))
    model = options.get("judge_model")
    known = mapping(material.result.manifest.get("judge_calibration"))
    state = "not calibrated against people, so no verdict rests on it"
    if known.get("score") == field:
        state = f"{known.get('label')}, by {known.get('n')} answers that people rated"
    return f"rubric judge{f' {model}' if model else ''}: {state}" if field.startswith("rubric") else field


def run_facts(material: ReportContext) -> list[tuple[str, Any]]:
    """The head of the page of such a run: the responder, the points where sessions were cut, the grader."""
    about = mapping(mapping(material.result.compression).get("about"))
    responder = about.get("responder")
    options = mapping(material.result.manifest.get("options"))
    model = options.get("model")
    named = ", ".join(map(str, model)) if isinstance(model, list) else model
    answers = "sentence reader (no model)" if responder == "sentence" else named or responder
    sets = material.result.manifest.get("datasets")
    counts = mapping(mapping(sets[0]).get("counts")) if isinstance(sets, list) and sets else {}
    points, sessions = counts.get("points"), counts.get("sessions")
    spread = (
        f"{points} point{'s' if points != 1 else ''} of {sessions} session{'s' if sessions != 1 else ''}"
        if points
        else None
    )
    return [
        ("Answered by", answers),
        ("Compressed at", about.get("points")),
        ("Over", spread),
        ("Graded by", _in_short(material) or None),
    ]


def _in_short(material: ReportContext) -> str:
    field, model = material.score_field or "", mapping(material.result.manifest.get("options")).get("judge_model")
    return (
        f"rubric judge{f' {model}' if model else ''} ({state(material)})"
        if field.startswith("rubric")
        else grader(material)
    )
