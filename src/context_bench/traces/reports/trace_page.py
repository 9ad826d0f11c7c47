"""Scored traces as one HTML file: what the sets read, how early and on what evidence, and behind each run its curve,
files and steps.

No network, no foreign script, light and dark, printable. The pictures are drawn beforehand from numbers; names and
paths go through the template, which escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any

from markupsafe import Markup

from context_bench.core.ledger import size
from context_bench.reports.html_page import environment, policy, rows_script, template_text
from context_bench.reports.page import Section
from context_bench.reports.visible_text import script_json, visible
from context_bench.traces.reports.run_details import DetailLimits, run_view
from context_bench.traces.reports.sections import page_of
from context_bench.traces.reports.trace_summary import TraceSummary, about, summarise
from context_bench.traces.reports.trace_tables import by_set, problems, tells_missed
from context_bench.traces.reports.views import ABOUT_COURSE, course_svg
from context_bench.traces.trace_rows import TraceRow

MOST_RUNS = 20_000  # in the table of runs
DETAIL_BYTES = 10_000_000  # of everything that stands behind runs; a thousand runs of usual length have room
LEAST_ROOM = 3000  # bytes for one run
_BY_LEVEL = 3  # sets that stand before the appendix with a line for each level; of more there is one line a set


def to_html(
    rows: Iterable[TraceRow],
    summary: TraceSummary | None = None,
    *,
    more: Sequence[Section] = (),
    notes: Sequence[str] = (),
) -> str:
    """The whole file. Sets (`TraceRow.run`) stand side by side, in the order in which they come.

    `rows`: with their steps and files; read once, if there is a `summary` of them. `more`: further sections, such as
    `comparison_section`.
    """
    if summary is None:
        rows = list(rows)
        policies = {row.policy for row in rows}
        summary = summarise(rows, about=about(policies.pop()) if len(policies) == 1 else None)
    page = page_of(summary, more=more)
    sets = {label or "traces": one.rows for label, one in summary.sets.items()}
    leading, appendix = _parted(page.sections, summary)
    runs = _Runs(summary)
    for row in rows:
        runs.add(row)
    drawn = course_svg(sets)
    style = template_text("report.css") + template_text("traces.css")
    script = rows_script()
    return (
        environment()
        .get_template("traces.html.j2")
        .render(
            page=page,
            leading=leading,
            appendix=appendix,
            facts=[*_facts([row for one in sets.values() for row in one]), *page.facts],
            notes=[*page.notes, *notes],
            course=(Markup(drawn[0]), Markup(drawn[1])) if drawn else None,
            about_course=ABOUT_COURSE,
            runs=runs.seen,
            csp=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            row_data=Markup(
                script_json(json.dumps(_row_data(runs), ensure_ascii=False, allow_nan=False, separators=(",", ":")))
            ),
            rows_note=runs.note(),
            fragments=runs.fragments,
        )
    )


def _parted(sections: Sequence[Section], summary: TraceSummary) -> tuple[list[Section], list[Section]]:
    """The sections that stand before the list of runs, and those of the appendix: what was read in the end, the runs in
    numbers and a comparison come first, each no longer than a screen or so.
    """
    first, rest = list(sections[:1]), list(sections[1:])
    leading = [each for each in rest if each.id in ("comparison", "rows")]
    appendix = [each for each in rest if each.id not in ("comparison", "rows")]
    scored = any(one.figures.rows for one in summary.sets.values())
    if not scored or len(summary.sets) <= _BY_LEVEL:
        return [*first, *leading], appendix
    short = by_set({label: one.figures for label, one in summary.sets.items()})
    return [short, *leading], [replace(first[0], title=f"{first[0].title}, by level"), *appendix]


def _facts(runs: Sequence[TraceRow]) -> list[tuple[str, str]]:
    """The value that all runs share, else the number of different values."""
    told = [("runs", f"{len(runs):,}"), ("tasks", f"{len({row.instance_id for row in runs}):,}")]
    for label, plural, values in (
        ("repository", "repositories", {row.repo for row in runs}),
        ("language", "languages", {row.language for row in runs}),
        ("agent", "agents", {row.agent for row in runs}),
        ("model", "models", {row.model for row in runs}),
    ):
        names = sorted(filter(None, values))
        if names:
            told.append(
                (label, names[0])
                if len(names) == 1
                else (plural, ", ".join(names) if len(names) <= 3 else f"{len(names):,}")
            )
    return told


@dataclass(frozen=True, slots=True)
class _Line:
    """One run in the table of runs."""

    texts: dict[str, str | None]
    numbers: list[float | None]
    opens: bool


class _Runs:
    """The runs as they come: a line of the table for each, and what stands behind it, until the room is used up.

    Where there is not room for all, those that read least of their gold come first.
    """

    def __init__(self, summary: TraceSummary) -> None:
        known = [row for one in summary.sets.values() for row in one.rows]
        self.lines: list[_Line] = []
        self.fragments: dict[int, Markup] = {}
        self.seen = 0
        self._left = DETAIL_BYTES
        self._cut = False
        self._limits = DetailLimits.of(max(LEAST_ROOM, DETAIL_BYTES // max(1, len(known))))
        most = DETAIL_BYTES // LEAST_ROOM
        self._chosen = {_key(row) for row in nsmallest(most, known, key=_coverage)} if len(known) > most else None
        self._template = environment().get_template("trace_run.html.j2")

    def add(self, row: TraceRow) -> None:
        """One more."""
        place = self.seen
        self.seen += 1
        if place >= MOST_RUNS:
            return
        if self._left > 0 and (self._chosen is None or _key(row) in self._chosen):
            view = run_view(row, self._limits)
            text = self._template.render(run=view)
            self._left -= len(text.encode())
            if self._left >= 0:
                self.fragments[place] = Markup(text)
                self._cut = self._cut or bool(view.steps_left or view.maps_left or view.missed_left)
        self.lines.append(_line(row, place in self.fragments))

    def note(self) -> str:
        """Say what the page leaves out."""
        notes = []
        if self.seen > MOST_RUNS:
            notes.append(f"The first {MOST_RUNS:,} of {self.seen:,} runs; the JSONL and CSV files hold all of them.")
        if len(self.fragments) < len(self.lines):
            notes.append(
                f"{len(self.fragments):,} of these runs open, of very many those that read least of their gold: there "
                "is no room for more. "
                "The JSONL file holds all."
            )
        if self._cut:
            notes.append(
                "Of long runs, steps that gained coverage are shown first, then those that edited or failed; the "
                "others are counted."
            )
        return " ".join(notes)


def _key(row: TraceRow) -> tuple[str, str, int]:
    return row.run, row.instance_id, row.attempt


def _coverage(row: TraceRow) -> float:
    level = row.score.final.get("line") if row.score else None
    return 2.0 if level is None or level.coverage is None else level.coverage


# The table of runs
# ------------------------------------------------------------------------

#: Numbers of a run and their decimals.
_NUMBERS: tuple[tuple[str, int | None], ...] = (
    *(
        (name, 3)
        for name in ("line coverage", "line precision", "file coverage", "line AUC", "line redundancy", "edits in gold")
    ),
    ("steps", None),
    ("missed lines", None),
)


def _line(row: TraceRow, opens: bool) -> _Line:
    score = row.score
    texts = {
        "set": visible(row.run) or "traces",
        "instance": visible(row.instance_id) + (f" · {row.attempt}" if row.attempt > 1 else ""),
        "language": visible(row.language) if row.language else None,
        "agent": visible(row.agent) if row.agent else None,
        "patch": row.status if row.status != "unknown" else None,
        "problem": visible("; ".join(problems(row)), 200) or None,
    }
    figures: list[float | None] = [None] * 6
    if score is not None and score.final:
        line, file = score.final.get("line"), score.final.get("file")
        figures = [line.coverage if line else None, line.precision if line else None, file.coverage if file else None]
        figures += [score.auc.get("line"), score.redundancy.get("line"), (score.editloc or {}).get("precision")]
    steps = row.statistics.get("steps") if score is None else score.num_steps
    missed = sum(size(ranges) for ranges in row.missed.values()) if tells_missed(row) else None
    return _Line(texts, [None if value is None else round(value, 6) for value in (*figures, steps, missed)], opens)


def _row_data(runs: _Runs) -> dict[str, Any]:
    """Columns, rows as lists in their order, and which of them open."""
    lines = runs.lines
    texts = {
        name: [line.texts[name] for line in lines]
        for name in ("set", "instance", "language", "agent", "patch", "problem")
    }
    kept: list[tuple[dict[str, Any], Sequence[Any]]] = [
        ({"title": name, "kind": "text"}, texts[name]) for name in ("set", "instance")
    ]
    kept += [
        ({"title": name, "kind": "text"}, texts[name])
        for name in ("language", "agent")
        if _tells(texts[name], texts["set"])
    ]
    for place, (name, digits) in enumerate(_NUMBERS):
        values = [line.numbers[place] for line in lines]
        if any(value is not None for value in values):
            kept.append(({"title": name, "kind": "number"} | ({"digits": digits} if digits else {}), values))
    kept += [({"title": name, "kind": "text"}, texts[name]) for name in ("patch",) if any(texts[name])]
    kept.append(({"title": "problem", "kind": "text"}, texts["problem"]))
    cells = [list(row) for row in zip(*(values for _, values in kept), strict=True)]
    details = [0 if line.opens else -1 for line in lines]
    return {"columns": [column for column, _ in kept], "rows": cells, "details": details, "open": len(lines) == 1}


def _tells(values: list[str | None], sets: list[str | None]) -> bool:
    """True if a column says more than the set does."""
    return len(set(zip(sets, values, strict=True))) > len(set(sets))
