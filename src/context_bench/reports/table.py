"""A page in the terminal: narrow tables that fit, readable without colour.

Beside it the list of the runs of a store, and small tables for commands that are not about a run. The less important
columns of the list are left out where there is no room.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.reports.page import MISSING, Cell, Figure, Page, Section, Table
from context_bench.reports.visible_text import TEXT_LIMIT, markdown, visible

WIDTH = 80
_KEY_WIDTH = 26  # of the first column; longer names are folded
_TEXT_WIDTH = 34  # of any other column
_BREAKS = ("@", " ·:,/", "_-=.")  # where a long name may be broken, the best places first
_GAP = 2
_STYLES = {"good": "green", "bad": "red", "neutral": "yellow"}


def render(page: Page, *, width: int | None = None, color: bool = False) -> str:
    """The page as text of at most `width` columns (80 if not given). Without `color` there is not one escape sequence
    in it.
    """
    return drawn(lambda _: [TerminalReport(page)], width=width, color=color)


def drawn(parts: Callable[[int], Iterable[RenderableType]], *, width: int | None = None, color: bool = False) -> str:
    """The output of `parts` for a width, one below the other, as `render` draws it; nothing in it is taken for
    markup.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width or WIDTH, 40),
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in parts(console.width):
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n") + "\n"


