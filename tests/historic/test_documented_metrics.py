"""Metrics and text comparisons as the documentation gives them: names, keys, formulas, what comes of no rows."""

import math

import pytest

from context_bench.metrics import (
    CompressionRatio,
    CostOfPass,
    Latency,
    MeanScore,
    ParetoRank,
    PassRate,
    PerDatasetBreakdown,
    PerQATypeMetric,
    TokenEfficiencyMetric,
)
from context_bench.metrics.quality import exact_match, f1_score, normalize_answer, recall_score
from context_bench.results import EvalRow

#: Positional as documented: system, id, scores, tokens in, tokens out.
ROWS = [
    EvalRow("s", i, {"score": score, "f1": score / 2}, 200, out)
    for i, (score, out) in enumerate([(0.7, 80), (0.2, 120), (1.0, 40)])
]


def test_mean_and_pass_rate_read_the_field_called_score_unless_told():
    assert MeanScore().compute(ROWS) == {"mean_score": pytest.approx(1.9 / 3)}
    assert MeanScore(score_field="f1").compute(ROWS)["mean_score"] == pytest.approx(0.95 / 3)
    assert PassRate(threshold=0.7).compute(ROWS) == {"pass_rate": pytest.approx(2 / 3)}  # at the mark is passed
    assert PassRate(threshold=0.5, score_field="f1").compute(ROWS)["pass_rate"] == pytest.approx(1 / 3)


def test_compression_is_by_sums_not_by_rows():
    found = CompressionRatio().compute([*ROWS, EvalRow("s", 3, {}, 1000, 960)])
    assert found == {
        "compression_ratio": pytest.approx(1 - 1200 / 1600),
        "mean_input_tokens": 400.0,
        "mean_output_tokens": 300.0,
    }


def test_the_cost_of_a_pass_is_all_tokens_over_the_passes():
    assert CostOfPass(threshold=0.7).compute(ROWS) == {"cost_of_pass": pytest.approx(120.0), "num_passing": 2.0}
    nobody = CostOfPass(threshold=0.7).compute([EvalRow("s", 0, {"score": 0.69}, 9, 9)])
    assert (nobody["cost_of_pass"], nobody["num_passing"]) == (math.inf, 0.0)


def test_latencies():
    found = Latency().compute(
        [EvalRow("s", i, {}, 0, 0, latency=seconds) for i, seconds in enumerate([0.4, 0.1, 0.3, 0.2])]
    )
    assert found["latency_mean"] == pytest.approx(0.25)
    assert 0.2 <= found["latency_median"] <= 0.3 <= found["latency_p95"] <= found["latency_p99"] <= 0.4
    assert set(Latency().compute([EvalRow("s", 0, {}, 0, 0, latency=2.5)]).values()) == {2.5}


def test_by_dataset():
    rows = [EvalRow("s", i, {"f1": i / 4}, 1, 1, dataset=tag) for i, tag in enumerate(["b", "a", "b", ""])]
    assert PerDatasetBreakdown().compute(rows) == {"dataset:a": 0.25, "dataset:b": 0.25, "dataset:unknown": 0.75}
    assert list(PerDatasetBreakdown(score_field="f1").compute(rows)) == ["dataset:a", "dataset:b", "dataset:unknown"]


def test_by_kind_of_question():
    kinds = [{"qa_type": "temporal"}, {"qa_type": "temporal"}, {}]
    rows = [
        EvalRow("s", i, {"f1": score}, 1, 1, metadata)
        for i, (score, metadata) in enumerate(zip([1.0, 0.5, 0.0], kinds, strict=True))
    ]
    assert PerQATypeMetric().compute(rows) == {"f1_temporal": 0.75, "f1_unknown": 0.0, "f1_mean": 0.5}


def test_token_efficiency():
    rows = [EvalRow("s", i, {"f1": 0.8}, 400, 10, {"ingest_latency": 3.0, "query_latency": 0.5}) for i in range(2)]
    found = TokenEfficiencyMetric().compute(rows)
    assert found["token_efficiency"] == pytest.approx(0.8 * (100 / 400) ** 0.1)
    assert found["token_efficiency_raw"] == pytest.approx(0.8 / 0.4)
    assert (found["mean_score"], found["mean_input_tokens"]) == (pytest.approx(0.8), 400.0)
    assert (found["mean_ingest_latency"], found["mean_query_latency"]) == (3.0, 0.5)


def test_rank_is_one_more_than_the_number_of_those_that_dominate():
    summary = {
        "good": {"mean_score": 0.8, "cost_of_pass": 90.0},
        "cheap": {"mean_score": 0.5, "cost_of_pass": 30.0},
        "worse": {"mean_score": 0.5, "cost_of_pass": 40.0},
        "worst": {"mean_score": 0.4, "cost_of_pass": 95.0},
        "unmeasured": {},
    }
    assert ParetoRank.rank_systems(summary) == {"good": 1, "cheap": 1, "worse": 2, "worst": 4, "unmeasured": 5}
    assert ParetoRank().compute(ROWS) == {"pareto_rank": 0.0}
    other = {"a": {"q": 1.0, "c": 2.0}, "b": {"q": 0.0, "c": 3.0}}
    assert ParetoRank.rank_systems(other, quality_field="q", cost_field="c") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("metric", "name", "empty"),
    [
        (MeanScore(), "mean_score", {"mean_score": 0.0}),
        (PassRate(), "pass_rate", {"pass_rate": 0.0}),
        (
            CompressionRatio(),
            "compression_ratio",
            dict.fromkeys(("compression_ratio", "mean_input_tokens", "mean_output_tokens"), 0.0),
        ),
        (CostOfPass(), "cost_of_pass", {"cost_of_pass": math.inf, "num_passing": 0.0}),
        (Latency(), "latency", dict.fromkeys(("latency_mean", "latency_median", "latency_p95", "latency_p99"), 0.0)),
        (PerDatasetBreakdown(), "per_dataset", {}),
        (PerQATypeMetric(), "per_qa_type", {}),
        (
            TokenEfficiencyMetric(),
            "token_efficiency",
            dict.fromkeys(
                ("token_efficiency", "mean_score", "mean_input_tokens", "mean_ingest_latency", "mean_query_latency"),
                0.0,
            ),
        ),
    ],
)
def test_names_and_what_comes_of_no_rows(metric, name, empty):
    assert metric.name == name
    assert metric.compute([]) == empty


def test_words_are_compared_without_case_articles_and_punctuation():
    assert normalize_answer("An  Owl, the Cat!") == "owl cat"
    assert exact_match("The Red House.", "red house") == 1.0
    assert exact_match("red", "blue") == 0.0
    assert f1_score("red red house", "red house") == pytest.approx(0.8)
    assert f1_score("", "red") == f1_score("red", "") == f1_score("red", "blue") == 0.0
    assert recall_score("a very red house", "red house") == 1.0
    assert recall_score("red", "red old stone house") == 0.25
    assert recall_score("red", "") == 0.0


def test_metrics_are_dataclasses():
    assert repr(PassRate(threshold=0.5, score_field="f1")) == "PassRate(threshold=0.5, score_field='f1')"
    assert MeanScore("f1") == MeanScore(score_field="f1")
