"""A page in the terminal: narrow tables that fit, readable without colour."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.reports.page import MISSING, Cell, Figure, Page, Section, Table
from context_bench.reports.text import TEXT_LIMIT, visible

WIDTH = 80
_KEY_WIDTH = 26  # of the first column; longer names are folded
_TEXT_WIDTH = 34  # of any other column
_BREAKS = ("@", " ·:,/", "_-=.")  # where a long name may be broken, the best places first
_GAP = 2
_STYLES = {"good": "green", "bad": "red", "neutral": "yellow"}


def render(page: Page, *, width: int | None = None, color: bool = False) -> str:
    """The page as text of at most `width` columns (80 if not given). Without `color` there is not one escape sequence in it."""
    return drawn(lambda _: [Report(page)], width=width, color=color)


def drawn(parts: Callable[[int], Iterable[RenderableType]], *, width: int | None = None, color: bool = False) -> str:
    """What `parts` gives for a width, one below the other, as `render` draws it; nothing in it is taken for markup."""
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


class Report:
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
    """What each column takes: no more than its content, and never so much that keys and one column have no room side by side."""
    share = max(4, (width * 2 // 5) // table.keys - _GAP) if table.keys and width < WIDTH else width
    keys = [_natural(table, position, min(share, _KEY_WIDTH if position == 0 else _TEXT_WIDTH)) for position in range(table.keys)]
    left = max(4, width - sum(keys) - _GAP * table.keys)
    return [*keys, *(_natural(table, position, min(left, _TEXT_WIDTH)) for position in range(table.keys, len(table.columns)))]


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
    """`text`, words longer than a line of `width` columns broken as names are; the rest is wrapped where it is drawn."""
    if cell_len(text) <= width:
        return text
    return " ".join(word if cell_len(word) <= width else folded(word, width) for word in text.split(" "))


def folded(text: str, width: int) -> str:
    """A name in lines of at most `width` columns, broken after a mark of the name's own where there is one (`head_tail@` / `window`)."""
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
    """What a cell shows; an em dash for what was not measured."""
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
