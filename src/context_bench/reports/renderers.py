"""A page as text: renderers by the name of their format, users' own included; Markdown and CSV are made here.

Markdown is for pull requests and notes. CSV (RFC 4180, UTF-8) has one line per row, for spreadsheets and data frames.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import built_in, families
from context_bench.core.lazy import registry
from context_bench.core.machine import shell_words
from context_bench.core.measures import took
from context_bench.core.numbers import number
from context_bench.core.plugins import load_object, parse_spec
from context_bench.core.records import Comparison, Estimate, EvalRow, Result, SetupRecord
from context_bench.core.rows import COST, in_pieces
from context_bench.reports.arm_aggregates import firsts, numbers, shape_of
from context_bench.reports.cards import chip_of, store_option
from context_bench.reports.json_document import Remarks, Writable
from context_bench.reports.page import (
    MISSING,
    BarPart,
    Card,
    Cell,
    Chart,
    Column,
    Details,
    Figure,
    Gap,
    LinePoint,
    Page,
    Point,
    Rated,
    ScoreChange,
    Section,
    Sentence,
    Spread,
    SystemChanges,
    Table,
    TurnBar,
    build_page,
    shared_commands,
)
from context_bench.reports.visible_text import TEXT_LIMIT, csv_cell, json_line, markdown

#: Format → the function of this package that renders it.
FORMATS = {
    "table": "table:render",
    "markdown": "renderers:render_markdown",
    "json": "json_document:render",
    "csv": "renderers:render_csv",
    "html": "html_page:render",
}
#: Format → the function that writes it row by row.
_STREAMED = {"json": "json_document:write_json", "csv": "renderers:write_csv"}


def render(result: Result | Page, format: str = "table", *, details: Details | None = None, **options: Any) -> str:  # noqa: A002
    """`result` as text of `format`: table, markdown, json, csv, html, a registered reporter's name, or
    `py:module:Name`.

    `options` go to the renderer (`width`, `color` for table; `canonical` for json). A reporter is an object (or class)
    with `render(page) -> str`, or a callable that takes the result. A name that users registered comes before a
    built-in one. Raises `UnknownName`, or `BadInput` for a reporter that is neither or gives no text.
    """
    own = _registered(format)
    if own is not None:
        return _by_user(format, own, result, details)
    text: str = _renderer(FORMATS[format])(_page(result, details), **options)
    return text


def write(
    result: Result | Page,
    format: str,  # noqa: A002
    stream: Writable,
    *,
    details: Details | None = None,
    **options: Any,
) -> None:
    """As `render`, into `stream`; JSON and CSV row by row, so that memory does not grow with the run."""
    if format in _STREAMED and _registered(format) is None:
        _renderer(_STREAMED[format])(_page(result, details), stream, **options)
    else:
        stream.write(render(result, format, details=details, **options))


def check_format(name: str, others: Iterable[str] = ()) -> None:
    """Raise `UnknownName` or `BadInput` for what `render` could not make. `others`: forms that are made elsewhere, to
    be named with ours.
    """
    _registered(name, others)


def to_table(result: Result, **options: Any) -> str:
    """The page for a terminal; see `reports.table.render`."""
    return render(result, "table", **options)


def to_markdown(result: Result) -> str:
    """The page as Markdown."""
    return render(result, "markdown")


def to_json(result: Result, *, canonical: bool = False) -> str:
    """The result as JSON text; see `reports.json_document`."""
    return render(result, "json", canonical=canonical)


def to_csv(result: Result) -> str:
    """The rows as CSV."""
    return render(result, "csv")


def to_html(result: Result, *, details: Details | None = None) -> str:
    """One self-contained HTML page; `details(row)` gives what stands behind a row."""
    return render(result, "html", details=details)


def _renderer(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"context_bench.reports.{module}"), function)
    return found


def takes_page(name: str) -> bool:
    """True for a format of this package: it can be given a page that was built before."""
    return _registered(name) is None


def summarized(page: Page) -> dict[str, Any]:
    """The page as lists of runs show it, JSON-ready: at most 40 systems with verdict, change, and shares saved.

    Of what is said of a system, the verdict that has figures is taken; controls come last.
    """
    chosen: dict[str, Sentence] = {}
    for each in page.verdicts:
        before = chosen.get(each.system)
        if before is None or (bool(each.saved), each.difference is not None) > (
            bool(before.saved),
            before.difference is not None,
        ):
            chosen[each.system] = each
    ordered = sorted(chosen.values(), key=lambda each: each.control)
    systems = [
        {
            "system": each.system,
            "verdict": each.verdict,
            "chip": chip_of(each),
            "tone": str(each.tone),
            "text": each.text[:4000],
            "control": each.control,
            "change": None if each.difference is None else number(each.difference.value),
            "saved": {name: number(figure.value) for name, figure in each.saved.items()},
        }
        for each in ordered[:40]
    ]
    return {"score": page.score_field, "systems": systems}


def _page(result: Result | Page, details: Details | None) -> Page:
    return result if isinstance(result, Page) else build_page(result, details=details)


def _registered(name: str, others: Iterable[str] = ()) -> Any | None:
    """The user's reporter of this name; `None` for a built-in one."""
    spec = parse_spec(name)
    if spec.scheme == "py":
        return load_object(spec.target)
    found = registry.find("reporter", name) if spec.scheme == "name" else None
    if found is None and name not in FORMATS:
        raise UnknownName("report format", name, [*FORMATS, *others, *registry.names("reporter")])
    return found


