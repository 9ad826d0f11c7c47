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
    from context_bench.reports.html import repr_html as repr_html
    from context_bench.reports.output import FORMATS as FORMATS
    from context_bench.reports.output import render as render
    from context_bench.reports.output import to_csv as to_csv
    from context_bench.reports.output import to_html as to_html
    from context_bench.reports.output import to_json as to_json
    from context_bench.reports.output import to_markdown as to_markdown
    from context_bench.reports.output import to_table as to_table
    from context_bench.reports.output import write as write
    from context_bench.reports.page import Page as Page
    from context_bench.reports.page import build_page as build_page

__getattr__, __dir__ = lazy(
    __name__,
    [
        ".output:FORMATS",
        ".page:Page",
        ".page:build_page",
        ".output:render",
        ".html:repr_html",
        ".output:to_csv",
        ".frames:to_dataframe",
        ".output:to_html",
        ".output:to_json",
        ".output:to_markdown",
        ".output:to_table",
        ".output:write",
    ],
)