class TerminalReport:
    """The page as something `rich` can print; it takes the width it is given."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        page, width = self.page, options.max_width
        yield Text(visible(page.title), style="bold")
        for line in packed((f"{visible(label)} {visible(value, 60)}" for label, value in page.facts), width):
            yield Text(line, style="dim")
        if not page.summary:
            yield Text("\nNo results to report.")
        if page.verdicts:
            yield Text("\nVerdicts", style="bold")
            yield _verdicts(page)
        for section in page.sections:
            if section.brief:
                yield from _section(section, width)
        yield from _ending(page, width)


def _verdicts(page: Page) -> RichTable:
    grid = RichTable.grid(padding=(0, _GAP))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in page.verdicts:
        grid.add_row(Text(visible(each.verdict, 40), style=_STYLES[each.tone]), Text(visible(each.text, TEXT_LIMIT)))
    return grid


def _section(section: Section, width: int) -> Iterator[Text | RichTable | Padding]:
    tables = [kept for table in section.tables if (kept := _unrepeated(table)) is not None]
    if not tables:
        return
    yield Text(f"\n{visible(section.title)}", style="bold")
    for at, table in enumerate(tables):
        if at:
            yield Text("")
        if table.title:
            yield Text(visible(table.title))
        for number, positions in enumerate(_fitting(table, width)):
            if number:
                yield Text("")
            yield _rich(table, positions, width)
        if table.about:
            yield Padding(Text(visible(table.about, TEXT_LIMIT), style="dim"), (0, 0, 0, 1))


def _unrepeated(table: Table) -> Table | None:
    """The table without columns that stand elsewhere; `None` if only the names would be left."""
    kept = [position for position, column in enumerate(table.columns) if not column.repeated]
    if len(kept) <= table.keys:
        return None
    rows = [[row[position] for position in kept] for row in table.rows]
    return replace(table, columns=[table.columns[position] for position in kept], rows=rows)


def _fitting(table: Table, width: int) -> list[list[int]]:
    """Column positions of each narrow table, its keys always repeated: as few tables as fit, about equally wide."""
    widths = [each + _GAP for each in _widths(table, width)]
    room = width - sum(widths[: table.keys]) + _GAP
    fewest = len(_packed_columns(widths, table.keys, room))
    even = next(each for each in range(1, max(room, 1) + 1) if len(_packed_columns(widths, table.keys, each)) <= fewest)
    return _packed_columns(widths, table.keys, even)


def _packed_columns(widths: list[int], keys: int, room: int) -> list[list[int]]:
    packed = [list(range(keys))]
    used = 0
    for position in range(keys, len(widths)):
        if used and used + widths[position] > room:
            packed.append(list(range(keys)))
            used = 0
        packed[-1].append(position)
        used += widths[position]
    return packed


def _widths(table: Table, width: int) -> list[int]:
    """Width of each column: no more than its content, and never so much that keys and one column have no room side by
    side.
    """
    share = max(4, (width * 2 // 5) // table.keys - _GAP) if table.keys and width < WIDTH else width
    keys = [
        _natural(table, position, min(share, _KEY_WIDTH if position == 0 else _TEXT_WIDTH))
        for position in range(table.keys)
    ]
    left = max(4, width - sum(keys) - _GAP * table.keys)
    return [
        *keys,
        *(_natural(table, position, min(left, _TEXT_WIDTH)) for position in range(table.keys, len(table.columns))),
    ]


def _natural(table: Table, position: int, limit: int) -> int:
    column = table.columns[position]
    content = max((cell_len(cell_text(row[position])) for row in table.rows), default=1)
    return min(max(content, cell_len(visible(column.title))), limit)


def _rich(table: Table, positions: list[int], width: int) -> RichTable:
    widths = _widths(table, width)
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="")
    for position in positions:
        column = table.columns[position]
        title = Text(_broken(visible(column.title), widths[position]))
        made.add_column(title, justify="right" if column.numeric else "left", overflow="fold", width=widths[position])
    for row in table.rows:
        shown = {position: cell_text(row[position]) for position in positions}
        made.add_row(*(Text((folded if at < table.keys else _broken)(text, widths[at])) for at, text in shown.items()))
    return made


def _broken(text: str, width: int) -> str:
    """`text`, words longer than a line of `width` columns broken as names are; the rest is wrapped where it is
    drawn.
    """
    if cell_len(text) <= width:
        return text
    return " ".join(word if cell_len(word) <= width else folded(word, width) for word in text.split(" "))


def folded(text: str, width: int) -> str:
    """A name in lines of at most `width` columns, broken after a mark of the name's own where there is one
    (`head_tail@` / `window`).
    """
    lines: list[str] = []
    while cell_len(text) > width:
        whole = next((at for at in range(len(text) - 1, 0, -1) if cell_len(text[:at]) <= width), 1)
        for marks in _BREAKS:
            after = max((text.rfind(mark, 0, whole) for mark in marks), default=-1) + 1
            if after:
                break
        lines.append(text[: after or whole])
        text = text[after or whole :]
    return "\n".join([*lines, text])


def cell_text(cell: Cell) -> str:
    """Text of a cell; an em dash for what was not measured."""
    if cell is None or cell == "":
        return MISSING
    return cell.text if isinstance(cell, Figure) else visible(cell, 300)


def packed(parts: Iterable[str], width: int) -> Iterator[str]:
    """As many parts on a line as fit, three spaces apart; no part is torn unless it is longer than a line."""
    line = ""
    for part in parts:
        if line and cell_len(line) + 3 + cell_len(part) > width:
            yield line
            line = ""
        line = f"{line}   {part}" if line else part
    if line:
        yield line


def _ending(page: Page, width: int) -> Iterator[Text]:
    if page.timing:
        yield Text("\nWall time", style="bold")
        for line in packed((f"{visible(system)} {seconds:.2f} s" for system, seconds in page.timing.items()), width):
            yield Text(line)
    if page.notes:
        yield Text("\nNotes", style="bold")
        for note in page.notes:
            yield Text(f"- {visible(note, TEXT_LIMIT)}")
    yield Text(f"\n{page.examples:,} examples, {len(page.rows):,} rows", style="dim")


_RUN_GAP = 2
_NUMBERS = ("rows", "failed")
_GIVEN_UP = ("started (UTC)", "failed", "systems", "status", "rows")  # in this order, where there is no room
_LEAST_SYSTEMS = 16
_STATUS_STYLES = {"done": "32", "interrupted": "33", "stopped": "33", "running": "36"}


def run_list(runs: Sequence[Mapping[str, Any]], *, width: int | None = None, color: bool = False) -> str:
    """Runs, as `RunRecord.describe` tells them, in lines of at most `width` columns (80 if not given).

    A name stays whole, however long, since it is what other commands are given: one that fills the line has the rest on
    the next.
    """
    width = max(20, width or WIDTH)
    lines = [_cells(run) for run in runs]
    names = max((cell_len(line["run"]) for line in lines), default=0)
    titles = [title for title in lines[0] if title != "run"]
    sizes = {title: max(cell_len(title), *(cell_len(line[title]) for line in lines)) for title in titles}
    first = max(3, min(names, width // 3 if width >= 60 else 20))
    shown = [*sizes, "systems"]
    for title in _GIVEN_UP:
        if _spare_width(first, sizes, shown, width) >= 0:
            break
        shown.remove(title)
    systems = _spare_width(first, sizes, shown, width) + _LEAST_SYSTEMS
    made = [_row({title: title for title in ("run", *shown)}, shown, sizes, first, 0, False)]
    for run, line in zip(runs, lines, strict=True):
        line["systems"] = _some([visible(name) for name in run["systems"]], systems)
        made.append(_row(line, shown, sizes, first, width, color))
    return "\n".join(made)


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    started = str(run["started"])[:16].replace("T", " ")
    told = {"run": run["name"], "started (UTC)": started, "status": run["status"]}
    told |= {"rows": f"{run['rows']:,}", "failed": f"{run['failed']:,}"}
    return {title: visible(cell, 300) for title, cell in told.items()}


def _spare_width(first: int, sizes: Mapping[str, int], shown: Sequence[str], width: int) -> int:
    """Columns that are left over when the systems have the least that makes sense."""
    least = {**sizes, "systems": _LEAST_SYSTEMS}
    return width - first - sum(least[title] + _RUN_GAP for title in shown)


def _row(
    line: Mapping[str, str], shown: Sequence[str], sizes: Mapping[str, int], first: int, width: int, color: bool
) -> str:
    name = line["run"]
    cells = []
    for title in shown:
        cell = line[title]
        if title in sizes:
            space = " " * (sizes[title] - cell_len(cell))
            styled = (
                f"\x1b[{_STATUS_STYLES[cell]}m{cell}\x1b[0m"
                if color and title == "status" and cell in _STATUS_STYLES
                else cell
            )
            cell = space + styled if title in _NUMBERS else styled + space
        cells.append(" " * _RUN_GAP + cell)
    rest = "".join(cells).rstrip()
    if cell_len(name) <= first:
        return set_cell_size(name, first) + rest
    return f"{name}\n{' ' * first}{rest}"


def _some(names: Sequence[str], width: int) -> str:
    """`a, b`, or `6 systems: a, b, …`: no name is torn unless even the first does not fit."""
    whole = ", ".join(names)
    if cell_len(whole) <= width or not names:
        return whole
    said = f"{len(names)} systems: " if len(names) > 1 else ""
    for count in range(len(names) - 1, 0, -1):
        part = f"{said}{', '.join(names[:count])}, …"
        if cell_len(part) <= width:
            return part
    return f"{len(names)} systems" if said else set_cell_size(names[0], width - 1).rstrip() + "…"


#: What stands where nothing was measured.
NOTHING = "-"
_GRID_GAP = 2  # columns between two columns
_HEADING = 9  # characters of a heading before it is broken between words
_WORD = 16  # characters of a word before it is broken, too
_FIRST = 20  # least width of the first column


@dataclass(slots=True)
class Grid:
    """A table: the first column names what a row is about, the others are numbers (with `words`: text). `about`: a
    sentence below it. Without columns it is its title alone.
    """

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
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
    )
    for position, grid in enumerate(grids):
        if position:
            console.print()
        if not grid.columns:
            console.print(Text(visible(grid.title, 2000), style="bold"))
            continue
        console.print(Text(visible(grid.title), style="bold"))
        table = Table(box=None, pad_edge=False, padding=(0, _GRID_GAP, 0, 0))
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
    cells = [
        [*_heading(column), *(visible(row[place]) for row in grid.rows)] for place, column in enumerate(grid.columns)
    ]
    return _FIRST + sum(_GRID_GAP + max(map(len, cell), default=0) for cell in cells[1:])


def as_markdown(grids: Sequence[Grid]) -> str:
    """The tables as Markdown."""
    parts = []
    for grid in grids:
        if not grid.columns:
            parts.append(markdown(grid.title, 2000))
            continue
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
