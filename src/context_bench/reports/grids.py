"""Small tables of text for commands that are not about a run: in the terminal, as Markdown."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from context_bench.reports.text import markdown, visible

#: What stands where nothing was measured.
NOTHING = "-"
_GAP = 2  # columns between two columns
_HEADING = 9  # characters of a heading before it is broken between words
_WORD = 16  # characters of a word before it is broken, too
_FIRST = 20  # least width of the first column


@dataclass(slots=True)
class Grid:
    """A table: the first column names what a row is about, the others are numbers (with `words`: text). `about`: a sentence below it."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    about: str = ""
    words: bool = False


def share(value: float | None) -> str:
    """A share as a percentage; small ones with a digit behind the point."""
    if value is None:
        return NOTHING
    return f"{value * 100:.0f} %" if abs(value) >= 0.0995 or value == 0 else f"{value * 100:.1f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits behind the point."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def as_table(grids: Sequence[Grid], *, width: int = 100, color: bool = False) -> str:
    """The tables as text for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = io.StringIO()
    width = max([width, *(_needed(grid) for grid in grids if not grid.words)])
    console = Console(
        file=stream, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False, emoji=False
    )
    for position, grid in enumerate(grids):
        if position:
            console.print()
        console.print(Text(visible(grid.title), style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for place, column in enumerate(grid.columns):
            right = place > 0 and not grid.words
            heading = "\n".join(_heading(column)) if right else visible(column)
            table.add_column(Text(heading), justify="right" if right else "left", overflow="fold", no_wrap=right)
        for row in grid.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)
        if grid.about:
            console.print(Text(grid.about, style="dim"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _heading(column: str) -> list[str]:
    text = visible(column)
    longest = max(map(len, text.split()), default=0)
    return wrap(text, max(_HEADING, min(_WORD, longest)))


def _needed(grid: Grid) -> int:
    """The least width in which every number can be read."""
    cells = [[*_heading(column), *(visible(row[place]) for row in grid.rows)] for place, column in enumerate(grid.columns)]
    return _FIRST + sum(_GAP + max(map(len, cell), default=0) for cell in cells[1:])


def as_markdown(grids: Sequence[Grid]) -> str:
    """The tables as Markdown."""
    parts = []
    for grid in grids:
        lines = [
            f"## {markdown(grid.title)}",
            "",
            _line(grid.columns),
            _line(["---", *("---" if grid.words else "---:" for _ in grid.columns[1:])], plain=True),
        ]
        lines += [_line(row) for row in grid.rows]
        parts.append("\n".join([*lines, *(["", markdown(grid.about, 2000)] if grid.about else [])]))
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str], plain: bool = False) -> str:
    return "| " + " | ".join(cell if plain else markdown(cell) for cell in cells) + " |"
