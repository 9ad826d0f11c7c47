"""From what was read to HTML. Everything is escaped by the templates, and outside text goes through `visible` as in
every report.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader, TemplateNotFound
from markupsafe import Markup

from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.engine.progress import duration, short
from context_bench.reports.arm_aggregates import first
from context_bench.reports.detail import detail_html
from context_bench.reports.html_page import environment, style_text, template_text
from context_bench.reports.page import Figure, Unit
from context_bench.viewer.library import PAGE, pair_url, row_url, run_url

MOST_SCORES = 10  # columns of the table of rows


def render(template: str, **values: Any) -> str:
    """A page or a part of one."""
    return _environment().get_template(template).render(**values)


@lru_cache
def _environment() -> Environment:
    shared = environment()
    assert shared.loader is not None
    made = shared.overlay(loader=ChoiceLoader([FunctionLoader(_own), shared.loader]))
    made.globals = {
        **shared.globals,
        "run_url": run_url,
        "row_url": row_url,
        "pair_url": pair_url,
        "detail_html": detail_html,
        "cells": cells,
        "page_size": PAGE,
        "most_scores": MOST_SCORES,
    }
    made.filters = {
        **shared.filters,
        "when": when,
        "duration": _duration,
        "short": _short,
        "unit": _unit,
        "markup": Markup,
    }
    return made


def _own(name: str) -> str | None:
    place = files("context_bench.viewer") / "templates" / name
    return place.read_text(encoding="utf-8") if place.is_file() else None


@lru_cache
def style() -> str:
    """The style of every page: the report's, that of opened rows, and the viewer's own."""
    own = _own("viewer.css")
    assert own is not None
    return "\n".join((style_text(), template_text("detail.css"), own))


@lru_cache
def script() -> str:
    """The viewer's own script."""
    own = _own("viewer.js")
    if own is None:
        raise TemplateNotFound("viewer.js")
    return own


def when(seconds: float) -> str:
    """A time as a person reads it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _duration(seconds: float | None) -> str:
    return "—" if seconds is None else duration(seconds)


def _short(count: int | None) -> str:
    return "—" if count is None else short(count)


def _unit(value: float | None, unit: Unit, digits: int | None = None) -> str:
    return "—" if value is None else Figure(value, unit, digits=digits).short


def cells(row: EvalRow, scores: list[str]) -> dict[str, Any]:
    """The figures of a row, ready to be shown."""
    failure = "; ".join(f"{source}: {error}" for source, error in row.errors.items())
    return {
        "scores": [_unit(number(row.scores.get(name)), "score") for name in scores],
        "sent": _unit(number(row.input_tokens), "tokens"),
        "forwarded": _unit(number(row.output_tokens), "tokens"),
        "latency": _unit(number(row.latency), "seconds"),
        "cost": _unit(first(row.usage, "cost", "cost_usd", "usd"), "usd"),
        "failure": failure,
    }
