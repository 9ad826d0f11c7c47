"""Metrics: documented keys, arguments and values, and what is left out."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from context_bench.core.protocols import Metric
from context_bench.core.records import EvalRow
from context_bench.metrics import BUILTINS, CompressionRatio, CostOfPass, Latency, MeanScore, PassRate


def row(score=None, sent=100, forwarded=50, field="score", **more):
    return EvalRow("s", 1, {} if score is None else {field: score}, sent, forwarded, **more)


FAILED = {"errors": {"system": "TimedOut: 30 s"}}


@pytest.mark.parametrize(
    ("metric", "empty"),
    [
        (MeanScore(), {"mean_score": 0.0}),
        (PassRate(), {"pass_rate": 0.0}),
        (CompressionRatio(), {"compression_ratio": 0.0, "mean_input_tokens": 0.0, "mean_output_tokens": 0.0}),
        (CostOfPass(), {"cost_of_pass": math.inf, "num_passing": 0.0}),
        (Latency(), {"latency_mean": 0.0, "latency_median": 0.0, "latency_p95": 0.0, "latency_p99": 0.0}),
    ],
)
def test_documented_values_without_rows(metric, empty):
    assert metric.compute([]) == empty
    assert isinstance(metric, Metric)
    assert type(metric).__name__ in repr(metric)


def test_names_are_the_documented_ones():
    names = [cls().name for cls in (MeanScore, PassRate, CompressionRatio, CostOfPass, Latency)]
    assert names == ["mean_score", "pass_rate", "compression_ratio", "cost_of_pass", "latency"]
    assert set(names) <= set(BUILTINS)
    assert MeanScore(score_field="f1") == MeanScore("f1")
    assert PassRate(threshold=0.5, score_field="f1") == PassRate(0.5, "f1")
    assert CostOfPass(threshold=0.5, score_field="f1") == CostOfPass(0.5, "f1")


def test_mean_leaves_out_rows_without_the_score():
    assert MeanScore("f1").compute(
        [row(1.0, field="f1"), row(0.5, field="f1"), row(0.0, field="other"), row(**FAILED)]
    ) == {"mean_score": 0.75}
    assert MeanScore("f1").compute([row(1.0, field="other")]) == {"mean_score": 0.0}
    assert MeanScore().compute([row(math.nan), row(None), row(1)]) == {"mean_score": 1.0}


def test_pass_mark_counts_as_passed():
    assert PassRate().compute([row(0.7), row(0.69), row(1.0), row()]) == {"pass_rate": pytest.approx(2 / 3)}


def test_compression_is_a_ratio_of_sums_over_rows_that_know_both():
    rows = [
        row(sent=100, forwarded=50),
        row(sent=300, forwarded=300),
        row(sent=1000, forwarded=None),
        row(sent=None, forwarded=7),
    ]
    assert CompressionRatio().compute(rows) == {
        "compression_ratio": 0.125,
        "mean_input_tokens": 200.0,
        "mean_output_tokens": 175.0,
    }
    assert CompressionRatio().compute([row(sent=10, forwarded=20)])["compression_ratio"] == -1.0
    assert CompressionRatio().compute([row(sent=0, forwarded=20)])["compression_ratio"] == 0.0


def test_unknown_tokens_are_absent_not_zero():
    assert CompressionRatio().compute([row(sent=100, forwarded=None)]) == {"mean_input_tokens": 100.0}
    assert CompressionRatio().compute([row(sent=None, forwarded=None)]) == {}


def test_cost_of_pass_counts_prompt_and_reply_tokens_of_failures_too():
    rows = [
        row(1.0, usage={"output_tokens": 10}),
        row(0.2, usage={"completion_tokens": 5}),
        row(forwarded=20, **FAILED),
    ]
    assert CostOfPass().compute(rows) == {"num_passing": 1.0, "cost_of_pass": 50 + 10 + 50 + 5 + 20}
    assert CostOfPass().compute([row(0.1)]) == {"num_passing": 0.0, "cost_of_pass": math.inf}
    assert CostOfPass().compute([row(1.0, forwarded=None)]) == {"num_passing": 1.0}


def test_cost_of_pass_leaves_out_rows_that_the_score_does_not_apply_to():
    rows = [
        row(1.0, usage={"cost": 0.02}),
        row(None, forwarded=1000),
        row(forwarded=20, usage={"cost": 0.01}, **FAILED),
    ]
    assert CostOfPass().compute(rows) == {
        "num_passing": 1.0,
        "cost_of_pass": 70.0,
        "cost_of_pass_usd": pytest.approx(0.03),
    }
    assert CostOfPass().compute([row(None)]) == {"num_passing": 0.0, "cost_of_pass": math.inf}


def test_cost_of_pass_in_money_only_where_all_prices_are_known():
    priced = [
        row(1.0, usage={"cost": 0.02}),
        row(0.0, usage={"cost": 0.01}),
        row(usage={"cost": 0.03}, **FAILED),
        row(**FAILED),
    ]
    assert CostOfPass().compute(priced)["cost_of_pass_usd"] == pytest.approx(0.06)
    assert "cost_of_pass_usd" not in CostOfPass().compute([*priced, row(1.0)])
    assert CostOfPass().compute(priced[1:])["cost_of_pass_usd"] == math.inf


def test_percentiles_of_one_to_a_hundred():
    found = Latency().compute([row(latency=float(i)) for i in range(100, 0, -1)])
    assert found == {
        "latency_mean": 50.5,
        "latency_median": 50.5,
        "latency_p95": pytest.approx(95.05),
        "latency_p99": pytest.approx(99.01),
    }


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_numpys(seconds):
    found = Latency().compute([row(latency=value) for value in seconds])
    expected = [np.mean(seconds), *np.percentile(seconds, [50, 95, 99])]
    assert list(found.values()) == pytest.approx(expected)


def test_latency_leaves_failures_out_and_tells_time_to_first_token():
    rows = [
        row(latency=1.0, usage={"ttft": 0.25}),
        row(latency=3.0, usage={"ttft": 0.75}),
        row(latency=60.0, **FAILED),
        row(latency=None),
    ]
    found = Latency().compute(rows)
    assert found["latency_mean"] == 2.0
    assert found["ttft_median"] == 0.5
    assert found["ttft_p95"] == pytest.approx(0.725)
    assert Latency().compute([row(latency=60.0, **FAILED)]) == {}


scores = st.one_of(st.none(), st.floats(0, 1))
tokens = st.one_of(st.none(), st.integers(0, 10_000))


@given(st.lists(st.tuples(scores, tokens, tokens), max_size=20))
def test_one_pass_equals_compute_and_takes_any_iterable(facts):
    for metric in (MeanScore(), PassRate(), CompressionRatio(), CostOfPass(), Latency()):
        rows = [row(score, sent, forwarded) for score, sent, forwarded in facts]
        tally = metric.tally()
        for each in rows:
            tally.add(each)
        assert tally.result() == metric.compute(iter(rows)) == metric.compute(rows)
        finite = {key: value for key, value in tally.result().items() if math.isfinite(value)}
        json.dumps(finite, allow_nan=False)
