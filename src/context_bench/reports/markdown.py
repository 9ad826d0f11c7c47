"""A page as Markdown, for pull requests and notes."""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.reports.page import MISSING, Cell, Figure, Page, Section, Table
from context_bench.reports.text import TEXT_LIMIT, markdown

EMPTY = "No results to report."
NO_METRICS = "No metrics computed."


def render(page: Page) -> str:
    """Heading, verdicts, the table of all metrics (4 decimals), one table per section, timing, notes; the last line
    counts the examples.
    """
    blocks = [f"# {markdown(page.title)}", *(_body(page) if page.summary else [EMPTY])]
    if page.summary:
        blocks.append(f"*{page.examples} examples evaluated*")
    return "\n\n".join(blocks) + "\n"


def _body(page: Page) -> Iterator[str]:
    if page.verdicts:
        yield "\n".join(f"- **{markdown(each.verdict)}** {markdown(each.text, TEXT_LIMIT)}" for each in page.verdicts)
    metrics = page.section("metrics")
    if metrics is None:
        yield NO_METRICS
    else:
        yield from (_table(table) for table in metrics.tables)
    for section in page.sections:
        if section.id != "metrics":
            yield from _section(section)
    if page.timing:
        yield "## Timing"
        yield "\n".join(f"- {markdown(system)}: {seconds:.2f}s" for system, seconds in page.timing.items())
    if page.notes:
        yield "## Notes"
        yield "\n".join(f"- {markdown(note, TEXT_LIMIT)}" for note in page.notes)
    if page.facts:
        yield "## Run"
        yield "\n".join(f"- {markdown(label)}: {markdown(value)}" for label, value in page.facts)


def _section(section: Section) -> Iterator[str]:
    yield f"## {markdown(section.title)}"
    for table in section.tables:
        if table.title:
            yield f"### {markdown(table.title)}"
        yield _table(table)
        if table.about:
            yield markdown(table.about, TEXT_LIMIT)


def _table(table: Table) -> str:
    head = _row([column.title for column in table.columns])
    rule = "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|"
    return "\n".join([head, rule, *(_row(cells) for cells in table.rows)])


def _row(cells: list[Cell] | list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    if cell is None or cell == "":
        return MISSING
    return cell.text.replace("<", "&lt;") if isinstance(cell, Figure) else markdown(cell, 300)
