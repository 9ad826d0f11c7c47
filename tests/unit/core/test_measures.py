"""Measures that files declare: each evaluator's and metric's numbers have one, and those of others are found."""

import sys
from types import ModuleType

import pytest

from context_bench.core.measures import Measure, Measures
from context_bench.core.plugins import load_object
from context_bench.core.records import EvalRow
from context_bench.evaluators import BUILTINS as EVALUATORS
from context_bench.metrics import BUILTINS as METRICS

#: Scores that a rubric names, whose file may be the user's.
OF_RUBRICS = ("rubric_judge",)


@pytest.mark.parametrize("name", [name for name in EVALUATORS if name not in OF_RUBRICS])
def test_each_score_of_an_evaluator_is_declared(name):
    kind = load_object(EVALUATORS[name])
    fields = getattr(kind, "fields", None) or getattr(kind() if name == "retrieval" else kind, "fields", ())
    assert [field for field in fields if Measures().of(field) is None] == []


@pytest.mark.parametrize("name", [name for name in METRICS if name != "per_qa_type"])  # named after score and question
def test_each_number_of_a_metric_is_declared(name):
    usage = {"output_tokens": 5, "cost": 0.1, "ttft": 0.5}
    scores = {"f1": 1.0, "score": 1.0, "pass_at_1": 1.0}
    rows = [EvalRow("s", n, scores, 10, 5, latency=1.5, usage=usage, dataset="d") for n in range(3)]
    numbers = load_object(METRICS[name])().compute(rows)
    assert [number for number in numbers if Measures().of(number) is None] == []


def test_a_declared_name_may_be_a_form():
    assert Measures().of("recall_at_10_tokens") == Measure(unit="score", better="higher", place="memory")
    assert Measures().of("latency_p95") == Measure(unit="seconds", better="lower", place="time")
    assert Measures().of("nobody_declares_this") is None


def plugin(monkeypatch, measures):
    module = ModuleType("loud_module")
    module.MEASURES = measures
    monkeypatch.setitem(sys.modules, "loud_module", module)
    return type("Loud", (), {"__module__": "loud_module"})()


def test_the_module_of_a_plug_in_at_hand_declares_its_own(monkeypatch):
    loud = plugin(monkeypatch, {"volume peak": {"title": "volume", "unit": "count", "better": "lower"}})
    assert Measures([loud]).of("peak") == Measure("volume", "count", "lower", "metrics")


def test_what_is_no_declaration_is_left_out_with_a_warning(monkeypatch):
    loud = plugin(monkeypatch, {"volume": {"colour": "red"}})
    with pytest.warns(UserWarning, match="MEASURES of loud_module is left out"):
        assert Measures([loud]).of("volume") is None
