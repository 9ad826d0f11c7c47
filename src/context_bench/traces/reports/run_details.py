"""Details of one run, for the page and the terminal: its figures, its curve, missed gold, files and steps, cut to fit.

The terminal shows each step with its reads and their evidence, the coverage as it grew, and the gold that was missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.ledger import size
from context_bench.reports.page import MISSING, Cell, Column, Figure, Table
from context_bench.reports.table import drawn, packed
from context_bench.reports.visible_text import visible
from context_bench.traces.coverage import LEVELS
from context_bench.traces.reports.views import (
    LEVEL_NAMES,
    DrawnCurve,
    Map,
    evidence,
    file_map,
    in_order,
    kind_of,
    ranges_text,
    run_curve,
)
from context_bench.traces.trace_rows import CallView, StepView, TraceRow


@dataclass(frozen=True, slots=True)
class DetailLimits:
    """Limits on the details that are shown of a run."""

    steps: int = 400
    files: int = 40
    missed: int = 200
    calls: int = 12  # files of one step

    @classmethod
    def of(cls, room: int) -> DetailLimits:
        """As much as goes into about that many bytes."""
        return cls(
            max(8, min(400, room // 1000)),
            max(3, min(40, room // 3300)),
            max(6, min(200, room // 1000)),
            max(3, min(12, room // 3300)),
        )


@dataclass(frozen=True, slots=True)
class CallLine:
    """One file a step looked at. `ranges`: in words; `evidence_class`: class of the evidence."""

    tool: str
    path: str
    ranges: str
    provenance: str
    evidence_class: str


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
class RunDetails:
    """All of it."""

    facts: list[tuple[str, str]]
    warnings: list[str]
    levels: Table | None
    curve: DrawnCurve | None
    missed: list[tuple[str, str, int]]
    missed_left: int
    maps: list[Map]
    maps_left: int
    steps: list[StepLine]
    steps_left: int
    guessed: float | None


def run_view(row: TraceRow, limits: DetailLimits) -> RunDetails:
    """Details of a run as they are shown."""
    missed = sorted(row.missed.items(), key=lambda item: (-size(item[1]), item[0]))
    maps = [made for path, one in in_order(row) if (made := file_map(path, one)) is not None]
    kept = kept_steps(row.steps, limits.steps)
    return RunDetails(
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
    """Facts of the run."""
    entries: list[tuple[str, str | None]] = [
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
        entries.insert(
            -2,
            (
                "reads known from",
                ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in known.counts.items()),
            ),
        )
    return [(label, value) for label, value in entries if value]


def warnings(row: TraceRow) -> list[str]:
    """Warnings about figures that do not mean what they seem to mean."""
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
        out.append(
            "records of the log that could not be read: "
            f"{_several([f'{why} ({count})' for why, count in row.skipped.items()])}"
        )
    return [*out, *(_NOTES.get(note, note) for note in dict.fromkeys([*row.notes, *(score.notes if score else ())]))]


_NOTES = {
    "no_patch": "no patch in the log: whether it edits at the right place is not known",
    "patch_unreadable": "the patch is no diff",
}


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
            rows.append(
                [LEVEL_NAMES[name], *shares, *sizes, _score(score.auc.get(name)), _score(score.redundancy.get(name))]
            )
    edits = score.editloc or {}
    about = ""
    if edits:
        told = [f"{name} {edits[key]:.3f}" for name, key in _EDIT_FIGURES if isinstance(edits.get(key), int | float)]
        about = (
            f"Edits: {edits.get('intersection', 0)} of {edits.get('pred_size', 0)} deleted lines lie in the "
            "gold's edit region"
        )
        about += f" ({', '.join(told)})." if told else "."
    return Table("levels", columns, rows, about=about)


_EDIT_FIGURES = (
    ("precision", "precision"),
    ("recall of the reference's", "recall"),
    ("with insertions", "anchored_precision"),
)


def kept_steps(steps: Sequence[StepView], most: int) -> list[StepView]:
    """All steps, or, of too many, first those that gained coverage, then those that edited or failed, then the
    earliest; in their order.
    """
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
    """The lines that a call showed of its file, as text."""
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
    where = (
        f"its text begins at line {moved}, where it is scored"
        if moved
        else "its text is not in the file, or more than once"
    )
    return f"{one.get('file')}:{one.get('first')}–{one.get('last')}: {where}"


def _several(items: Sequence[str], most: int = 5) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def _score(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "score")


def _text(value: object) -> str | None:
    return f"{value:,}" if isinstance(value, int) and value else None


_BAR = 4  # columns of a bar of coverage
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEADS = {"file": "file", "symbol": "symb", "span": "span", "line": "line"}
_MOST_CALLS = 12  # files of one step
_MOST_MISSED = 100
_GUESS = "?"
_SHORT = {"output_numbered": "numbered", "output_matched": "matched", "self_report": "self report"}


def render(row: TraceRow, *, width: int | None = None, color: bool = False) -> str:
    """The run as text of at most `width` columns (80 if not given). Without `color` there is not one escape sequence in
    it.
    """
    return drawn(partial(_parts, row), width=width, color=color)


def _parts(row: TraceRow, width: int) -> Iterator[RenderableType]:
    yield Text(visible(row.instance_id), style="bold")
    for line in packed((f"{label} {visible(value, 160)}" for label, value in facts(row) if label != "steps"), width):
        yield Text(line, style="dim")
    scored = (
        row.score is not None
        and bool(row.score.steps)
        and any(value is not None for value in row.score.steps[-1].values())
    )
    yield Text("")
    if row.steps:
        yield _steps(row.steps, scored)
        yield Text(_legend(row, scored), style="dim")
    else:
        yield Text("No calls: the log shows none that read, searched, listed or edited.")
    yield from _figures(row, scored)
    yield from _missed(row)
    if told := warnings(row):
        yield Text("\nWarnings", style="bold")
        yield from (Text(f"- {visible(each, 600)}") for each in told)


def _steps(steps: Sequence[StepView], scored: bool) -> RichTable:
    table = RichTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="", expand=False
    )
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what was looked at", overflow="fold", ratio=1)
    before: dict[str, float | None] = {}
    for name in LEVELS if scored else ():
        table.add_column(_HEADS[name], no_wrap=True, min_width=_BAR)
    for step in steps:
        bars = [_bar(step.coverage.get(name), before.get(name)) for name in LEVELS] if scored else []
        table.add_row(str(step.step), _looked_at(step), *bars)
        before = step.coverage or before
    return table


def _looked_at(step: StepView) -> Text:
    """A line for each file of the step."""
    text = Text()
    shown = [call for call in step.calls if call.path] or step.calls[:1]
    for place, call in enumerate(shown[:_MOST_CALLS]):
        text.append("\n" if place else "")
        _call_row(text, call, first=not place or call.tool != shown[place - 1].tool)
    if len(shown) > _MOST_CALLS:
        text.append(f"\nand {len(shown) - _MOST_CALLS:,} more files", style="dim")
    return text if shown else Text(MISSING)


def _call_row(text: Text, call: CallView, first: bool) -> None:
    text.append(f"{visible(call.tool or call.kind, 40)} " if first else "  ", style="bold" if first else "")
    if not call.path:
        text.append("" if call.ok else "failed", style="red")
        return
    text.append(visible(call.path, 200))
    text.append(f" {range_words(call)}", style="red" if not call.ok else "magenta" if call.kind == "edit" else "cyan")
    if call.ok and call.kind != "edit":
        guess = kind_of(call.provenance) != "seen"
        name = visible(_SHORT.get(call.provenance, call.provenance), 30)
        text.append(f" ({name}{_GUESS if guess else ''})", style="yellow" if guess else "dim")


def _bar(value: float | None, before: float | None) -> Text:
    """Coverage as a bar of `_BAR` columns; bold where it grew. Whatever is above 0 shows, and only 1 fills it."""
    if value is None:
        return Text(MISSING, style="dim")
    eighths = min(max(round(value * 8 * _BAR), 1 if value > 0 else 0), 8 * _BAR if value >= 1 else 8 * _BAR - 1)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (_EIGHTHS[rest] if rest else "")
    text = Text(bar, style="bold green" if value > (before or 0.0) else "green")
    return text.append("·" * (_BAR - len(bar)), style="dim")


def _legend(row: TraceRow, scored: bool) -> str:
    parts = ["In brackets: what the lines are known from."]
    if any(
        call.ok and call.path and call.kind != "edit" and kind_of(call.provenance) != "seen"
        for step in row.steps
        for call in step.calls
    ):
        parts.append(f"{_GUESS}: a guess, no output of a tool shows these lines.")
    if scored:
        parts.append("Bars: coverage of the gold after the step (symb: symbols, the paper's blocks; span: bytes).")
    return " ".join(parts)


def _figures(row: TraceRow, scored: bool) -> Iterator[RenderableType]:
    score, table = row.score, levels(row)
    if not scored or score is None or table is None:
        return
    yield Text("\nIn the end", style="bold")
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="")
    for place, title in enumerate(("", "coverage", "precision", "F1", "AUC", "redundancy")):
        grid.add_column(title, justify="right" if place else "left", no_wrap=True)
    for name in LEVELS:
        if (one := score.final.get(name)) is not None:
            numbers = (one.coverage, one.precision, one.f1, score.auc.get(name), score.redundancy.get(name))
            grid.add_row("symbol/block" if name == "symbol" else name, *(_number(value) for value in numbers))
    yield grid
    if table.about:
        yield Text(table.about)


def _missed(row: TraceRow) -> Iterator[RenderableType]:
    gold = sum(size(one.gold) for one in row.files.values())
    if row.score is None:
        yield Text("\nNo gold: nothing says what should have been read.")
        return
    if not gold:
        yield Text(f"\nMissed gold: not told under policy {visible(row.policy)}.")
        return
    lines = sum(size(ranges) for ranges in row.missed.values())
    if not lines:
        yield Text(f"\nMissed gold: none, all {gold:,} lines were read.", style="bold")
        return
    yield Text(f"\nMissed gold: {lines:,} of {gold:,} lines", style="bold")
    missed = sorted(row.missed.items(), key=lambda item: (-size(item[1]), item[0]))
    for path, ranges in missed[:_MOST_MISSED]:
        yield Padding(Text(f"{visible(path, 200)}:{ranges_text(ranges, 40)}", overflow="fold"), (0, 0, 0, 2))
    if len(missed) > _MOST_MISSED:
        yield Text(f"  and {len(missed) - _MOST_MISSED:,} more files")


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"
