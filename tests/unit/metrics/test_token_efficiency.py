"""The memory benchmark's index: documented keys, formula and zeros, and its warning."""

import pytest

from context_bench.core.records import EvalRow
from context_bench.engine.run_summary import summarise
from context_bench.metrics import MeanScore, TokenEfficiencyMetric

ALL = ("token_efficiency", "mean_score", "mean_input_tokens", "mean_ingest_latency", "mean_query_latency")


def row(score=None, tokens=None, **metadata):
    return EvalRow("s", 1, {} if score is None else {"f1": score}, tokens, metadata=metadata)


def test_documented_formula():
    rows = [row(0.5, 100, ingest_latency=1.0, query_latency=0.5), row(0.7, 300, ingest_latency=3.0, query_latency=0.1)]
    found = TokenEfficiencyMetric().compute(rows)
    assert found == pytest.approx(
        {
            "token_efficiency": 0.6 * (100 / 200) ** 0.1,
            "token_efficiency_raw": 0.6 / 0.2,
            "mean_score": 0.6,
            "mean_input_tokens": 200.0,
            "mean_ingest_latency": 2.0,
            "mean_query_latency": 0.3,
        }
    )
    assert TokenEfficiencyMetric(score_field="f1") == TokenEfficiencyMetric("f1")


def test_zeros_without_rows_score_or_tokens():
    assert TokenEfficiencyMetric().compute([]) == dict.fromkeys(ALL, 0.0)
    assert TokenEfficiencyMetric().compute([row(0.0, 100)])["token_efficiency"] == 0.0
    assert TokenEfficiencyMetric().compute([row(0.0, 100)])["token_efficiency_raw"] == 0.0
    free = TokenEfficiencyMetric().compute([row(1.0, 0)])
    assert free["token_efficiency"] == 0.0
    assert "token_efficiency_raw" not in free


def test_in_a_run_the_unmeasured_is_absent():
    rows = [row(1.0, None), row(0.5, None)]
    found = summarise(lambda _: iter(rows), ["s"], [TokenEfficiencyMetric()], score_field="f1")
    assert found.summary["s"] == {"mean_score": 0.75}
    assert found.estimates["s"]["mean_score"].n == 2


def test_beside_another_mean_score_neither_is_lost():
    rows = [EvalRow("s", 1, {"f1": 1.0, "recall": 0.5}, 100)]
    found = summarise(
        lambda _: iter(rows), ["s"], [MeanScore("f1"), TokenEfficiencyMetric("recall")], score_field="f1"
    ).summary["s"]
    assert (found["mean_score"], found["mean_recall"]) == (1.0, 0.5)


def test_what_a_thousandth_of_the_tokens_is_worth():
    """The reason for the warning: a factor of 2."""
    few, many = (TokenEfficiencyMetric().compute([row(1.0, tokens)])["token_efficiency"] for tokens in (100, 100_000))
    assert few / many == pytest.approx(2.0, rel=0.01)
    assert "ad hoc" in TokenEfficiencyMetric.__doc__
