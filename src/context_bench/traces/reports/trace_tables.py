"""The tables of a page of scored traces, each figure with its interval and how many runs it rests on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from context_bench.core.ledger import size
from context_bench.core.measures import percent
from context_bench.reports.page import Cell, Column, Figure, Section, Sentence, Table
from context_bench.stats.solving import Solving
from context_bench.traces.coverage import LEVELS, POLICIES
from context_bench.traces.figures import FigureMean, Means, means
from context_bench.traces.reports.views import ABOUT, LEVEL_NAMES, PROVENANCES, evidence, kind_of, mean_after
from context_bench.traces.trace_rows import TraceRow

Sets = Mapping[str, Sequence[TraceRow]]
_QUARTERS = (0.25, 0.5, 0.75)
_FINAL = (
    ("macro.coverage", "coverage (95 %)", "of the gold, the share that was read (recall); mean over tasks"),
    ("macro.precision", "precision (95 %)", "of what was read, the share that is gold; mean over tasks"),
    ("f1_macro", "F1 (95 %)", "mean over tasks of each task's F1"),
    (
        "f1_of_means",
        "F1 of means (95 %)",
        "harmonic mean of mean coverage and mean precision; published tables mix both recipes",
    ),
)
_SUMS = (
    (
        "micro.coverage",
        "coverage (95 %)",
        "gold read by all tasks together over gold of all tasks: long golds weigh more",
    ),
    ("micro.precision", "precision (95 %)", "gold read by all tasks together over everything read"),
)
_COURSE = (
    ("macro.auc", "AUC (95 %)", "mean over the steps of the coverage reached by then"),
    ("macro.redundancy", "redundancy (95 %)", "share of all reading that read something again"),
    (
        "macro.redundancy_excluding_after_edit",
        "re-reads after edits allowed",
        "redundancy, where reading a file again after it was edited is no waste",
    ),
    (
        "macro.usage_drop",
        "usage drop (95 %)",
        "of the gold seen, the share that the agent's own final context leaves out",
    ),
)
_OVER = (
    ("macro.auc_tokens", "over tokens (95 %)", "mean coverage over the tokens the model processed"),
    ("macro.auc_seconds", "over seconds (95 %)", "mean coverage over time"),
)
_EDITS = (
    (
        "macro.editloc_precision",
        "precision (95 %)",
        "of the lines the patch deletes, the share inside the gold's edit region",
    ),
    (
        "macro.editloc_recall",
        "recall (95 %)",
        "of the lines the reference patch deletes, the share that this patch deletes",
    ),
    (
        "macro.editloc_anchored_precision",
        "with insertions",
        "the first figure, insertions counted by the old line they follow",
    ),
)


def figures(rows: Sequence[TraceRow]) -> Means:
    """The figures of one set over the runs that have a score, clustered by repository."""
    scored = [row for row in rows if row.score is not None]
    return means(
        [row.score for row in scored if row.score is not None], [row.repo or row.instance_id for row in scored]
    )


def figure(mean: FigureMean | None) -> Figure | None:
    """A cell with its interval."""
    return None if mean is None or mean.value is None else Figure(mean.value, "score", mean.low, mean.high)


def scored_sections(sets: Sets, found: Mapping[str, Means]) -> list[Section]:
    """Final coverage, the course of the runs, edits."""
    several = len(sets) > 1
    final = [
        _levels("final", _FINAL, found, several, _FINAL_ABOUT),
        _levels("sums", _SUMS, found, several, _SUMS_ABOUT, "All tasks together (micro)"),
    ]
    course = [
        _levels("course", _COURSE, found, several, _COURSE_ABOUT),
        _levels("over", _OVER, found, several, "", "AUC by other clocks"),
    ]
    return [
        Section("final", "What had been read in the end", tables=[table for table in final if table]),
        Section("course", "In the course of the run", tables=[*(table for table in course if table), _quarters(sets)]),
        Section("editloc", "Where the patches edit", tables=[_edits(sets, found)]),
    ]


_FINAL_ABOUT = (
    "Coverage is recall. Symbol is what the ContextBench paper and board call block (a definition of the syntax tree, "
    "every enclosing one "
    "counted); span is bytes. A dash: nothing to divide by (no gold of that level, or nothing read). Intervals are "
    "clustered by repository "
    "and need at least six."
)
_SUMS_ABOUT = (
    "Gold read by all tasks together over all of their gold, and over everything read: tasks with much gold weigh more."
)
_COURSE_ABOUT = "Steps are the calls that read, search or list."


def by_set(found: Mapping[str, Means]) -> Section:
    """A line for each set: coverage at every level, and precision and F1 of the lines. For many sets, which would take
    a page with a line for each level.
    """
    told = {f"{LEVEL_NAMES[level]} coverage": f"macro.coverage.{level}" for level in LEVELS}
    told |= {"line precision": "macro.precision.line", "line F1": "f1_macro.line"}
    columns = [Column("Set", False), *map(Column, told)]
    rows: list[list[Cell]] = [
        [label, *(_value(one.figures.get(key)) for key in told.values())] for label, one in found.items()
    ]
    about = "Means over tasks; coverage is recall. Intervals and the other figures of each level stand in the appendix."
    return Section("by-set", "What had been read in the end", tables=[Table("by-set", columns, rows, about=about)])


def _value(mean: FigureMean | None) -> Figure | None:
    return None if mean is None else _score(mean.value)


def _levels(
    name: str,
    kinds: Sequence[tuple[str, str, str]],
    found: Mapping[str, Means],
    several: bool,
    about: str,
    title: str = "",
) -> Table | None:
    """A row for each level and set, a column for each kind of figure that somebody has; `None` if nobody has any."""
    used = [
        each
        for each in kinds
        if any(
            one.figures.get(f"{each[0]}.{level}", FigureMean(None)).value is not None
            for one in found.values()
            for level in LEVELS
        )
    ]
    if not used:
        return None
    columns = [
        Column("Level", False),
        *([Column("Set", False)] if several else []),
        *(Column(title, about=told) for _, title, told in used),
    ]
    columns.append(Column("n", about="tasks that have such a figure; where columns differ, the largest number of them"))
    rows: list[list[Cell]] = []
    for level in LEVELS:
        for label, one in found.items():
            cells = [one.figures.get(f"{key}.{level}") for key, _, _ in used]
            counts = [cell.n for cell in cells if cell is not None]
            n = Figure(max(counts), "count") if counts else None
            rows.append([LEVEL_NAMES[level], *([label] if several else []), *(figure(cell) for cell in cells), n])
    return Table(name, columns, rows, title, about, keys=2 if several else 1)


_EDITS_ABOUT = (
    "Of the lines a patch deletes (or replaces), those that the gold says had to be edited. Recall needs the "
    "reference patch in the gold; ContextBench's own code calls the first figure recall as well."
)


def _quarters(sets: Sets) -> Table:
    columns = [Column("Set", False)]
    columns += [
        Column(
            f"lines after {100 * share:.0f} %", about="mean line coverage when this share of the run's steps was done"
        )
        for share in _QUARTERS
    ]
    columns += [
        Column("step of first gold", about="median step that read the first gold file, over the runs that read one"),
        Column("no gold file", about="runs that never read any file of the gold"),
        Column("lines per step", about="mean, over the steps that read lines"),
        Column("steps", about="median number of calls that read, search or list"),
    ]
    rows: list[list[Cell]] = []
    for label, runs in sets.items():
        scored = [row.score for row in runs if row.score is not None and not row.score.error]
        firsts = [step for one in scored if (step := one.first_gold.get("step")) is not None]
        lines = [one.lines_per_step for one in scored if one.lines_per_step is not None]
        cells: list[Cell] = [_score(mean_after(runs, "line", share)[0]) for share in _QUARTERS]
        none = Figure(len(scored) - len(firsts), "count") if scored else None
        rows.append([label, *cells, _median(firsts), none, _mean(lines), _median([one.num_steps for one in scored])])
    return Table("quarters", columns, rows, title="How early")


def _edits(sets: Sets, found: Mapping[str, Means]) -> Table:
    columns = [Column("Set", False), *(Column(title, about=told) for _, title, told in _EDITS)]
    columns += [
        Column("patches", about="runs whose patch could be read"),
        Column("no patch", about="scored runs without one"),
    ]
    rows: list[list[Cell]] = []
    for label, one in found.items():
        scored = [row.score for row in sets[label] if row.score is not None and not row.score.error]
        patches = sum(1 for score in scored if score.editloc)
        counts = [Figure(patches, "count"), Figure(len(scored) - patches, "count")]
        rows.append([label, *(figure(one.figures.get(key)) for key, _, _ in _EDITS), *counts])
    return Table("editloc", columns, rows, about=_EDITS_ABOUT)


def evidence_section(sets: Sets) -> Section:
    """The evidence of the scores."""
    known = {label: evidence(rows) for label, rows in sets.items()}
    names = list(dict.fromkeys(name for name in PROVENANCES if any(name in one.counts for one in known.values())))
    names += sorted({name for one in known.values() for name in one.counts} - set(names))
    columns = [Column("Set", False), Column("reads"), Column("guesses", about="reads that no output of a tool shows")]
    columns += [
        Column(name.replace("_", " "), about=f"{kind_of(name)}: {PROVENANCES.get(name, ('', name))[1]}")
        for name in names
    ]
    columns += [
        Column("failed reads", about="of files that are not there, or with an error; they count as nothing"),
        Column("cut", about="calls whose output was cut: only what was shown counts"),
    ]
    rows: list[list[Cell]] = []
    for label, one in known.items():
        shares: list[Cell] = [_share(one.guessed), *(Figure(one.counts.get(name, 0), "count") for name in names)]
        rows.append(
            [
                label,
                Figure(one.reads, "count"),
                *shares,
                _total(sets[label], "failed_reads"),
                _total(sets[label], "truncated"),
            ]
        )
    return Section("evidence", "What the scores rest on", tables=[Table("evidence", columns, rows, about=ABOUT)])


def problems_section(sets: Sets) -> Section | None:
    """Runs not scored, or only in part, with the reasons; nothing is left out silently."""
    kinds: dict[str, Counter[str]] = {
        label: Counter(kind for row in rows for kind in problems(row)) for label, rows in sets.items()
    }
    names = list(dict.fromkeys(kind for counts in kinds.values() for kind in counts))
    if not names:
        return None
    columns = [Column("Problem", False), *(Column(label) for label in sets)]
    table = Table(
        "problems", columns, [[name, *(Figure(kinds[label][name], "count") for label in sets)] for name in names]
    )
    table.about = "Runs with the problem. What it was stands with each run."
    return Section("problems", "Problems", tables=[table])


def problems(row: TraceRow) -> list[str]:
    """The kinds of problem of one run, the gravest first; their particulars are with the run."""
    score = row.score
    told = [
        f"not scored: {why}"
        for why in [row.error or (score.error if score else "no score")]
        if why and (score is None or score.error)
    ]
    if row.error and not told:
        told.append(row.error)
    checks: tuple[tuple[str, object], ...] = (
        ("gold files not in the repository", score and score.gold_missing_files),
        ("gold text not at its lines (drift)", row.drift),
        ("paths that could not be resolved", score and score.unresolved),
        ("records of the log skipped", row.skipped),
    )
    return told + [name for name, there in checks if there]


def tells_missed(row: TraceRow) -> bool:
    """True if files and missed gold of a run are known: not under the original's policy, whose lines are no lines of
    files.
    """
    policy = POLICIES.get(row.policy)
    return row.score is not None and not (policy is not None and policy.upstream)


def sentence(label: str, rows: Sequence[TraceRow], found: Means, solved: Solving | None = None) -> Sentence:
    """A set in words: what was read, how surely, what came of it."""
    scored = found.rows - sum(found.errors.values())
    line = found.figures.get("macro.coverage.line")
    runs = f"{len(rows):,} run{'s' if len(rows) != 1 else ''}"
    if not scored or line is None or line.value is None:
        read = [row for row in rows if row.statistics.get("steps")]
        if scored:
            return Sentence(
                label,
                label,
                f"{runs}; the lines of the gold are in none of the repositories: check gold and commit.",
                "bad",
            )
        return Sentence(
            label, label, f"{runs}, none scored against a gold ({len(read):,} with calls): see the notes.", "bad"
        )
    repos = len({row.repo or row.instance_id for row in rows})
    parts = [f"{runs}, {repos:,} repositor{'ies' if repos != 1 else 'y'}"]
    read_lines = f"read {_figure_text(line)} of the gold lines"
    precision = figure(found.figures.get("macro.precision.line"))
    parts.append(f"{read_lines} at precision {precision.text}" if precision else read_lines)
    missed = sum(size(ranges) for row in rows for ranges in row.missed.values())
    if any(tells_missed(row) for row in rows):
        parts.append(
            f"{missed:,} gold line{'s were' if missed != 1 else ' was'} never read"
            if missed
            else "no gold line was missed"
        )
    if solved is not None and solved.rate is not None:
        interval = solved.clustered or solved.rate
        rate = Figure(interval.value, "share", interval.low, interval.high)
        told = f"solved {solved.counts['resolved']:,} of {solved.n:,} = {rate.text}"
        parts.append(
            f"{told}, {len(solved.read_failed):,} read and failed, {len(solved.solved_unread):,} solved unread"
        )
    first = "; ".join(parts) + "."
    guessed = evidence(rows).guessed
    if guessed is not None:
        first += (
            f" {percent(guessed)} of the reads are guesses{': take the figures with care' if guessed >= 0.25 else ''}."
        )
    if len(rows) > scored:
        first += f" {len(rows) - scored:,} of the runs could not be scored and are in no figure."
    return Sentence(label, label, first, "bad" if guessed is not None and guessed >= 0.5 else "neutral")


def _figure_text(mean: FigureMean | None) -> str:
    shown = figure(mean)
    return shown.text if shown else "—"


def _score(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "score")


def _share(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "share")


def _mean(values: Sequence[float]) -> Figure | None:
    return Figure(sum(values) / len(values), "number", digits=1) if values else None


def _median(values: Sequence[float]) -> Figure | None:
    if not values:
        return None
    middle = statistics.median(values)
    return Figure(middle, "number", digits=0 if middle == int(middle) else 1)


def _total(rows: Sequence[TraceRow], name: str) -> Figure | None:
    known = [value for row in rows if isinstance(value := row.statistics.get(name), int)]
    return Figure(sum(known), "count") if known else None
