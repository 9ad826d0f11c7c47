"""What stands behind one run: its figures, its curve, what it missed, its files and its steps, cut to the room there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from context_bench.core.spans import size
from context_bench.reports.page import Cell, Column, Figure, Table
from context_bench.traces.coverage import LEVELS
from context_bench.traces.reports.curve import LEVEL_NAMES, Curve, run_curve
from context_bench.traces.reports.filemap import Map, file_map, in_order, ranges_text
from context_bench.traces.reports.provenance import evidence, kind_of
from context_bench.traces.rows import CallView, StepView, TraceRow


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run is shown."""

    steps: int = 400
    files: int = 40
    missed: int = 200
    calls: int = 12  # files of one step

    @classmethod
    def of(cls, room: int) -> Limits:
        """As much as goes into about that many bytes."""
        return cls(
            max(8, min(400, room // 1000)), max(3, min(40, room // 3300)), max(6, min(200, room // 1000)), max(3, min(12, room // 3300))
        )


@dataclass(frozen=True, slots=True)
class CallLine:
    """One file a step looked at. `ranges`: in words; `known_from`: class of the evidence."""

    tool: str
    path: str
    ranges: str
    provenance: str
    known_from: str


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step. `coverage`: file and line coverage after it; `gained`: it read gold for the first time."""

    step: int
    calls: list[CallLine]
    more: int
    failed: bool
    coverage: tuple[str, str]
    gained: bool


@dataclass(frozen=True, slots=True)
class Run:
    """All of it."""

    facts: list[tuple[str, str]]
    warnings: list[str]
    levels: Table | None
    curve: Curve | None
    missed: list[tuple[str, str, int]]
    missed_left: int
    maps: list[Map]
    maps_left: int
    steps: list[StepLine]
    steps_left: int
    guessed: float | None


def run_view(row: TraceRow, limits: Limits) -> Run:
    """What is shown of a run."""
    missed = sorted(row.missed.items(), key=lambda item: (-size(item[1]), item[0]))
    maps = [made for path, one in in_order(row) if (made := file_map(path, one)) is not None]
    kept = kept_steps(row.steps, limits.steps)
    return Run(
        facts(row),
        warnings(row),
        levels(row),
        run_curve(row),
        [(path, ranges_text(ranges, 40), size(ranges)) for path, ranges in missed[: limits.missed]],
        max(0, len(missed) - limits.missed),
        maps[: limits.files],
        max(0, len(maps) - limits.files),
        list(_lines(kept, limits.calls)),
        len(row.steps) - len(kept),
        evidence([row]).guessed,
    )


def facts(row: TraceRow) -> list[tuple[str, str]]:
    """What the run was."""
    told: list[tuple[str, str | None]] = [
        ("repository", row.repo and (f"{row.repo} @ {row.commit[:12]}" if row.commit else row.repo)),
        ("language", row.language),
        ("agent", row.agent),
        ("model", row.model),
        ("attempt", str(row.attempt) if row.attempt > 1 else None),
        ("patch", row.status if row.status != "unknown" else None),
        ("steps", str(row.score.num_steps) if row.score else None),
        ("calls", _text(row.statistics.get("steps"))),
        ("failed reads", _text(row.statistics.get("failed_reads"))),
        ("tokens in", f"{row.usage.input_tokens:,}" if row.usage and row.usage.input_tokens is not None else None),
        ("tokens out", f"{row.usage.output_tokens:,}" if row.usage and row.usage.output_tokens is not None else None),
        ("cost", Figure(row.cost, "usd").text if row.cost is not None else None),
        ("time", Figure(row.seconds, "seconds").text if row.seconds is not None else None),
        ("policy", row.policy),
        ("also counted", ", ".join(row.counted)),
        ("trace", row.trace_sha[:12]),
    ]
    known = evidence([row])
    if known.reads:
        told.insert(-2, ("reads known from", ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in known.counts.items())))
    return [(label, value) for label, value in told if value]


def warnings(row: TraceRow) -> list[str]:
    """What keeps the figures from meaning what they seem to mean."""
    score, known = row.score, evidence([row])
    out = []
    if why := row.error or (score.error if score else None):
        out.append(f"{'not scored' if score is None or score.error else 'fault'}: {why}")
    if known.guesses:
        out.append(f"{known.guesses} of {known.reads} reads are guesses: no output of a tool shows their lines")
    if score and score.gold_missing_files:
        out.append(f"gold files that are not in the repository: {_several(score.gold_missing_files)}")
    out += [f"drift: {_drift(one)}" for one in row.drift[:5]]
    if len(row.drift) > 5:
        out.append(f"drift: {len(row.drift) - 5} more places")
    if score and score.unresolved:
        named = [f"{path} ({count})" if count > 1 else path for path, count in score.unresolved.most_common()]
        out.append(f"paths that could not be resolved, and count as nothing: {_several(named)}")
    if row.skipped:
        out.append(f"records of the log that could not be read: {_several([f'{why} ({count})' for why, count in row.skipped.items()])}")
    return [*out, *(_NOTES.get(note, note) for note in dict.fromkeys([*row.notes, *(score.notes if score else ())]))]


_NOTES = {"no_patch": "no patch in the log: whether it edits at the right place is not known", "patch_unreadable": "the patch is no diff"}


def levels(row: TraceRow) -> Table | None:
    """The figures of one run, a row for each level."""
    score = row.score
    if score is None or not score.final:
        return None
    columns = [Column("Level", False), Column("coverage"), Column("precision"), Column("F1")]
    columns += [Column("gold read", about="of the gold, how much was read"), Column("gold"), Column("read")]
    columns += [Column("AUC", about="mean over the steps of the coverage reached by then"), Column("redundancy")]
    rows: list[list[Cell]] = []
    for name in LEVELS:
        one = score.final.get(name)
        if one is not None:
            sizes = [Figure(each, "count") for each in (one.intersection, one.gold_size, one.pred_size)]
            shares = [_score(each) for each in (one.coverage, one.precision, one.f1)]
            rows.append([LEVEL_NAMES[name], *shares, *sizes, _score(score.auc.get(name)), _score(score.redundancy.get(name))])
    edits = score.editloc or {}
    about = ""
    if edits:
        told = [f"{name} {edits[key]:.3f}" for name, key in _EDIT_FIGURES if isinstance(edits.get(key), int | float)]
        about = f"Edits: {edits.get('intersection', 0)} of {edits.get('pred_size', 0)} deleted lines lie in the gold's edit region"
        about += f" ({', '.join(told)})." if told else "."
    return Table("levels", columns, rows, about=about)


_EDIT_FIGURES = (("precision", "precision"), ("recall of the reference's", "recall"), ("with insertions", "anchored_precision"))


def kept_steps(steps: Sequence[StepView], most: int) -> list[StepView]:
    """All steps, or, of too many, first those that gained coverage, then those that edited or failed, then the earliest; in their order."""
    if len(steps) <= most:
        return list(steps)
    ranked: list[tuple[int, int]] = []
    before: dict[str, float | None] = {}
    for place, step in enumerate(steps):
        gained = any((value or 0) > (before.get(name) or 0) for name, value in step.coverage.items())
        telling = any(call.kind == "edit" or not call.ok for call in step.calls)
        ranked.append((0 if gained else 1 if telling else 2, place))
        before = step.coverage or before
    return [steps[place] for place in sorted(place for _, place in sorted(ranked)[:most])]


def _lines(steps: Sequence[StepView], most: int) -> Iterator[StepLine]:
    before = 0.0
    for step in steps:
        line = step.coverage.get("line")
        gained = line is not None and line > before
        before = max(before, line or 0.0)
        shown = [call for call in step.calls if call.path] or step.calls
        yield StepLine(
            step.step,
            [_call(call) for call in shown[:most]],
            max(0, len(shown) - most),
            bool(step.calls) and not any(call.ok for call in step.calls),
            (coverage_text(step.coverage.get("file")), coverage_text(line)),
            gained,
        )


def _call(call: CallView) -> CallLine:
    return CallLine(
        call.tool or call.kind,
        call.path or "",
        range_words(call),
        call.provenance.replace("_", " ") if call.path and call.kind != "edit" else "",
        kind_of(call.provenance) if call.ok else "failed",
    )


def range_words(call: CallView) -> str:
    """What a call showed of its file."""
    if not call.path:
        return ""
    if not call.ok:
        return "failed"
    if call.strength == "listed":
        return "name only"
    if call.ranges == "all":
        return "all"
    if not call.ranges:
        return "edited" if call.kind == "edit" else "lines not known"
    return ("edit " if call.kind == "edit" else "") + ranges_text(call.ranges)


def coverage_text(value: float | None) -> str:
    """`0.25`; a dash where it was not measured."""
    return "—" if value is None else f"{value:.2f}"


def _drift(one: dict[str, object]) -> str:
    moved = one.get("moved")
    where = f"its text begins at line {moved}" if moved else "its text is not in the file, or more than once"
    return f"{one.get('file')}:{one.get('first')}–{one.get('last')}: {where}"


def _several(items: Sequence[str], most: int = 5) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def _score(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "score")


def _text(value: object) -> str | None:
    return f"{value:,}" if isinstance(value, int) and value else None
