"""Renderers by the name of their format, users' own included."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.lazy import registry
from context_bench.core.plugins import load_object, parse_spec
from context_bench.core.records import Result
from context_bench.reports.json_out import Writable
from context_bench.reports.page import Details, Page, build_page

FORMATS = {"table": "table", "markdown": "markdown", "json": "json_out", "csv": "csv_out", "html": "html"}
_STREAMED = {"json": "write_json", "csv": "write_csv"}


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
    page = _page(result, details)
    text: str = import_module(f"context_bench.reports.{FORMATS[format]}").render(page, **options)
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
        writer = getattr(import_module(f"context_bench.reports.{FORMATS[format]}"), _STREAMED[format])
        writer(_page(result, details), stream, **options)
    else:
        stream.write(render(result, format, details=details, **options))


def check_format(name: str) -> None:
    """Raise `UnknownName` or `BadInput` for what `render` could not make."""
    _registered(name)


def to_table(result: Result, **options: Any) -> str:
    """The page for a terminal; see `reports.table.render`."""
    return render(result, "table", **options)


def to_markdown(result: Result) -> str:
    """The page as Markdown."""
    return render(result, "markdown")


def to_json(result: Result, *, canonical: bool = False) -> str:
    """The result as JSON text; see `reports.json_out`."""
    return render(result, "json", canonical=canonical)


def to_csv(result: Result) -> str:
    """The rows as CSV."""
    return render(result, "csv")


def to_html(result: Result, *, details: Details | None = None) -> str:
    """One self-contained HTML page; `details(row)` gives what stands behind a row."""
    return render(result, "html", details=details)


def _page(result: Result | Page, details: Details | None) -> Page:
    return result if isinstance(result, Page) else build_page(result, details=details)


def _registered(name: str) -> Any | None:
    """The user's reporter of this name; `None` for a built-in one."""
    spec = parse_spec(name)
    if spec.scheme == "py":
        return load_object(spec.target)
    found = registry.find("reporter", name) if spec.scheme == "name" else None
    if found is None and name not in FORMATS:
        raise UnknownName("report format", name, [*FORMATS, *registry.names("reporter")])
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
