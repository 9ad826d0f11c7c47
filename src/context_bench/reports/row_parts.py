"""Parts that a family tells of a row, as they are laid out: by a template in pages, by `part_lines` on a terminal.

What there is room for is decided here: long texts are folded, longer ones cut, and what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.families import RowPart, RowStep
from context_bench.reports.visible_text import fold_at, visible

#: Characters seen at once: of a text, of one with marks, of a cell, and beside a mark of a longer text.
FOLD, FOLD_MARKED, FOLD_CELL, AROUND = 2400, 6000, 700, 320
MOST_ROWS, MOST_STEPS = 400, 400  # of one part
_TICKS = {True: ("yes", "good"), False: ("no", "bad")}
_SIGNED = {"+": "added", "-": "dropped", "@": "seen"}
_ALL = 2**40  # characters: no text is longer


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text made visible. `first` is seen at once, `rest` when it is asked for; for `missing` characters there was no
    room. `tone` and `label`: what is said of it.
    """

    first: str
    rest: str = ""
    missing: int = 0
    tone: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step of a transcript. `folded`: opened only when asked."""

    title: str
    facts: list[tuple[str, str]]
    texts: list[tuple[str, ShownText]]
    folded: bool


@dataclass(slots=True)
class ShownPart:
    """A part of a row as it is laid out. `columns`: those with a value in some row; `numeric`: of figures. `more`: rows
    or steps that are left out.
    """

    title: str
    note: str
    columns: list[str] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)
    rows: list[list[ShownText]] = field(default_factory=list)
    pieces: list[ShownText] = field(default_factory=list)
    steps: list[ShownStep] = field(default_factory=list)
    more: int = 0
    cut: bool = False


class _PartBudget:
    """Characters for all parts of a row: at most `each` of one text, 40 times that together. `None`: all of it."""

    def __init__(self, each: int | None) -> None:
        self.each, self.left, self.cut = each, None if each is None else 40 * each, False

    def text(self, text: str, fold: int, tone: str = "", label: str = "") -> ShownText:
        """As much of a text as there is room for, what is beyond `fold` characters not seen at once."""
        kept = text
        if self.each is not None and self.left is not None:
            kept = text[: max(0, min(self.each, self.left))]
            self.left -= len(kept)
        self.cut = self.cut or len(kept) < len(text)
        at = fold_at(kept, fold)
        first, rest = (visible(part, _ALL, lines=True) for part in (kept[:at], kept[at:]))
        return ShownText(first, rest, len(text) - len(kept), tone, visible(label, 60))


def shown_parts(told: Mapping[str, Any], limit: int | None) -> list[ShownPart]:
    """The parts that a row's family tells (`parts` of `runner.details`). `limit`: characters of one text."""
    room = _PartBudget(limit)
    return [_part(each, room) for each in told.get("parts") or []]


def _part(part: RowPart, room: _PartBudget) -> ShownPart:
    room.cut = False
    made = ShownPart(visible(part.title, 120), visible(part.note, 600))
    filled = [at for at in range(len(part.columns)) if any(row[at] is not None for row in part.rows)]
    made.columns = [visible(part.columns[at], 60) for at in filled]
    made.numeric = [_is_numeric([row[at] for row in part.rows]) for at in filled]
    made.rows = [[_part_cell(row[at], room) for at in filled] for row in part.rows[:MOST_ROWS]]
    if part.text is not None:
        made.pieces = _changed_lines(part.text, room) if part.changes else _marked_text(part, room)
    made.steps = [_step(each, room) for each in part.steps[:MOST_STEPS]]
    made.more = len(part.rows) - len(made.rows) + len(part.steps) - len(made.steps)
    made.cut = room.cut or made.more > 0
    return made


def _is_numeric(cells: Sequence[str | float | None]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)


def _part_cell(cell: str | float | None, room: _PartBudget) -> ShownText:
    if cell is None:
        return ShownText("—")
    if isinstance(cell, bool):
        return ShownText(_TICKS[cell][0], tone=_TICKS[cell][1])
    if isinstance(cell, int | float):
        return ShownText(f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}")
    return room.text(cell, FOLD_CELL)


def _step(step: RowStep, room: _PartBudget) -> ShownStep:
    facts = [(visible(name, 40), visible(value, 80)) for name, value in step.facts]
    texts = [(visible(name, 200), room.text(text, FOLD)) for name, text in step.texts]
    return ShownStep(visible(step.title, 160), facts, texts, step.folded)


