"""Sections on runs over probes, in reading order: quality by type, what is retained, what it takes, losses, the judge,
drift, variance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from context_bench.compression.evaluators.probe_atoms import SearchableText
from context_bench.compression.probes import ProbeAtom, Source, atom_from_json, messages_of
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
from context_bench.core.families import RowPart, StoredRow, TextMark
from context_bench.reports.declared import ReportContext, mapping
from context_bench.reports.page import Section
from context_bench.wire.conversation import ChatMessage, message_text

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


# --- a row ---

_AROUND = 160  # characters of the original shown beside a fact
_MOST_MARKS = 20  # places at which one fact is marked


def facts_and_text(stored: StoredRow) -> list[RowPart]:
    """Each fact that the probe asks for, kept or lost, with its place in the original; then the compressed text."""
    given = stored.example.get("atoms")
    if not isinstance(given, list) or stored.row.failed:
        return []
    atoms = [atom_from_json(each) for each in given]
    text, response = stored.output.get("context"), stored.output.get("response")
    left = text if isinstance(text, str) else None
    opaque = mapping(stored.output.get("compressed")).get("opaque")
    messages = messages_of(stored.example)
    rows = [
        (
            atom.text if atom.role == "wanted" else f"{atom.text} (outdated: should not be named)",
            None if left is None else _searchable(left).names(atom),
            SearchableText(response).names(atom) if isinstance(response, str) else None,
            *_place(atom, messages),
        )
        for atom in atoms
    ]
    found = [RowPart(title="Facts asked about", columns=_FACTS, rows=rows, note=_SAID_OTHERWISE)]
    if left is None or (opaque and not left):
        why = "The compressor handed on a form that only its own model reads: there is no text to show."
        return [*found, RowPart(title="The compressed text", note=why if opaque else "No compressed text was kept.")]
    kept = [atom for atom, row in zip(atoms, rows, strict=True) if row[1]]
    marks = [mark for atom in kept for mark in _marks(left, atom)]
    return [
        *found,
        RowPart(
            title="The compressed text",
            note=_sizes(stored, len(marks), len(kept)),
            text=left or "(nothing)",
            marks=tuple(_apart(marks)),
            replaces=("context",),
        ),
    ]


_FACTS = ("fact", "kept", "in the answer", "where it stood", "what was said there")
_SAID_OTHERWISE = "A fact that is said in other words counts as lost."


@lru_cache(maxsize=4)
def _searchable(text: str) -> SearchableText:
    return SearchableText(text)


def _place(atom: ProbeAtom, messages: Sequence[ChatMessage]) -> tuple[str | None, str | None]:
    """The place of a fact in the session, and the words around it."""
    known = [source for source in atom.sources if 0 <= source.message < len(messages)]
    if not known:
        return None, None
    first: Source = known[0]
    message = messages[first.message]
    place = f"message {first.message + 1} of {len(messages)} ({message.get('role')})"
    place += f" and {len(known) - 1} more" if len(known) > 1 else ""
    text = message_text(message)
    start, end = first.start or 0, first.end if first.end is not None else len(text)
    around = text[max(0, start - _AROUND) : end + _AROUND]
    return place, f"{'…' if start > _AROUND else ''}{around}{'…' if end + _AROUND < len(text) else ''}" or None


def _marks(text: str, atom: ProbeAtom) -> Iterator[TextMark]:
    """Places where a fact that was kept stands word for word."""
    forms = "|".join(re.escape(form) for form in (atom.text, *atom.variants) if form)
    tone, label = ("good", "kept") if atom.role == "wanted" else ("bad", "outdated")
    places = re.finditer(rf"(?<!\w)(?:{forms})(?!\w)", text, re.IGNORECASE)
    for _, hit in zip(range(_MOST_MARKS), places, strict=False):
        yield TextMark(hit.start(), hit.end(), label, tone)


def _apart(marks: list[TextMark]) -> Iterator[TextMark]:
    """Marks in order, of those that overlap the first."""
    at = -1
    for mark in sorted(marks, key=lambda each: (each.start, -each.end)):
        if mark.start >= at:
            yield mark
            at = mark.end


def _sizes(stored: StoredRow, marks: int, kept: int) -> str:
    about = mapping(stored.output.get("compressed"))
    before, after = about.get("tokens_before"), about.get("tokens_after")
    said = f"{before:,} tokens became {after:,}. " if isinstance(before, int) and isinstance(after, int) else ""
    if marks:
        said += "Facts that are still there are marked."
    else:
        said += "What is there is said otherwise." if kept else "None of the facts is there."
    forwarded = stored.row.output_tokens
    counted_otherwise = isinstance(after, int) and forwarded is not None and after != forwarded
    return f"{said} Tool calls count as JSON here, forwarded tokens as text." if counted_otherwise else said