def _by_user(name: str, reporter: Any, result: Result | Page, details: Details | None) -> str:
    made: Any = reporter() if inspect.isclass(reporter) else reporter
    if callable(getattr(made, "render", None)):
        text = made.render(_page(result, details))
    elif callable(made):
        text = made(result)
    else:
        raise BadInput(
            f"reporter {name!r} is a {type(made).__name__}: expected an object with render(page), or a callable that "
            "takes the result"
        )
    if not isinstance(text, str):
        raise BadInput(f"reporter {name!r} gave a {type(text).__name__}; expected text")
    return text


# Pages as text and back
# ------------------------------------------------------------------------
_RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Point, LinePoint, Spread, Gap, ScoreChange, TurnBar, Rated, BarPart, Card),
        *(Chart, Figure, Column, Table, Section, Sentence, SystemChanges, Page),
        *(Comparison, Estimate, EvalRow, SetupRecord),
    )
}
_PLAIN = frozenset((str, int, bool, type(None)))
_KIND = "$"  # in JSON: the kind of what is no plain list or mapping


def page_text(shown: Page, *, store: str = "") -> str | None:
    """A page without its rows as JSON, of which `page_from` makes it again; `None` for one that holds what JSON cannot
    tell, or what names of others than this package may have had a part in. `store`: as `build_page` was told it.
    """
    if not _only_ours():
        return None
    try:
        return json.dumps([_program(), store, _as_json(replace(shown, rows=[], details=None))])
    except (TypeError, ValueError):
        return None


def page_from(text: str, rows: Sequence[EvalRow], details: Details | None = None, *, store: str = "") -> Page | None:
    """The page of `page_text`, with its rows, for who names the store this way; `None` if this installation did not
    make it as it is now.
    """
    try:
        program, before, told = json.loads(text)
        if program != _program() or not _only_ours():
            return None
        made: Page = _from_json(told)
        if before != store:
            here = partial(_moved, store_option(before), store_option(store))
            made.cards = [replace(card, command=here(card.command)) for card in made.cards]
            made.whole, made.store = here(made.whole), store
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    made.rows, made.details = rows, details
    return made


def _moved(before: str, after: str, command: str) -> str:
    """A command on one store as a command on another; none stays none."""
    words = shell_words(command)
    end = words.index("--") if "--" in words else len(words)  # names stand behind the options
    start = end - len(shell_words(before))
    return " ".join([*words[:start], *shell_words(after), *words[end:]]) if command else ""


def _as_json(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, float):
        return float(value)
    if kind is list:
        return [_as_json(each) for each in value]
    if kind is tuple:
        return {_KIND: "tuple", "of": [_as_json(each) for each in value]}
    if kind is dict and _KIND not in value and all(type(name) is str for name in value):
        return {name: _as_json(each) for name, each in value.items()}
    if _RECORDS.get(kind.__name__) is not kind:
        raise TypeError(f"a page with a {kind.__name__} cannot be kept")
    return {_KIND: kind.__name__, "of": [_as_json(getattr(value, each.name)) for each in fields(kind)]}


