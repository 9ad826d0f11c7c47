"""What a row opens to, in the report and in the viewer: question, gold, answer, scores with their reasons, what was sent and forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from context_bench.core.records import EvalRow

TEXTS = {"question": "Question", "answer": "Gold answer", "response": "Answer", "context": "Context"}


def detail_html(row: EvalRow, told: Mapping[str, Any] | None, *, limit: int | None = None) -> Markup:
    """The fragment for one row. `told`: what `details(row)` gave (see `runner.details`). `limit`: characters kept of each text (`None`:
    all of it, long unchanged runs folded); what was cut is said, with the command that shows all. Needs the style of `detail.css`.
    """
    from context_bench.reports.html import environment

    told = told or {}
    texts = [(title, told[name]) for name, title in TEXTS.items() if told.get(name)]
    return Markup(environment().get_template("detail.html.j2").render(row=row, texts=texts, limit=limit))