def _marked_text(part: RowPart, room: _PartBudget) -> list[ShownText]:
    """The text in pieces: marked ones whole, of what lies between them the ends."""
    text, at = part.text or "", 0
    whole = len(text) <= FOLD_MARKED
    found: list[ShownText] = []
    for mark in sorted(part.marks, key=lambda each: (each.start, each.end)):
        start, end = max(at, mark.start), min(mark.end, len(text))
        if start >= end:
            continue
        found += _between(text[at:start], room, whole)
        found.append(room.text(text[start:end], FOLD, mark.tone, mark.label))
        at = end
    return [*found, *(_between(text[at:], room, whole) if found else [room.text(text, FOLD_MARKED)])]


def _between(text: str, room: _PartBudget, whole: bool) -> list[ShownText]:
    if whole or len(text) <= 3 * AROUND:
        return [room.text(text, len(text))] if text else []
    start, end = fold_at(text, AROUND), len(text) - AROUND
    if (line_end := text.find("\n", end, end + AROUND // 4)) >= 0:
        end = line_end + 1
    return [room.text(text[:start], AROUND), room.text(text[start:end], 0), room.text(text[end:], AROUND)]


def _changed_lines(text: str, room: _PartBudget) -> list[ShownText]:
    """A diff, neighbouring lines of one kind together; all that there is room for is seen at once."""
    groups: list[tuple[str, list[str]]] = []
    for line in text.splitlines(keepends=True):
        head = line.startswith(("+++", "---", "diff ", "index "))
        tone = "head" if head else _SIGNED.get(line[:1], "")
        if not groups or groups[-1][0] != tone:
            groups.append((tone, []))
        groups[-1][1].append(line)
    return [room.text(joined, len(joined), tone) for tone, lines in groups if (joined := "".join(lines))]


#: What a part can stand for → the keys of `runner.details` that a page then leaves out.
_REPLACED = {
    "answer": ("response",),
    "context": ("context", "context_after"),
    "exchanges": ("exchanges",),
}


def without_replaced(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details of a row, without those that a part of its family stands for."""
    names = {name for part in told.get("parts") or [] for each in part.replaces for name in _REPLACED[each]}
    return {name: value for name, value in told.items() if name not in names}


#: Characters of a page up to which a row is shown whole.
_ROOM = 1_500_000


def page_limit(told: Mapping[str, Any] | None) -> int | None:
    """Characters of one text at which a page of one row stays below a few megabytes; `None`: it does with all of it."""
    shown = without_replaced(told or {})
    if _size(shown) <= _ROOM:
        return None
    return max(2000, _ROOM // (60 + 4 * len(shown.get("exchanges") or [])))


def _size(value: Any) -> int:
    """Characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, RowPart):
        return _size((value.text, value.rows, [(step.facts, step.texts) for step in value.steps]))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(_size, parts))


_TONES = {"good": "green", "added": "green", "bad": "red", "dropped": "red", "seen": "cyan", "head": "bold"}


def part_lines(it: ShownPart) -> Iterator[RenderableType]:
    """A part for a terminal."""
    yield Text(f"\n{it.title}", style="bold")
    if it.note:
        yield Text(it.note)
    if it.rows:
        table = RichTable(box=None, padding=(0, 1), pad_edge=False)
        for name, numeric in zip(it.columns, it.numeric, strict=True):
            table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", header_style="dim")
        for row in it.rows:
            table.add_row(*(_styled(cell) for cell in row))
        yield table
    if it.pieces:
        yield Padding(Text.assemble(*map(_styled, it.pieces)), (0, 0, 0, 2))
    for step in it.steps:
        yield Text("\n" + " · ".join([step.title, *(f"{name} {value}" for name, value in step.facts)]))
        for name, text in step.texts:
            yield Padding(Text.assemble((f"{name}: ", "dim"), _styled(text)), (0, 0, 0, 2))
    if it.more:
        yield Text(f"… and {it.more:,} more", style="dim")


def _styled(it: ShownText) -> Text:
    made = Text(it.first + it.rest, style=_TONES.get(it.tone, ""))
    if it.label:
        made = Text.assemble("[", made, f" · {it.label}]")
    return made.append(f" … {it.missing:,} more characters …", style="dim") if it.missing else made
