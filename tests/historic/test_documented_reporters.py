"""Reports as documented: their fixed words, and that numbers stand in them."""

import json

import pytest

from context_bench.reporters import to_json, to_markdown
from context_bench.reporters.html import to_html
from context_bench.results import EvalResult, EvalRow


@pytest.fixture
def result():
    rows = [
        EvalRow(name, 0, {"f1": score}, 120, 60, latency=0.2, dataset="tides")
        for name, score in (("ebb", 0.75), ("flow <b>", 0.5))
    ]
    summary = {"ebb": {"mean_score": 0.75, "pass_rate": 1.0, "cost_of_pass": 60.0}, "flow <b>": {"mean_score": 0.5}}
    return EvalResult(rows=rows, summary=summary, timing={"ebb": 1.25, "flow <b>": 2.0}, config={"num_examples": 1})


def test_markdown(result):
    text = to_markdown(result)
    assert "Evaluation Results" in text
    assert "| System" in text
    assert "0.7500" in text
    assert "—" in text  # what one system has and the other has not
    assert "1.25" in text
    assert "examples evaluated" in text or "1 example" in text


def test_html_is_one_page_with_a_table_that_can_be_filtered(result):
    page = to_html(result)
    assert page.lstrip().startswith("<!DOCTYPE html>")
    for text in ("context-bench", "ebb", "0.7500", "rowData", "filterRows", "renderTable"):
        assert text in page
    assert "flow <b>" not in page
    assert "<script src" not in page


def test_json_is_the_results_own(result):
    assert json.loads(to_json(result)) == json.loads(result.to_json())
    assert json.loads(to_json(result))["summary"]["ebb"]["mean_score"] == 0.75


def test_nothing_to_report():
    empty = EvalResult(rows=[], summary={})
    assert "No results to report." in to_markdown(empty)
    assert "No results" in to_html(empty)
    assert json.loads(to_json(empty))["rows"] == []


def test_rows_without_metrics():
    bare = EvalResult(rows=[EvalRow("s", 0, {}, 1, 1)], summary={"s": {}})
    assert "No metrics computed." in to_markdown(bare)
