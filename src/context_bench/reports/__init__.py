"""Numbers → a page → text: table, Markdown, JSON, CSV, HTML, or a reporter of your own.

`build_page(result)` makes the one model; `render(result, format)` turns a result into text;
`write(result, format, stream)` does it row by row. Everything loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

__all__ = [
    "FORMATS",
    "Page",
    "build_page",
    "render",
    "repr_html",
    "to_csv",
    "to_dataframe",
    "to_html",
    "to_json",
    "to_markdown",
    "to_table",
    "write",
]

if TYPE_CHECKING:
    from context_bench.reports.frames import to_dataframe as to_dataframe
    from context_bench.reports.html_page import repr_html as repr_html
    from context_bench.reports.page import Page as Page, build_page as build_page
    from context_bench.reports.renderers import (
        FORMATS as FORMATS,
        render as render,
        to_csv as to_csv,
        to_html as to_html,
        to_json as to_json,
        to_markdown as to_markdown,
        to_table as to_table,
        write as write,
    )

__getattr__, __dir__ = lazy(
    __name__,
    [
        ".renderers:FORMATS",
        ".page:Page",
        ".page:build_page",
        ".renderers:render",
        ".html_page:repr_html",
        ".renderers:to_csv",
        ".frames:to_dataframe",
        ".renderers:to_html",
        ".renderers:to_json",
        ".renderers:to_markdown",
        ".renderers:to_table",
        ".renderers:write",
    ],
)
