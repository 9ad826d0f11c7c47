"""One score by dataset: keys, order, and nothing averaged in where the score does not apply."""

import pytest
from hypothesis import given, strategies as st

from context_bench.core.records import EvalRow
from context_bench.engine.run_summary import summarise
from context_bench.metrics import MeanScore, PerDatasetBreakdown


def row(dataset, score=None, number=1, **more):
    return EvalRow("s", number, {} if score is None else {"f1": score}, dataset=dataset, **more)


def test_documented_keys_sorted_with_unknown_for_no_tag():
    rows = [row("mmlu", 1.0), row("hotpotqa", 0.5), row("hotpotqa", 0.0), row("", 0.25)]
    found = PerDatasetBreakdown().compute(rows)
    assert found == {"dataset:hotpotqa": 0.25, "dataset:mmlu": 1.0, "dataset:unknown": 0.25}
    assert list(found) == sorted(found)
    assert PerDatasetBreakdown(score_field="f1") == PerDatasetBreakdown("f1")
    assert PerDatasetBreakdown().compute([]) == {}


def test_a_score_that_does_not_apply_is_no_zero():
    """Two right answers of MMLU are not halved by two HotpotQA rows that have no `mc_accuracy`."""
    rows = [EvalRow("s", i, {"mc_accuracy": 1.0}, dataset="mmlu") for i in range(2)] + [
        row("hotpotqa", 1.0),
        row("hotpotqa", 0.5),
    ]
    assert PerDatasetBreakdown("mc_accuracy").compute(rows) == {"dataset:mmlu": 1.0}
    assert MeanScore("mc_accuracy").compute(rows) == {"mean_score": 1.0}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.one_of(st.none(), st.floats(0, 1))), max_size=20))
def test_one_pass_and_any_iterable(facts):
    rows = [row(*fact) for fact in facts]
    found = PerDatasetBreakdown().compute(iter(rows))
    assert found == PerDatasetBreakdown().compute(rows)
    for tag in ("a", "b", ""):
        known = [score for name, score in facts if name == tag and score is not None]
        assert (f"dataset:{tag or 'unknown'}" in found) is bool(known)


def test_each_dataset_has_its_n_failures_interval_and_bounds():
    rows = [row(f"d{i % 2}", float(i % 3 > 0), i) for i in range(60)]
    rows += [row("d1", None, 60 + i, errors={"system": "TimedOut: x"}) for i in range(5)]
    found = summarise(lambda _: iter(rows), ["s"], [MeanScore("f1"), PerDatasetBreakdown("f1")], score_field="f1")
    assert found.summary["s"]["dataset:d0"] == found.estimates["s"]["dataset:d0"].value
    estimate = found.estimates["s"]["dataset:d1"]
    assert (estimate.n, estimate.failures, estimate.clusters) == (30, 5, 30)
    assert estimate.low < estimate.value < estimate.high
    assert (estimate.worst, estimate.best) == (pytest.approx(20 / 35), pytest.approx(25 / 35))
    assert found.estimates["s"]["dataset:d0"].failures == 0
