from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.lazy import registry
from context_bench.core.records import Result
from context_bench.reports import FORMATS, build_page, render, to_table, write
from context_bench.reports.page import Page


@pytest.fixture
def register() -> Iterator[Any]:
    names: list[str] = []

    def added(name: str, reporter: Any) -> None:
        names.append(name)
        registry.register("reporter", name, reporter)

    yield added
    for name in names:
        registry._objects["reporter"].pop(name, None)


class Counting:
    """A reporter that gets the page."""

    def render(self, page: Page) -> str:
        return f"{len(page.rows)} rows of {', '.join(page.systems)}"


def first_system(result: Result) -> str:
    return next(iter(result.summary))


def test_every_format_gives_text_for_result_and_page(result: Result) -> None:
    page = build_page(result)
    for name in FORMATS:
        assert render(result, name) == render(page, name)


def test_users_reporters_by_object_class_and_function(result: Result, register: Any) -> None:
    register("counting", Counting())
    register("counting-class", Counting)
    register("first", first_system)
    assert render(result, "counting") == render(result, "counting-class") == "280 rows of " + ", ".join(result.summary)
    assert render(result, "first") == "kompact"


def test_a_users_name_comes_before_ours(result: Result, register: Any) -> None:
    register("json", lambda result: "mine")
    assert render(result, "json") == "mine"
    stream = io.StringIO()
    write(result, "json", stream)
    assert stream.getvalue() == "mine"


def test_a_reporter_by_its_import_path(result: Result) -> None:
    assert render(result, "py:context_bench.reports:to_table") == to_table(result)


def test_unknown_and_unusable_reporters_say_what_is_wrong(result: Result, register: Any) -> None:
    with pytest.raises(UnknownName, match="markdown"):
        render(result, "markdwon")
    register("broken", 7)
    with pytest.raises(BadInput, match="int"):
        render(result, "broken")
    register("silent", lambda result: None)
    with pytest.raises(BadInput, match="NoneType"):
        render(result, "silent")


def test_options_reach_the_renderer(result: Result) -> None:
    assert '"timing"' not in render(result, "json", canonical=True)
    assert len(render(result, "table", width=200).splitlines()) < len(render(result, "table", width=60).splitlines())


def test_importing_reports_loads_nothing_heavy() -> None:
    code = (
        "import sys, context_bench.reports; "
        "print([name for name in ('rich', 'jinja2', 'altair', 'vl_convert', 'pandas', 'numpy') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_json_and_csv_need_neither_rich_nor_charts() -> None:
    code = (
        "import sys; from context_bench.core.records import Result; from context_bench.reports import render; "
        "render(Result([], {}), 'json'); render(Result([], {}), 'csv'); "
        "print([name for name in ('rich', 'jinja2', 'altair', 'vl_convert', 'pandas', 'numpy') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