def _from_json(told: Any) -> Any:
    if isinstance(told, list):
        return [_from_json(each) for each in told]
    if not isinstance(told, dict):
        return told
    if _KIND not in told:
        return {name: _from_json(each) for name, each in told.items()}
    values, kind = [_from_json(each) for each in told["of"]], told[_KIND]
    if kind == "tuple":
        return tuple(values)
    record = _RECORDS[kind]
    return record(**{each.name: value for each, value in zip(fields(record), values, strict=True)})


def _only_ours() -> bool:
    """True if nobody but this package says how scores and numbers are shown."""
    users = any(registry.list(kind) or registry.offered(kind) for kind in ("evaluator", "metric", "reporter"))
    return not users and len(families()) == len(built_in())


@cache
def _program() -> str:
    """A mark that is another one as soon as a file of this package is, and in every other place: what somebody else
    wrote into a store is no page.
    """
    files = (file for file in Path(__file__).parents[1].rglob("*") if file.suffix in (".py", ".toml", ".j2"))
    found = [(str(file), about.st_size, about.st_mtime_ns) for file in files if (about := file.stat())]
    return sha256(repr(sorted(found)).encode("utf-8", "surrogatepass")).hexdigest()


# Markdown
# ------------------------------------------------------------------------
EMPTY = "No results to report."
NO_METRICS = "No metrics computed."


def render_markdown(page: Page) -> str:
    """A page as Markdown, for pull requests and notes.

    Heading, cards, one line for each system, the table of all metrics (scores with 4 decimals), one table per section,
    timing, notes; the last line counts the examples.
    """
    blocks = [f"# {markdown(page.title)}", *(_markdown_body(page) if page.summary else [EMPTY])]
    if page.summary:
        blocks.append(f"*{page.examples} example{'s' * (page.examples != 1)} evaluated*")
    return "\n\n".join(blocks) + "\n"


def _markdown_body(page: Page) -> Iterator[str]:
    yield from _markdown_cards(page)
    if page.overview is not None:
        yield from (_markdown_table(table) for table in page.overview.tables)
    metrics = page.section("metrics")
    if metrics is None:
        yield NO_METRICS
    else:
        yield from (_markdown_table(table) for table in metrics.tables)
    for section in page.sections:
        if section.id != "metrics":
            yield from _markdown_section(section)
    if controls := [each.text for each in page.verdicts if each.control]:
        yield "## Controls"
        yield "\n".join(f"- {markdown(text, TEXT_LIMIT)}" for text in controls)
    if page.timing:
        yield "## Timing"
        yield "\n".join(f"- {markdown(system)}: {took(seconds)}" for system, seconds in page.timing.items())
    if page.notes:
        yield "## Notes"
        yield "\n".join(f"- {markdown(note, TEXT_LIMIT)}" for note in page.notes)
    if page.facts:
        yield "## Run"
        yield "\n".join(f"- {markdown(label)}: {markdown(value)}" for label, value in page.facts)


def _markdown_cards(page: Page) -> Iterator[str]:
    """Facts on the whole run, a paragraph for each card, the line on the controls."""
    yield from (markdown(each, TEXT_LIMIT) for each in page.headline)
    listed: list[str] = []
    shared = shared_commands(page.cards)
    for card in page.cards:
        formal = f" ({markdown(card.verdict)})" if card.verdict not in ("", card.chip) else ""
        chip = f"**{markdown(card.chip)}**{formal} " if card.chip else ""
        listed.append(f"- {chip}{markdown(card.title, TEXT_LIMIT)}")
        listed += [f"  - {markdown(each, TEXT_LIMIT)}" for each in (card.figures, *card.terms) if each]
        listed += (
            [f"  - Next: {_markdown_command(card.command)}"] if card.command and card.command not in shared else []
        )
    if listed:
        yield "\n".join(listed)
    for command, systems in shared.items():
        whom = f", for {', '.join(systems)}" if len(systems) < len(page.cards) else ""
        yield f"Next{markdown(whom, TEXT_LIMIT)}: {_markdown_command(command)}"
    if page.checks:
        yield f"*{markdown(page.checks, TEXT_LIMIT)}*"


