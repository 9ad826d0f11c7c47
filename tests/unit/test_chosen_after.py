"""A margin or score that is chosen when answers are there already; and what `filter` does to a summary with several
means.
"""

import pytest

from context_bench import evaluate
from context_bench.engine import open_store
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import CostOfPass, MeanScore, ParetoRank
from context_bench.runner import collect

METRICS = [MeanScore("f1"), MeanScore("exact_match"), CostOfPass(0.7, "f1"), ParetoRank()]


class Says:
    def __init__(self, name, answer):
        self.name, self.answer = name, answer

    def process(self, example):
        return {**example, "response": self.answer or example["answer"]}


@pytest.fixture
def stored(tmp_path):
    data = [
        {"id": i, "context": f"The house {i} is red.", "question": "?", "answer": "red", "dataset": f"d{i % 2}"}
        for i in range(20)
    ]
    path = tmp_path / "store.db"
    result = evaluate(
        [Says("full", None), Says("a", "red house")],
        data,
        [AnswerQuality()],
        METRICS,
        progress=False,
        store=path,
        run="r",
        margin=0.5,
    )
    store = open_store(str(path))
    yield result, store
    store.close()


def test_the_runs_own_margin_is_not_post_hoc(stored):
    result, store = stored
    for found in (result, collect(store, "r", METRICS), collect(store, "r", METRICS, margin=0.5)):
        assert [(each.margin, each.post_hoc) for each in found.comparisons if each.dataset is None] == [(0.5, False)]
        assert not any("Post hoc" in note for note in found.notes)


def test_another_margin_or_score_is(stored):
    _, store = stored
    wider = collect(store, "r", METRICS, margin=0.9)
    assert [(each.margin, each.post_hoc) for each in wider.comparisons] == [(0.9, True)] * len(wider.comparisons)
    assert "Margin chosen after the run: exploratory." in wider.comparisons[0].sentence
    assert any(note.startswith("Post hoc: margin 0.5 became 0.9 after answers were there") for note in wider.notes)
    other = collect(store, "r", METRICS, margin=0.9, score_field="exact_match")
    assert other.comparisons[0].metric == "exact_match"
    assert "Margin and score chosen after the run: exploratory." in other.comparisons[0].sentence
    assert other.summary["a"]["mean_score"] == other.estimates["a"]["exact_match"].value


def test_filter_computes_every_mean_anew_and_drops_what_belongs_to_the_whole_run(stored):
    result, _ = stored
    assert {name: values["pareto_rank"] for name, values in result.summary.items()} == {"full": 1.0, "a": 2.0}
    assert result.summary["a"]["mean_exact_match"] == 0.0
    part = result.filter(dataset="d0")
    assert len(part.rows) == 20
    assert set(part.summary["a"]) == {"mean_score", "mean_exact_match", "cost_of_pass", "num_passing"}
    assert part.summary["full"]["num_passing"] == 10.0
    assert (part.estimates, part.comparisons) == ({}, [])
