"""One run in a terminal: its steps, what each read and how that is known, coverage as it grew, and the gold that was missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.spans import size
from context_bench.reports.page import MISSING
from context_bench.reports.table import drawn, packed
from context_bench.reports.text import visible
from context_bench.traces.coverage import LEVELS
from context_bench.traces.reports.filemap import ranges_text
from context_bench.traces.reports.provenance import kind_of
from context_bench.traces.reports.runs import facts, levels, range_words, warnings
from context_bench.traces.rows import CallView, StepView, TraceRow

_BAR = 4  # columns of a bar of coverage
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEADS = {"file": "file", "symbol": "symb", "span": "span", "line": "line"}
_MOST_CALLS = 12  # files of one step
_MOST_MISSED = 100
_GUESS = "?"
_SHORT = {"output_numbered": "numbered", "output_matched": "matched", "self_report": "self report"}


def render(row: TraceRow, *, width: int | None = None, color: bool = False) -> str:
    """The run as text of at most `width` columns (80 if not given). Without `color` there is not one escape sequence in it."""
    return drawn(partial(_parts, row), width=width, color=color)


def _parts(row: TraceRow, width: int) -> Iterator[RenderableType]:
    yield Text(visible(row.instance_id), style="bold")
    for line in packed((f"{label} {visible(value, 160)}" for label, value in facts(row) if label != "steps"), width):
        yield Text(line, style="dim")
    scored = row.score is not None and bool(row.score.steps) and any(value is not None for value in row.score.steps[-1].values())
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
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="", expand=False)
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
        _call(text, call, first=not place or call.tool != shown[place - 1].tool)
    if len(shown) > _MOST_CALLS:
        text.append(f"\nand {len(shown) - _MOST_CALLS:,} more files", style="dim")
    return text if shown else Text(MISSING)


def _call(text: Text, call: CallView, first: bool) -> None:
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
        call.ok and call.path and call.kind != "edit" and kind_of(call.provenance) != "seen" for step in row.steps for call in step.calls
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