def _markdown_command(command: str) -> str:
    return markdown(command, len(command))


def _markdown_section(section: Section) -> Iterator[str]:
    yield f"## {markdown(section.title)}"
    for table in section.tables:
        if table.title:
            yield f"### {markdown(table.title)}"
        yield _markdown_table(table)
        if table.about:
            yield markdown(table.about, TEXT_LIMIT)


def _markdown_table(table: Table) -> str:
    head = _markdown_row([column.title for column in table.columns])
    rule = "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|"
    return "\n".join([head, rule, *(_markdown_row(cells) for cells in table.rows)])


def _markdown_row(cells: list[Cell] | list[str]) -> str:
    return "| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    if cell is None or cell == "":
        return MISSING
    return cell.text.replace("<", "&lt;") if isinstance(cell, Figure) else markdown(cell, 300)


# CSV
# ------------------------------------------------------------------------
FIXED = (
    "system",
    "example_id",
    "dataset",
    "trial",
    "shape",
    "group",
    "cluster",
    "input_tokens",
    "output_tokens",
    "latency",
)
LAST = ("billed_tokens", "completion_tokens", "cost", "errors")


def render_csv(page: Page) -> str:
    """The rows as CSV (RFC 4180, UTF-8): one line per row, for spreadsheets and data frames.

    The whole table as one string; lines end in CRLF.
    """
    stream = io.StringIO(newline="")
    write_csv(page, stream)
    return stream.getvalue()


def write_csv(page: Page, stream: Writable, *, remarks: Remarks | None = None) -> None:
    """Write header and rows, a hundred or so in memory at a time. Open files with `newline=""`.

    Columns: identity, tokens, latency (seconds), every score in sorted order (`score:NAME` where a score is called like
    another column), billed and completion tokens, money (US dollars), errors as JSON; with `remarks`, tags and note of
    people. What is not known is an empty cell.
    """
    writer = csv.writer(stream)
    names, more = page.score_names, ("tags", "note") if remarks is not None else ()
    writer.writerow([csv_cell(name) for name in (*csv_header(names), *more)])
    for some in in_pieces(page.rows):
        columns = _csv_columns(some, names)
        if remarks is not None:
            written = [remarks(row) for row in some]
            columns.append([csv_cell(", ".join(each.get("tags", ()))) for each in written])
            columns.append([csv_cell(each.get("note", "")) for each in written])
        writer.writerows(zip(*columns, strict=True))


def csv_header(score_names: list[str]) -> list[str]:
    """The column names."""
    taken = {*FIXED, *LAST}
    return [*FIXED, *(f"score:{name}" if name in taken else name for name in score_names), *LAST]


def _csv_columns(rows: Sequence[EvalRow], score_names: list[str]) -> list[Sequence[Any]]:
    """The cells of some rows by column; a number is written as its `repr`, and `None` as nothing."""
    scores, usage = [row.scores for row in rows], [row.usage or {} for row in rows]
    return [
        _csv_texts([row.system for row in rows]),
        _csv_texts([row.example_id for row in rows]),
        _csv_texts([row.dataset for row in rows]),
        [row.trial for row in rows],
        _csv_texts([shape_of(row) for row in rows]),
        _csv_texts([row.group for row in rows]),
        _csv_texts([row.cluster for row in rows]),
        numbers([row.input_tokens for row in rows]),
        numbers([row.output_tokens for row in rows]),
        numbers([row.latency for row in rows]),
        *[numbers([each.get(name) for each in scores]) for name in score_names],
        firsts(usage, "input_tokens", "prompt_tokens"),
        firsts(usage, "output_tokens", "completion_tokens"),
        firsts(usage, *COST),
        [csv_cell(json_line(row.errors)) if row.errors else "" for row in rows],
    ]


def _csv_texts(values: Sequence[Any]) -> Sequence[Any]:
    """Names, each looked at once, and whole numbers as they are."""
    if set(map(type, values)) != {str}:
        return [each if each is None or isinstance(each, int) else csv_cell(each) for each in values]
    cells = {each: csv_cell(each) for each in set(values)}
    return [cells[each] for each in values]
