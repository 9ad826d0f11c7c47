"""A page as one HTML file: no network, no foreign script, opens from disk, light and dark, printable.

The policy in the file allows exactly our own style and script, by hash. Everything that comes from data is escaped by the template, or
stands in a JSON block from which the script makes text, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from context_bench.core.records import EvalRow
from context_bench.reports import charts
from context_bench.reports.page import Figure, Page, Section, Table
from context_bench.reports.tally import first, number, shape_of
from context_bench.reports.text import json_ready, script_json, visible

MOST_ROWS = 50_000  # in the file; more are left to JSON and CSV
DETAIL_BYTES = 1_200_000  # for all details of the file, so that 1,000 rows stay below 2 MB
LONGEST_DETAIL, SHORTEST_DETAIL = 4000, 120  # characters of one text


def render(page: Page) -> str:
    """The whole file. Rows open to what `page.details(row)` gives, shortened so that the file stays small."""
    style, script = style_text(), script_text()
    packed = Markup(script_json(json.dumps(_row_data(page), ensure_ascii=False, allow_nan=False, separators=(",", ":"))))
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            summary=_summary(page, rows=True),
            csp=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            row_data=packed,
        )
    )


def summary_html(page: Page) -> Markup:
    """The page from its verdicts to its manifest, for a document that brings its own head, style (`style_text`) and rows."""
    return _summary(page, rows=False)


def style_text() -> str:
    """The style of pages, for a `<style>` element or a file of its own."""
    return template_text("report.css")


def script_text() -> str:
    """The script that draws the rows of a page from its data block."""
    return template_text("report.js")


def _summary(page: Page, *, rows: bool) -> Markup:
    return Markup(
        environment()
        .get_template("summary.html.j2")
        .render(
            page=page,
            sections=[_Drawn.of(section) for section in page.sections],
            rows=rows,
            rows_note=_rows_note(page) if rows else "",
            manifest=visible(json.dumps(page.manifest, indent=2, ensure_ascii=False), 200_000, lines=True) if page.manifest else "",
        )
    )


def repr_html(page: Page) -> str:
    """The short form for notebooks: verdicts and tables, no style and no script."""
    return environment().get_template("fragment.html.j2").render(page=page)


def policy(style: str, script: str) -> str:
    """A content security policy that allows exactly this style and this script."""
    return f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@lru_cache
def template_text(name: str) -> str:
    """A file of `templates/`."""
    return (files("context_bench.reports") / "templates" / name).read_text(encoding="utf-8")


@lru_cache
def environment() -> Environment:
    """Where templates are rendered: everything is escaped, names unknown to a template are faults, `visible` tames outside text."""
    made = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["visible"] = visible
    made.filters["breakable"] = _breakable
    made.tests["figure"] = lambda value: isinstance(value, Figure)
    return made


def _breakable(text: object) -> Markup:
    """A name that may be broken after its separators."""
    return Markup(re.sub(r"([@/·])", r"\1<wbr>", str(escape(visible(text, 300)))))


# Sections ------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DrawnChart:
    title: str
    about: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True, slots=True)
class _Interval:
    at: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True, slots=True)
class _Bars:
    """The intervals of a table's first number, drawn on one scale."""

    title: str
    intervals: list[_Interval | None]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A section with its charts drawn."""

    id: str
    title: str
    tables: list[Table]
    charts: list[_DrawnChart]
    bars: _Bars | None

    @classmethod
    def of(cls, section: Section) -> _Drawn:
        drawn = [
            _DrawnChart(each.title, each.about, Markup(charts.svg(each)), Markup(charts.svg(each, width=charts.NARROW)))
            for each in section.charts
        ]
        bars = _bars(section.tables[0]) if section.id == "quality" and section.tables else None
        return cls(section.id, section.title, section.tables, drawn, bars)


def _bars(table: Table) -> _Bars | None:
    cells = [row[1] if isinstance(row[1], Figure) else None for row in table.rows]
    ends = [end for cell in cells if cell for end in (cell.value, cell.low, cell.high) if end is not None]
    if not ends:
        return None
    low, high = min(0.0, *ends), max(1.0, *ends)
    return _Bars(f"{low:g} to {high:g}", [_interval(cell, low, high) if cell else None for cell in cells])


def _interval(cell: Figure, low: float, high: float) -> _Interval:
    def place(value: float | None) -> float | None:
        return None if value is None else round(6 + 132 * (value - low) / (high - low), 1)

    at = place(cell.value)
    assert at is not None
    return _Interval(at, place(cell.low), place(cell.high), cell.text)


# Rows ----------------------------------------------------------------------------------------------------------------------------------

_TEXT_COLUMNS = ("system", "example", "dataset", "shape", "trial")


def _row_data(page: Page) -> dict[str, Any]:
    """Columns, rows as lists in their order, and per row its details or null."""
    used = _used(page)
    columns: list[dict[str, Any]] = [{"title": name, "kind": "text"} for name in used]
    columns += [{"title": visible(name, 40), "kind": "number", "digits": 4} for name in page.score_names]
    columns += [{"title": name, "kind": "number"} for name in ("sent", "forwarded")]
    columns += [
        {"title": "latency s", "kind": "number", "digits": 3},
        {"title": "cost $", "kind": "number", "digits": 6},
        {"title": "failure", "kind": "text"},
    ]
    rows = [_cells(row, page, used) for row in islice(page.rows, MOST_ROWS)]
    return {"columns": columns, "rows": rows, "details": list(_details(page, len(rows)))}


def _used(page: Page) -> list[str]:
    """The text columns worth showing: dataset, shape and trial only where they differ or say something."""
    datasets, shapes, trials = set(), set(), set()
    for row in islice(page.rows, MOST_ROWS):
        datasets.add(row.dataset)
        shapes.add(shape_of(row))
        trials.add(row.trial)
    shown = {"system": True, "example": True, "dataset": datasets != {""}, "shape": len(shapes) > 1, "trial": len(trials) > 1}
    return [name for name in _TEXT_COLUMNS if shown[name]]


def _cells(row: EvalRow, page: Page, used: list[str]) -> list[Any]:
    texts = {"system": row.system, "example": row.example_id, "dataset": row.dataset, "shape": shape_of(row), "trial": row.trial}
    scores = [_rounded(row.scores.get(name), 4) for name in page.score_names]
    failure = "; ".join(f"{source}: {error}" for source, error in row.errors.items())
    return [
        *(None if texts[name] is None else visible(texts[name]) for name in used),
        *scores,
        number(row.input_tokens),
        number(row.output_tokens),
        _rounded(row.latency, 4),
        _rounded(first(row.usage, "cost", "cost_usd", "usd"), 8),
        visible(failure, 160) if failure else None,
    ]


def _rounded(value: Any, digits: int) -> float | None:
    known = number(value)
    return None if known is None else round(known, digits)


def _details(page: Page, rows: int) -> Iterator[dict[str, str] | None]:
    """What stands behind each row, every text cut to its share of the room."""
    limit = min(LONGEST_DETAIL, DETAIL_BYTES // max(1, 3 * rows))
    for row in islice(page.rows, rows):
        told: Mapping[str, Any] = (page.details(row) if page.details and limit >= SHORTEST_DETAIL else None) or {}
        texts = {str(name): value for name, value in told.items() if value not in (None, "", {}, [])}
        if row.errors and "errors" not in texts:
            texts["errors"] = "\n".join(f"{source}: {error}" for source, error in row.errors.items())
        yield {
            visible(name, 60): visible(_as_text(value), max(limit, SHORTEST_DETAIL), lines=True) for name, value in texts.items()
        } or None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(json_ready(value), ensure_ascii=False, indent=2)


def _rows_note(page: Page) -> str:
    parts = []
    if len(page.rows) > MOST_ROWS:
        parts.append(f"The first {MOST_ROWS:,} of {len(page.rows):,} rows; the JSON and CSV reports hold all of them.")
    if page.details and len(page.rows) * 3 * SHORTEST_DETAIL > DETAIL_BYTES:
        parts.append("The run is too large to keep its texts in this page; the store holds them.")
    elif page.details and len(page.rows) * 3 * LONGEST_DETAIL > DETAIL_BYTES:
        parts.append(f"Long texts are cut to {DETAIL_BYTES // (3 * len(page.rows)):,} characters here; the store holds them whole.")
    return " ".join(parts)
