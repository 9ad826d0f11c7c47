"""One score by kind of question."""

import pytest

from context_bench.core.records import EvalRow
from context_bench.engine.run_summary import summarise
from context_bench.metrics import PerQATypeMetric


def row(kind, score=None, number=1, **more):
    return EvalRow(
        "s", number, {} if score is None else {"f1": score}, metadata={} if kind is None else {"qa_type": kind}, **more
    )


def test_documented_keys():
    rows = [row("temporal", 1.0), row("single_hop", 0.5), row("single_hop", 0.0), row(None, 0.25)]
    found = PerQATypeMetric().compute(rows)
    assert found == {"f1_single_hop": 0.25, "f1_temporal": 1.0, "f1_unknown": 0.25, "f1_mean": pytest.approx(1.75 / 4)}
    assert list(found)[-1] == "f1_mean"
    assert PerQATypeMetric(score_field="f1") == PerQATypeMetric("f1")


def test_nothing_scored_is_nothing():
    assert PerQATypeMetric().compute([]) == {}
    assert PerQATypeMetric("other").compute([row("temporal", 1.0)]) == {}
    assert PerQATypeMetric().compute(iter([row("temporal"), row("x", 1.0)])) == {"f1_x": 1.0, "f1_mean": 1.0}


def test_each_kind_has_an_estimate():
    rows = [row(("temporal", "multi_hop")[i % 2], float(i % 4 > 0), i) for i in range(40)]
    rows += [row("temporal", None, 40, errors={"system": "TimedOut: x"})]
    found = summarise(lambda _: iter(rows), ["s"], [PerQATypeMetric("f1")], score_field="f1")
    told = found.estimates["s"]
    assert {key: estimate.value for key, estimate in told.items() if key in found.summary["s"]} == found.summary["s"]
    assert (told["f1_temporal"].n, told["f1_temporal"].failures) == (20, 1)
    assert told["f1_multi_hop"].failures == 0
    assert told["f1_mean"] == told["f1"]
