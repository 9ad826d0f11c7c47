"""A summary of scored traces as a page: for the terminal, for Markdown, and as what the HTML report has beside its own
tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from context_bench.core.families import RowPart, RowStep, StoredRow
from context_bench.core.keys import load_json
from context_bench.core.ledger import size
from context_bench.reports.cards import card_of
from context_bench.reports.declared import ReportContext, mapping
from context_bench.reports.page import Cell, Column, Figure, Page, Section, Sentence, Table
from context_bench.stats.intervals import Interval
from context_bench.stats.solving import Solving
from context_bench.traces.coverage import LEVELS
from context_bench.traces.reports.run_details import coverage_text, range_words
from context_bench.traces.reports.trace_summary import SetSummary, TraceSummary, totals, troubles
from context_bench.traces.reports.trace_tables import (
    evidence_section,
    figure,
    problems_section,
    scored_sections,
    sentence,
)
from context_bench.traces.reports.views import LEVEL_NAMES, ranges_text
from context_bench.traces.trace_rows import StepView, TraceRow

TITLE = "Did the agent read the right code?"
_NAMED = 8  # instances named in a line


def page_of(summary: TraceSummary, *, more: Sequence[Section] = ()) -> Page:
    """The page. `more`: further sections, shown after the first."""
    sets = {label: one.rows for label, one in summary.sets.items()}
    found = {label: one.figures for label, one in summary.sets.items()}
    scored = scored_sections(sets, found) if any(one.rows for one in found.values()) else []
    sections = [*scored[:1], *more, *extra_sections(summary), *scored[1:], evidence_section(sets)]
    if (told := problems_section(sets)) is not None:
        sections.append(told)
    if sections:
        sections[0].id = "metrics"  # what Markdown shows first
    rows = [row for each in sets.values() for row in each]
    verdicts = [
        _named(sentence(label, each, found[label], summary.sets[label].solving), label) for label, each in sets.items()
    ]
    return _page(TITLE, facts_of(summary), verdicts, sections, notes_of(summary), rows, list(sets))


#: Tables of a stored run: id, title, columns as (kind of score, title, meaning).
_OF_RUN = (
    (
        "final",
        "What had been read in the end",
        (
            ("coverage", "coverage (95 %)", "of the gold, the share that was read (recall)"),
            ("precision", "precision (95 %)", "of what was read, the share that is gold"),
            ("f1", "F1 (95 %)", "of each recorded run, then the mean"),
        ),
    ),
    (
        "course",
        "In the course of the run",
        (
            ("auc", "AUC (95 %)", "mean over the steps of the coverage reached by then"),
            ("redundancy", "redundancy (95 %)", "share of all reading that read something again"),
        ),
    ),
)
_EDITS_OF_RUN = (("precision", "precision"), ("recall", "recall"), ("anchored_precision", "with insertions"))


def run_sections(report: ReportContext) -> list[Section]:
    """The sections of a stored run of recorded runs, from its estimates. `trace score` has a page with more."""
    sections = [Section(name, title, tables=[_by_level(report, name, columns)]) for name, title, columns in _OF_RUN]
    heads = [Column("Set", False), *(Column(f"{title} (95 %)") for _, title in _EDITS_OF_RUN)]
    rows: list[list[Cell]] = [
        [system, *(_estimate(report, system, f"editloc.{name}") for name, _ in _EDITS_OF_RUN)]
        for system in report.systems
    ]
    edits = Section("editloc", "Where the patches edit", tables=[Table("editloc", heads, rows)])
    return [*sections, edits] if any(any(row[1:]) for row in rows) else sections


def run_facts(report: ReportContext) -> list[tuple[str, Any]]:
    """The rules of a stored run, in the place of model and shape."""
    about = mapping(report.result.families.get("traces"))
    gold = mapping(about.get("gold"))
    facts = [("policy", about.get("policy")), ("gold", gold and f"{_n(gold['instances'], 'task')}, {gold['sha']}")]
    return [*facts, ("counted beside what was shown", ", ".join(about.get("counted") or []) or None)]


def _by_level(report: ReportContext, name: str, columns: Sequence[tuple[str, str, str]]) -> Table:
    heads = [Column("Level", False), Column("Set", False), *(Column(title, about=about) for _, title, about in columns)]
    rows: list[list[Cell]] = []
    for level in LEVELS:
        for system in report.systems:
            known = report.estimates.get(system, {})
            most = max((known[key].n for kind, _, _ in columns if (key := f"{kind}.{level}") in known), default=None)
            cells = [_estimate(report, system, f"{kind}.{level}") for kind, _, _ in columns]
            rows.append([LEVEL_NAMES[level], system, *cells, None if most is None else Figure(most, "count")])
    return Table(name, [*heads, Column("n", about="runs behind the figure that has the most")], rows, keys=2)


def _estimate(report: ReportContext, system: str, score: str) -> Figure | None:
    known = report.estimates.get(system, {}).get(score)
    return None if known is None else Figure(known.value, "score", known.low, known.high)


def comparison_page(found: Any) -> Page:
    """Two sets compared, as a page."""
    section = comparison_section(found)
    section.id = "metrics"
    notes = list(found.notes)
    for names, has, lacks in ((found.only_a, found.a, found.b), (found.only_b, found.b, found.a)):
        if names:
            notes.append(f"{_n(len(names), 'instance')} of {has or 'A'} not in {lacks or 'B'}, left out: {_ids(names)}")
    return _page(
        section.title,
        [("A", found.a or "A"), ("B", found.b or "B")],
        [],
        [section],
        notes,
        range(found.shared),
        ["A", "B"],
    )


def _page(
    title: str,
    facts: list[tuple[str, str]],
    verdicts: list[Sentence],
    sections: list[Section],
    notes: list[str],
    rows: Sequence[Any],
    systems: list[str],
) -> Page:
    return Page(
        title=title,
        facts=facts,
        systems=systems,
        baseline=None,
        score_field=None,
        verdicts=verdicts,
        cards=[card_of(each) for each in verdicts],
        sections=sections,
        notes=notes,
        rows=cast(Any, rows),  # only counted
        score_names=[],
        examples=len({getattr(row, "instance_id", row) for row in rows}),
        summary={label: {} for label in systems},
        estimates={},
        comparisons=[],
        wire={},
        failures={},
        timing={},
        config={},
        manifest={},
    )


def facts_of(summary: TraceSummary) -> list[tuple[str, str]]:
    """The conditions on which the figures depend."""
    told = summary.about
    gold = told.get("gold") or {}
    facts = [(label, str(told[key])) for label, key in (("policy", "policy"), ("symbols", "profile")) if key in told]
    if gold:
        tasks = gold.get("instances") or 0
        facts.append(("gold", f"{gold.get('name')}, {_n(tasks, 'task')}, {gold.get('sha')}"))
    if told.get("counted"):
        facts.append(("counted beside what was shown", ", ".join(told["counted"])))
    if "grammars" in told:
        known = told["grammars"]
        facts.append(
            (
                "grammars",
                f"tree-sitter {known['tree-sitter']}, {len(known) - 1} languages" if known else "none installed",
            )
        )
    return facts


def extra_sections(summary: TraceSummary) -> list[Section]:
    """Counts of the rows, solve rate, regions and languages."""
    return [
        one for one in (_rows(summary), _solving(summary), _regions(summary), _languages(summary)) if one is not None
    ]


def notes_of(summary: TraceSummary) -> list[str]:
    """Items that are in none of the figures, by name if the list is short."""
    notes = []
    gold = summary.about.get("gold") or {}
    for reason, count in (gold.get("skipped") or {}).items():
        notes.append(f"{_n(count, 'row')} of the gold could not be used: {reason}")
    if gold.get("repeated"):
        notes.append(f"ids that the gold has more than once, the first counts: {_ids(gold['repeated'])}")
    for label, one in summary.sets.items():
        name = f"{label}: " if label else ""
        if one.without_trace:
            notes.append(
                f"{name}{_n(len(one.without_trace), 'task')} of the gold without a trace, in no figure: "
                f"{_ids(one.without_trace)}"
            )
        if lost := [row.instance_id for row in one.rows if row.error == "no_gold"]:
            notes.append(f"{name}{_n(len(lost), 'trace')} about no task of the gold: {_ids(lost)}")
        told = troubles(one.rows)
        for reason, count in told["without_repository"].items():
            notes.append(f"{name}{_n(count, 'row')} scored without a repository (no bytes, no symbols): {reason}")
        moved = told["gold_content_mismatch"]
        if moved["rows"]:
            where = f"{_n(moved['items'], 'piece')} of gold, in {_n(moved['rows'], 'row')}"
            notes.append(f"{name}{where}, with text that the repository has not at these lines: check the commit")
        if told["skipped_records"]:
            total = sum(told["skipped_records"].values())
            most = ", ".join(
                f"{reason} ({count:,}×)"
                for reason, count in sorted(told["skipped_records"].items(), key=lambda p: -p[1])[:3]
            )
            notes.append(f"{name}{_n(total, 'record')} of the logs passed over: {most}")
        if told["no_reads"]:
            notes.append(
                f"{name}{_n(told['no_reads'], 'run')} that read nothing with a tool that is known: line coverage 0, "
                "not left out"
            )
    for path, reason in list(summary.unread.items())[:_NAMED]:
        notes.append(f"not a trace: {path}: {reason}")
    if len(summary.unread) > _NAMED:
        notes.append(f"and {len(summary.unread) - _NAMED:,} more files that are no traces")
    for group in summary.duplicates[:_NAMED]:
        names = [
            f"{run}/{name}" + (f" ({attempt})" if attempt > 1 else "") if run else name for run, name, attempt in group
        ]
        notes.append(f"one artefact was handed in {len(group)} times: {_ids(names)}")
    if len(summary.duplicates) > _NAMED:
        notes.append(f"and {len(summary.duplicates) - _NAMED:,} more artefacts that were handed in more than once")
    return notes


def _named(said: Sentence, label: str) -> Sentence:
    return said if label else Sentence("traces", "traces", said.text, said.tone)


def _n(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def _ids(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def _rows(summary: TraceSummary) -> Section:
    columns = [
        Column("Set", False),
        *map(Column, ("runs", "scored", "errors", "no trace", "steps", "lines/step", "tokens in", "USD", "seconds")),
    ]
    rows: list[list[Cell]] = []
    for label, one in summary.sets.items():
        scored = [row for row in one.rows if row.score is not None and not row.score.error]
        means = {name: value for name, (value, _) in totals(one.rows).items()}
        counts: list[Cell] = [
            Figure(n, "count") for n in (len(one.rows), len(scored), sum(one.errors.values()), len(one.without_trace))
        ]
        more = [
            _number(means["steps"], 1),
            _number(means["lines_per_step"], 1),
            None if means["input_tokens"] is None else Figure(means["input_tokens"], "tokens"),
            None if means["cost"] is None else Figure(means["cost"], "usd"),
            _number(means["seconds"], 1),
        ]
        rows.append([label or "traces", *counts, *more])
    table = Table(
        "rows",
        columns,
        rows,
        about="Means are over the runs that tell. Errors and tasks without a trace are in no mean.",
    )
    return Section("rows", "Runs", tables=[table])


def _solving(summary: TraceSummary) -> Section | None:
    known = {label: one.solving for label, one in summary.sets.items() if one.solving is not None}
    if not known:
        return None
    columns = [
        Column("Set", False),
        *map(Column, ("solve rate (95 %)", "resolved", "unresolved", "error", "unknown", "infra")),
    ]
    rows: list[list[Cell]] = []
    for label, one in known.items():
        rate = one.clustered or one.rate
        counts = [Figure(one.counts[name], "count") for name in ("resolved", "unresolved", "error", "unknown", "infra")]
        rows.append([label or "traces", _share(rate), *counts])
    tables = [
        Table(
            "solved",
            columns,
            rows,
            about=f"Of all tasks of the run; no verdict is not resolved. {_infra(known)}".strip(),
        )
    ]
    tables.append(_read_and_solved(known))
    if any(one.terciles for one in known.values()):
        tables.append(_terciles(known))
    notes = [_quadrants(label, one) for label, one in known.items()]
    tables[-1].about = " ".join([*filter(None, notes), f"All of this is {next(iter(known.values())).caveat}."])
    return Section("solving", "Solved, and read", tables=tables)


def _infra(known: Mapping[str, Solving]) -> str:
    left = sum(one.excluded_infra for one in known.values())
    return f"{left:,} failures of the machinery are left out." if left else ""


def _read_and_solved(known: Mapping[str, Solving]) -> Table:
    first = next(iter(known.values()))
    columns = [
        Column("Set", False),
        *map(
            Column, ("read, solved", "read, failed", "unread, solved", "unread, failed", "correlation (95 %)", "tasks")
        ),
    ]
    rows: list[list[Cell]] = []
    for label, one in known.items():
        names = ("covered_resolved", "covered_unresolved", "uncovered_resolved", "uncovered_unresolved")
        counts = [Figure(one.table.get(name, 0), "count") for name in names]
        found = one.correlation
        r = None if found is None else Figure(found.value, "score", found.low, found.high, signed=True)
        rows.append([label or "traces", *counts, r, Figure(sum(one.table.values()), "count")])
    return Table(
        "read_solved", columns, rows, "Read and solved", f"Read: line coverage of {first.threshold:g} or more."
    )


def _terciles(known: Mapping[str, Solving]) -> Table:
    columns = [Column("Set", False), Column("line coverage", False), Column("solved (95 %)"), Column("tasks")]
    rows: list[list[Cell]] = [
        [label or "traces", f"{third.low:.3f} to {third.high:.3f}", _share(third.rate), Figure(third.n, "count")]
        for label, one in known.items()
        for third in one.terciles
    ]
    return Table("terciles", columns, rows, "Solved by third of coverage")


def _quadrants(label: str, one: Solving) -> str:
    name = f"{label}: " if label else ""
    said = []
    if one.read_failed:
        said.append(f"{name}read it, failed: {_ids(one.read_failed)}.")
    if one.solved_unread:
        said.append(f"{name}solved unread: {_ids(one.solved_unread)}.")
    return " ".join(said)


def _regions(summary: TraceSummary) -> Section | None:
    if not any("add" in one.regions for one in summary.sets.values()):
        return None
    columns = [Column("Level", False), Column("Set", False), Column("to edit (95 %)"), Column("to know (95 %)")]
    rows: list[list[Cell]] = [
        [LEVEL_NAMES[level], label or "traces", *(_region(one, name, level) for name in ("init", "add"))]
        for level in LEVELS
        for label, one in summary.sets.items()
    ]
    about = (
        "Coverage of the region that had to be edited (init) and of what had to be known for it (add), each "
        "for itself; means over tasks."
    )
    return Section("regions", "Gold by what it is for", tables=[Table("regions", columns, rows, about=about, keys=2)])


def _region(one: SetSummary, name: str, level: str) -> Cell:
    found = one.regions.get(name)
    return figure(found.figures.get(f"macro.coverage.{level}")) if found is not None else None


def _languages(summary: TraceSummary) -> Section | None:
    if not any(one.languages for one in summary.sets.values()):
        return None
    columns = [Column("Language", False), Column("Set", False)]
    columns += [Column(f"{level} {name}") for level in ("file", "line") for name in ("coverage", "precision")] + [
        Column("F1 line"),
        Column("rows"),
    ]
    keys = (
        "macro.coverage.file",
        "macro.precision.file",
        "macro.coverage.line",
        "macro.precision.line",
        "f1_macro.line",
    )
    rows: list[list[Cell]] = [
        [
            name or "(none)",
            label or "traces",
            *(figure(found.figures.get(key)) for key in keys),
            Figure(found.rows, "count"),
        ]
        for label, one in summary.sets.items()
        for name, found in one.languages.items()
    ]
    return Section("languages", "By language", tables=[Table("languages", columns, rows, keys=2)])


def _number(value: float | None, digits: int) -> Figure | None:
    return None if value is None else Figure(value, digits=digits)


def _share(rate: Interval | None) -> Figure | None:
    return None if rate is None else Figure(rate.value, "share", rate.low, rate.high)


def comparison_section(found: Any) -> Section:
    """Two sets on the instances both have (`traces.TraceComparison`), as tables."""
    columns = [
        Column("Figure", False),
        Column(found.a or "A"),
        Column(found.b or "B"),
        Column("B − A (95 %)"),
        Column("n"),
    ]
    rows: list[list[Cell]] = []
    for name, one in found.figures.items():
        if one.n and (one.a or one.b):
            unit: Any = "score" if "." in name else "usd" if name == "cost" else "number"
            shown = Figure(one.difference, unit, one.low, one.high, signed=True)
            rows.append([name, Figure(one.a, unit), Figure(one.b, unit), shown, Figure(one.n, "count")])
    about = "Means over the instances both have. Intervals draw repositories again; with fewer than 6 there is none."
    tables = [Table("differences", columns, rows, about=about)]
    if (solved := found.solved) is not None:
        heads = ("both", f"only {found.a or 'A'}", f"only {found.b or 'B'}", "neither")
        counts = (solved.both, len(solved.only_a), len(solved.only_b), solved.neither)
        cells: list[Cell] = [Figure(solved.n, "count"), *(Figure(n, "count") for n in counts), Figure(solved.p, "p")]
        tables.append(
            Table(
                "mcnemar", [Column("instances"), *map(Column, heads), Column("p (McNemar)")], [cells], "Solved", keys=0
            )
        )
    return Section(
        "comparison", f"{found.b or 'B'} against {found.a or 'A'}, {_n(found.shared, 'shared instance')}", tables=tables
    )


# --- a row ---


def steps_and_diff(stored: StoredRow) -> list[RowPart]:
    """The diff of a recorded run whole, the gold that it missed, and what each of its calls looked at."""
    diff, line = stored.output.get("response"), stored.output.get("row")
    parts = (
        [RowPart(title="The diff", text=diff, changes=True, replaces=("answer",))]
        if isinstance(diff, str) and diff
        else []
    )
    if not isinstance(line, str):
        return parts
    row = TraceRow.from_json(load_json(line))
    missed = [(path, ranges_text(ranges), size(ranges)) for path, ranges in row.missed.items()]
    gold = sum(size(one.gold) for one in row.files.values())
    if row.score is None:
        parts.append(
            RowPart(title="Gold", note=f"Not scored: {row.error or 'nothing says what should have been read'}.")
        )
    elif gold:
        lines = sum(count for _, _, count in missed)
        note = f"{lines:,} of {gold:,} lines were not read." if lines else f"All {gold:,} lines were read."
        parts.append(
            RowPart(
                title="Gold that was missed",
                note=note,
                columns=("file", "lines", "count") if missed else (),
                rows=missed,
            )
        )
    steps = tuple(RowStep(_step_title(step), _step_facts(step), _looked(step)) for step in row.steps)
    note = "What was called with stays in the log (`trace show LOG`): a scored run keeps what each call looked at."
    return [*parts, RowPart(title="Transcript", note=note, steps=steps)]


def _step_title(step: StepView) -> str:
    tools = dict.fromkeys(call.tool or call.kind for call in step.calls)
    return f"Step {step.step}" + (f": {', '.join(tools)}" if tools else "")


def _step_facts(step: StepView) -> tuple[tuple[str, str], ...]:
    told = [("turn", f"{step.turn}")] if step.turn is not None else []
    told += [("tokens before", f"{step.tokens:,}")] if step.tokens is not None else []
    told += [
        (f"{LEVEL_NAMES.get(name, name)} read", coverage_text(step.coverage.get(name)))
        for name in ("file", "line")
        if name in step.coverage
    ]
    return tuple(told)


def _looked(step: StepView) -> tuple[tuple[str, str], ...]:
    looked = [f"{call.path}: {range_words(call)}" if call.path else "no file" for call in step.calls]
    return (("looked at", "\n".join(looked)),) if looked else ()
