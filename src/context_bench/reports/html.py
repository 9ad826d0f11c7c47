"""A page as one HTML file: no network, no foreign script, opens from disk, light and dark, printable.

The policy in the file allows exactly our own style and script, by hash. Everything that comes from data is escaped by the template, or
stands in a data block from which the script makes text, or what the template made, never markup of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from context_bench.reports.drawn import DrawnSection, DrawnVerdicts
from context_bench.reports.page import Change, Figure, Page
from context_bench.reports.text import visible


def render(page: Page) -> str:
    """The whole file. Rows open to what `page.details(row)` gives, shortened so that the file stays small."""
    from context_bench.reports.rowdata import row_data

    style, script, rows = style_text(), script_text(), row_data(page)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            summary=_summary(page, _in_file, rows_note=rows.note),
            csp=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            row_data=Markup(rows.block),
            chunks=[Markup(chunk) for chunk in rows.chunks],
        )
    )


def summary_html(page: Page, *, link: Callable[[Change], str | None] | None = None) -> Markup:
    """The page from its verdicts to its manifest, for a document that brings its own head, style (`style_text`) and rows.

    `link`: the address of the row that stands for what a system changed; without it the example is named only.
    """
    return _summary(page, link, rows_note=None)


def style_text() -> str:
    """The style of pages and of what their rows open to, for a `<style>` element or a file of its own."""
    return template_text("report.css") + template_text("detail.css")


def script_text() -> str:
    """The script that draws the rows of a page from its data block."""
    return template_text("report.js")


def repr_html(page: Page) -> str:
    """The short form for notebooks: verdicts and tables, no style and no script."""
    return environment().get_template("fragment.html.j2").render(page=page)


def policy(style: str, script: str) -> str:
    """A content security policy that allows exactly this style and this script."""
    return f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _in_file(change: Change) -> str | None:
    return None if change.place is None else f"#row-{change.place}"


def _summary(page: Page, link: Callable[[Change], str | None] | None, *, rows_note: str | None) -> Markup:
    """`rows_note`: what is said above the rows; `None` for a page without rows."""
    return Markup(
        environment()
        .get_template("summary.html.j2")
        .render(
            page=page,
            verdicts=DrawnVerdicts.of(page.verdicts),
            changes=[(change, link(change) if link else None) for change in page.changes],
            sections=[DrawnSection.of(section) for section in page.sections],
            timing=sorted(
                page.timing.items(), key=lambda entry: page.systems.index(entry[0]) if entry[0] in page.systems else len(page.systems)
            ),
            rows_note=rows_note,
            manifest=visible(json.dumps(page.manifest, indent=2, ensure_ascii=False), 200_000, lines=True) if page.manifest else "",
        )
    )


# Templates -----------------------------------------------------------------------------------------------------------------------------


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
    made.filters["unbroken"] = lambda title: title.replace(" %", "\u00a0%")
    made.filters["duration"] = _duration
    made.tests["figure"] = lambda value: isinstance(value, Figure)
    return made


def _breakable(text: object) -> Markup:
    """A name that may be broken after its separators."""
    return Markup(re.sub(r"([@/·])", r"\1<wbr>", str(escape(visible(text, 300)))))


def _duration(seconds: float) -> str:
    """A time to read: "0.42 s", "48.6 s", "4 min 23 s", "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
