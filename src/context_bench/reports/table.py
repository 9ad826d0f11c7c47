"""A page in the terminal: narrow tables that fit, readable without colour.

The short form has the cards, one table, and the notes that find room; the whole form has everything. Beside them small
tables for commands that are not about a run.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from context_bench.core.machine import shell_words
from context_bench.core.measures import percent
from context_bench.reports.page import MISSING, Card, Cell, Figure, Page, Section, Table
from context_bench.reports.visible_text import TEXT_LIMIT, command_text, markdown, visible
from context_bench.stats.verdict.decisions import ROUGH, TOO_FEW

WIDTH = 80
BRIEF = 10  # lines of a result that is printed
SHORT = 40  # lines of the short form, for up to six systems
_KEY_WIDTH = 26  # of the first column; longer names are folded
_TEXT_WIDTH = 34  # of any other column
_BREAKS = ("@", " ·:,/", "_-=.")  # where a long name may be broken, the best places first
_GAP = 2
_STYLES = {"good": "green", "bad": "red", "neutral": "yellow"}


def render(page: Page, *, width: int | None = None, color: bool = False, full: bool = True) -> str:
    """The page as text of at most `width` columns (80 if not given). Without `color` there is not one escape sequence
    in it. `full=False`: the short form, at most 40 lines of 80 columns for up to six systems.
    """
    if not full:
        return _short(page, width, color)
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
        console.print(
            part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap)
        )  # a command is neither cut nor folded
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n") + "\n"


class TerminalReport:
    """The page as something `rich` can print; it takes the width it is given."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        page, width = self.page, options.max_width
        yield from _head(page, width)
        if page.cards or page.headline:
            yield Text("\nVerdicts", style="bold")
        yield from _answer(page, terms=True)
        for section in page.sections:
            if section.brief:
                yield from _section(section, width)
        yield from _ending(page, width)


def _cards(page: Page, *, terms: bool) -> RichTable:
    """The cards below one another: chip and title; below the title the formal word and the figures, so that copied
    lines are sentences. `terms`: with the full statements.
    """
    grid = RichTable.grid(padding=(0, _GAP))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for card in page.cards:
        chip = Text(visible(card.chip, 40), _STYLES[card.tone])
        formal = card.verdict if card.verdict != card.chip else ""
        figures = ": ".join(filter(None, (formal, card.figures)))
        said = [figures, *card.terms] if terms else [" · ".join(filter(None, (figures, _reserve(card))))]
        text = Text(visible(card.title, TEXT_LIMIT))
        for each in filter(None, said):
            text.append(f"\n{visible(each, TEXT_LIMIT)}", style="dim")
        grid.add_row(chip, text)
    return grid


def _head(page: Page, width: int) -> Iterator[Text]:
    yield Text(visible(page.title), style="bold")
    for line in packed((f"{visible(label)} {visible(value, 60)}" for label, value in page.facts), width):
        yield Text(line, style="dim")
    if not page.summary:
        yield Text("\nNo results to report.")


def _answer(page: Page, *, terms: bool) -> Iterator[Text | RichTable]:
    """Facts on the whole run, the cards, and the line on the controls."""
    for each in page.headline:
        yield Text(visible(each, TEXT_LIMIT))
    if page.cards:
        yield _cards(page, terms=terms)
    if page.checks:
        yield Text(visible(page.checks, TEXT_LIMIT), style="dim")
    for said in page.verdicts if terms else ():
        if said.control:
            yield Text(f"- {visible(said.text, TEXT_LIMIT)}", style="dim")


def _reserve(card: Card) -> str:
    """State of a card's interval where its terms are not shown: missing, or rough; empty if it is neither."""
    terms = " ".join(card.terms)
    return TOO_FEW if TOO_FEW in terms else "rough" if ROUGH in terms else ""


def _short(page: Page, width: int | None, color: bool) -> str:
    columns = max(width or WIDTH, 40)

    def lines(*parts: RenderableType) -> list[str]:
        return drawn(lambda _: parts, width=columns, color=color).rstrip("\n").split("\n") if parts else []

    ending = lines(*_next(page, columns))
    for shown in _shorter(page):
        blocks = [lines(*_head(page, columns)), lines(*_answer(shown, terms=False)), lines(*_one_table(shown, columns))]
        used = sum(len(block) + 1 for block in (*blocks, ending) if block)
        if used <= SHORT:
            break
    blocks += [_noted(page, lines, SHORT - used), ending]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _shorter(page: Page) -> Iterator[Page]:
    """The page, then without the lines of controls in the size of each system, then without the figures of cards."""
    yield page
    if page.overview is not None:
        own = {card.system for card in page.cards}
        table = page.overview.tables[0]
        rows = [row for row in table.rows if cell_text(row[0]).partition("@")[2] not in own]
        page = replace(page, overview=replace(page.overview, tables=[replace(table, rows=rows)]))
        yield page
    yield replace(page, cards=[replace(card, verdict="", figures="") for card in page.cards])


