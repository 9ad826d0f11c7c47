"""Pareto rank: documented form, ties, what is missing; and the rank a run writes into its summaries."""

import math

from context_bench.core.records import EvalRow
from context_bench.core.roles import roles_of_old_names
from context_bench.engine.run_summary import summarise
from context_bench.metrics import CompressionRatio, CostOfPass, MeanScore, ParetoRank
from context_bench.reports.page import build_page
from context_bench.results import EvalResult


def test_the_documented_form():
    assert ParetoRank() == ParetoRank(quality_field="score", cost_field="cost_of_pass")
    assert ParetoRank().name == "pareto_rank"
    assert ParetoRank().compute([]) == {"pareto_rank": 0.0}
    assert ParetoRank().compute([EvalRow("s", 1, {"score": 1.0})]) == {"pareto_rank": 0.0}


def test_rank_is_one_plus_the_number_that_dominate():
    summary = {
        "good": {"mean_score": 0.9, "cost_of_pass": 100.0},
        "cheap": {"mean_score": 0.5, "cost_of_pass": 10.0},
        "dear": {"mean_score": 0.9, "cost_of_pass": 200.0},
        "bad": {"mean_score": 0.4, "cost_of_pass": 300.0},
    }
    assert ParetoRank.rank_systems(summary) == {"good": 1, "cheap": 1, "dear": 2, "bad": 4}
    assert ParetoRank.rank_systems(summary, "mean_score", "cost_of_pass") == ParetoRank.rank_systems(summary)


def test_equal_systems_share_a_rank_and_missing_values_are_the_worst():
    same = {"mean_score": 0.5, "cost_of_pass": 10.0}
    assert ParetoRank.rank_systems({"a": same, "b": dict(same)}) == {"a": 1, "b": 1}
    found = ParetoRank.rank_systems({"a": same, "none": {}, "infinite": {"mean_score": 0.5, "cost_of_pass": math.inf}})
    assert found == {"a": 1, "none": 3, "infinite": 2}
    assert ParetoRank.rank_systems({}) == {}
    assert ParetoRank.rank_systems({"a": {"f1": 1.0, "usd": 2.0}, "b": {"f1": 1.0, "usd": 1.0}}, "f1", "usd") == {
        "a": 2,
        "b": 1,
    }


METRICS = [MeanScore("f1"), CostOfPass(0.7, "f1")]


def run(systems, metrics=METRICS, **more):
    """`systems`: name → (score, tokens) of all its rows; `None` = unknown."""
    rows = {
        name: [EvalRow(name, i, {} if score is None else {"f1": score}, 1000, tokens) for i in range(8)]
        for name, (score, tokens) in systems.items()
    }
    roles = roles_of_old_names(systems)
    return summarise(
        lambda name: iter(rows[name]), list(rows), list(metrics), score_field="f1", roles=roles, **more
    ).summary


def ranks(summary):
    return {system: values.get("pareto_rank") for system, values in summary.items()}


def test_a_run_ranks_all_its_arms_controls_included():
    found = run({"full": (1.0, 1000), "kompact": (1.0, 500), "none": (0.0, 10)})
    assert ranks(found) == {"full": 2.0, "kompact": 1.0, "none": 3.0}


def test_one_system_or_an_unmeasured_coordinate_has_no_rank():
    assert ranks(run({"a": (1.0, 10)})) == {"a": None}
    assert ranks(run({"a": (1.0, 10)}, [MeanScore("f1"), CostOfPass(0.7, "f1"), ParetoRank()])) == {"a": None}
    assert ranks(run({"a": (1.0, None), "b": (1.0, 10)})) == {"a": None, "b": None}
    assert ranks(run({"a": (1.0, None), "b": (1.0, 10), "c": (1.0, 20)})) == {"a": None, "b": 1.0, "c": 2.0}
    assert ranks(run({"a": (None, 5), "b": (1.0, 10), "c": (1.0, 20)})) == {"a": None, "b": 1.0, "c": 2.0}
    assert ranks(run({"a": (1.0, 10), "b": (1.0, 20)}, [MeanScore("f1")])) == {"a": None, "b": None}


def test_the_metric_says_what_is_ranked_by():
    by_tokens = [MeanScore("f1"), CostOfPass(0.7, "f1"), ParetoRank(quality_field="f1", cost_field="num_passing")]
    assert ranks(run({"a": (1.0, 10), "b": (0.5, 20)}, by_tokens)) == {"a": 1.0, "b": 1.0}


def spread(name, score, tokens, n=40):
    """Rows whose score is right for that share of them, and whose tokens scatter."""
    return [EvalRow(name, i, {"f1": float(i < score * n)}, 1000, tokens + (i * 7 % n)) for i in range(n)]


def test_noise_has_no_rank_and_gives_none():
    rows = {
        "full": spread("full", 0.8, 900),
        "full#2": spread("full#2", 0.9, 880, n=8),
        "bm25": spread("bm25", 0.7, 200),
    }
    rows["random_drop"] = [
        EvalRow(row.system, row.example_id, {"f1": 0.0 if i > 8 else 1.0}, 1000, row.output_tokens - 0.2)
        for i, row in enumerate(spread("random_drop", 0.2, 200))
    ]
    asked = [*METRICS, CompressionRatio(), ParetoRank("f1", "mean_output_tokens")]
    told = summarise(lambda name: iter(rows[name]), list(rows), asked, score_field="f1", roles=roles_of_old_names(rows))
    assert ranks(told.summary) == {"full": 2.0, "full#2": None, "bm25": 1.0, "random_drop": 2.0}
    page = build_page(
        EvalResult(rows=[row for each in rows.values() for row in each], summary=told.summary, estimates=told.estimates)
    )
    assert [point.name for point in page.section("quality").charts[0].data if point.front] == ["bm25"]
