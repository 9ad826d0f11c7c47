"""The rows as CSV (RFC 4180, UTF-8): one line per row, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.reports.arm_aggregates import first, shape_of
from context_bench.reports.json_out import Writable
from context_bench.reports.page import Page
from context_bench.reports.text import csv_cell, json_ready

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


def render(page: Page) -> str:
    """The whole table as one string; lines end in CRLF."""
    stream = io.StringIO(newline="")
    write_csv(page, stream)
    return stream.getvalue()


def write_csv(page: Page, stream: Writable) -> None:
    """Write header and rows, one row in memory at a time. Open files with `newline=""`.

    Columns: identity, tokens, latency (seconds), every score in sorted order (`score:NAME` where a score is called like
    another column), billed and completion tokens, money (US dollars), errors as JSON. What is not known is an empty
    cell.
    """
    writer = csv.writer(stream)
    writer.writerow([csv_cell(name) for name in header(page.score_names)])
    for row in page.rows:
        writer.writerow(list(_cells(row, page.score_names)))


def header(score_names: list[str]) -> list[str]:
    """The column names."""
    taken = {*FIXED, *LAST}
    return [*FIXED, *(f"score:{name}" if name in taken else name for name in score_names), *LAST]


def _cells(row: EvalRow, score_names: list[str]) -> Iterator[str]:
    yield from (
        _text(value)
        for value in (row.system, row.example_id, row.dataset, row.trial, shape_of(row), row.group, row.cluster)
    )
    yield from (_number(value) for value in (row.input_tokens, row.output_tokens, row.latency))
    yield from (_number(row.scores.get(name)) for name in score_names)
    yield _number(first(row.usage, "input_tokens", "prompt_tokens"))
    yield _number(first(row.usage, "output_tokens", "completion_tokens"))
    yield _number(first(row.usage, "cost", "cost_usd", "usd"))
    yield csv_cell(json.dumps(json_ready(row.errors), ensure_ascii=False)) if row.errors else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else csv_cell(value)


def _number(value: Any) -> str:
    known = number(value)
    return "" if known is None else repr(known)