def _one_table(page: Page, width: int) -> Iterator[RichTable]:
    """The table of all systems, or the one that the answer is from: of money, where nothing was judged. Columns for
    which the terminal has no room are in the whole report.
    """
    first = next((each for each in page.sections if each.tables and each.brief), None)
    titles = {column.title for column in page.overview.tables[0].columns} if page.overview else set()
    told = any("money" in card.saved for card in page.cards) and not titles & {"score", "difference", "per 1,000"}
    section = first if told and first else page.overview or first
    if section is not None:
        table = section.tables[0]
        yield _rich(table, _fitting(table, width, even=False)[0], width)


def _noted(page: Page, lines: Callable[..., list[str]], room: int) -> list[str]:
    """Notes, whole ones only, as long as there is room; how many are left out stands below them."""
    notes = [lines(Padding(Text(f"- {visible(note, TEXT_LIMIT)}"), 0)) for note in page.notes]
    shown: list[str] = []
    for position, note in enumerate(notes):
        rest = position < len(notes) - 1
        if len(shown) + len(note) + rest > room:
            left = len(notes) - position
            return [*shown, f"{left} more note{'s' * (left != 1)} with --full"]
        shown += note
    return shown


def _next(page: Page, width: int) -> Iterator[Text]:
    yield Text(f"{_counted(page.examples, 'example')}, {_counted(len(page.rows), 'row')}", style="dim")
    if page.whole:
        yield _command("All of it:", page.whole, width, "dim")
    if command := next((card.command for card in page.cards if card.command not in ("", page.whole)), ""):
        yield _command("Next:", command, width)


def _command(label: str, command: str, width: int, style: str = "") -> Text:
    """A command on as many lines as it takes, which a shell that they are copied to reads as one."""
    lines, words = [label], [command_text(word) for word in shell_words(command)]
    for place, word in enumerate(words, 1):
        if place > 1 and cell_len(f"{lines[-1]} {word}") + 2 * (place < len(words)) > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return Text("\n".join(lines), style=style, no_wrap=True, overflow="ignore")


def in_brief(page: Page) -> str:
    """The answers of a page in at most ten lines, none of them wrapped: what it is about, a line for each card (or
    each system, where nothing is said of any), the checks.
    """
    said = [*page.headline, *(f"{card.chip} · {card.title}" if card.chip else card.title for card in page.cards)]
    for name, numbers in page.summary.items() if not page.cards else ():
        known = ", ".join(f"{key} {value:.3g}" for key, value in [*numbers.items()][:6] if value is not None)
        said.append(f"{name}: {known or 'nothing measured'}")
    room = BRIEF - 1 - bool(page.checks)
    if len(said) > room:
        said = [*said[: room - 1], f"and {len(said) - room + 1} more"]
    counted = f"{_counted(page.examples, 'example')}, {_counted(len(page.rows), 'row')}"
    lines = [f"{page.title}: {counted}", *said, *([page.checks] if page.checks else [])]
    return "\n".join(visible(line, TEXT_LIMIT) for line in lines)


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


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"


def _unrepeated(table: Table) -> Table | None:
    """The table without columns that stand elsewhere; `None` if only the names would be left."""
    kept = [position for position, column in enumerate(table.columns) if not column.repeated]
    if len(kept) <= table.keys:
        return None
    rows = [[row[position] for position in kept] for row in table.rows]
    return replace(table, columns=[table.columns[position] for position in kept], rows=rows)


def _fitting(table: Table, width: int, *, even: bool = True) -> list[list[int]]:
    """Column positions of each narrow table, its keys always repeated: as few tables as fit, about equally wide, or
    else the first of them as wide as it can be.
    """
    widths = [each + _GAP for each in _widths(table, width)]
    room = width - sum(widths[: table.keys]) + _GAP
    if not even:
        return _packed_columns(widths, table.keys, room)
    fewest = len(_packed_columns(widths, table.keys, room))
    least = next(
        each for each in range(1, max(room, 1) + 1) if len(_packed_columns(widths, table.keys, each)) <= fewest
    )
    return _packed_columns(widths, table.keys, least)


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
        yield Text("\nTime of all rows", style="bold")
        for line in packed((f"{visible(system)} {seconds:.2f} s" for system, seconds in page.timing.items()), width):
            yield Text(line)
    if page.notes:
        yield Text("\nNotes", style="bold")
        for note in page.notes:
            yield Text(f"- {visible(note, TEXT_LIMIT)}")
    yield Text(f"\n{_counted(page.examples, 'example')}, {_counted(len(page.rows), 'row')}", style="dim")


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
    """A share as a percentage."""
    return NOTHING if value is None else percent(value)


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits behind the point."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def as_table(grids: Sequence[Grid], *, width: int = 100, color: bool = False) -> str:
    """The tables as text for a terminal; sentences are no wider than `width`, tables as wide as their numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = io.StringIO()
    asked = width
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
            console.print(Text(visible(grid.title, 2000), style="bold"), width=asked)
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
            console.print(Text(grid.about, style="dim"), width=asked)
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
