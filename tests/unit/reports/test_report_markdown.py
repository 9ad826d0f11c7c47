from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st
from markdown_it import MarkdownIt

from context_bench.core.records import EvalRow, Result
from context_bench.reports import build_page, to_markdown
from context_bench.reports.page import Figure

ANY = st.text(alphabet=st.characters(), max_size=40)


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a Markdown text as rows of cell texts (what a reader sees)."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level >= 4:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def test_documented_facts() -> None:
    rows = [EvalRow("a", number, {"f1": 0.5}, 100, 50) for number in range(3)]
    text = to_markdown(
        Result(rows, {"a": {"mean_score": 0.5, "other": 2014.0}, "b": {"mean_score": 0.25}}, timing={"a": 1.234})
    )
    assert text.startswith("# Evaluation Results\n")
    assert [["System", "mean_score", "other"], ["a", "0.5000", "2014.0000"], ["b", "0.2500", "—"]] in tables(text)
    assert "## Timing\n\n- a: 1.234 s" in text
    assert text.rstrip().splitlines()[-1] == "*3 examples evaluated*"
    one = to_markdown(Result(rows[:1], {"a": {"mean_score": 0.5}}))
    assert one.rstrip().splitlines()[-1] == "*1 example evaluated*"


def test_counts_are_whole_numbers_and_scores_have_four_decimals() -> None:
    told = {"f1_mean": 1.0, "num_passing": 4.0, "mean_input_tokens": 70.8, "latency_mean": 0.0004, "setup_calls": 0.0}
    rows = [EvalRow("a", number, {"f1": 1.0}, 100, 50) for number in range(4)]
    cells = {
        title: shown
        for titles, *lines in tables(to_markdown(Result(rows, {"a": told})))
        for title, shown in zip(titles, lines[-1], strict=True)
    }
    assert {name: cells[name] for name in told} == {
        "f1_mean": "1.0000",
        "num_passing": "4",
        "mean_input_tokens": "70.8",
        "latency_mean": "0.4 ms",
        "setup_calls": "0",
    }


def test_only_the_end_of_a_name_says_a_unit() -> None:
    told = {
        "cost_score": 0.75,
        "agent_cost_sum": 0.00688,
        "mean_usd": 0.0069,
        "tokens_kept_score": 0.5,
        "own_seconds": 0.2,
    }
    [_, line] = tables(to_markdown(Result([EvalRow("a", 1, {"f1": 1.0}, 100, 50)], {"a": told})))[1]
    assert line == ["a", "0.7500", "$0.00688", "$0.00690", "0.5000", "200 ms"]


def test_fixed_texts() -> None:
    assert "No results to report." in to_markdown(Result([], {}))
    assert "No metrics computed." in to_markdown(Result([], {"a": {}}))
    assert "Timing" not in to_markdown(Result([], {"a": {"x": 1.0}}))


def test_infinity_is_not_a_number_here() -> None:
    text = to_markdown(
        Result(
            [], {"a": {"mean_score": 0.5, "cost_of_pass": float("inf")}, "b": {"mean_score": 0.1, "cost_of_pass": 7.0}}
        )
    )
    assert tables(text)[0] == [
        ["System", "mean_score", "cost_of_pass"],
        ["a", "0.5000", "—"],
        ["b", "0.1000", "7"],
    ]


def test_many_metrics_are_several_readable_tables(result: Result) -> None:
    found = [
        table
        for table in tables(to_markdown(result))
        if "latency_p95" in table[0] or "mean_score" in table[0] or "cost_of_pass" in table[0]
    ]
    assert [table[0][0] for table in found] == ["System"] * 3
    assert max(len(table[0]) for table in found) <= 7
    assert [key for table in found for key in table[0][1:]] == list(result.summary["kompact"])


def test_verdicts_and_failures_have_their_places(result: Result) -> None:
    text = to_markdown(result)
    assert text.index("**loss** (inferior) kompact saves") < text.index("| System |")
    assert "## Failures" in text
    assert "TimedOut" in text


def test_pipes_newlines_and_html_do_not_break_anything(nasty: str, hostile: Callable[[str], Result]) -> None:
    check(hostile(nasty))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY)
def test_no_text_breaks_a_table(text: str, hostile: Callable[[str], Result]) -> None:
    check(hostile(text))


def check(result: Any) -> None:
    text = to_markdown(result)
    page = build_page(result)
    found = tables(text)
    sections = [*([page.overview] if page.overview else []), *page.sections]
    expected = [table for section in sections for table in section.tables]
    assert len(found) == len(expected)
    for rows in found:
        assert len({len(row) for row in rows}) == 1
    assert sorted(len(rows) for rows in found) == sorted(1 + len(table.rows) for table in expected)
    kinds = {
        token.type
        for block in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        for token in [block, *(block.children or [])]
    }
    assert not kinds & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
        "code_inline",
        "fence",
        "code_block",
        "hr",
        "ordered_list_open",
    }
    assert text.isprintable() or all(character.isprintable() or character == "\n" for character in text)


def test_tokens_have_a_decimal_only_where_they_are_no_whole_number() -> None:
    told = {33.0: "33", 70.8: "70.8", 0.0: "0", 1615.4: "1,615", math.inf: "inf", math.nan: "nan"}
    assert {value: Figure(value, "tokens").short for value in told} == told
