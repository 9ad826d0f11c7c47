"""The page of a stored run is made of what was tallied while its rows were read, and says what reading them again would
say.
"""

from __future__ import annotations

from dataclasses import replace

from context_bench.core.records import EvalRow
from context_bench.engine import open_store
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import MeanScore
from context_bench.reports import render
from context_bench.reports.arm_aggregates import LineAggregates, aggregated
from context_bench.runner import collect, evaluate


class Answers:
    def __init__(self, name):
        self.name = name

    def process(self, example):
        if example["id"] == 3:
            raise ValueError("no")
        return {**example, "response": example["answer"] if example["id"] % 2 else "x"}


def test_a_page_of_tallied_rows_is_the_page_of_rows_read_again(tmp_path):
    examples = [{"id": i, "dataset": "ab"[i > 6], "context": "c " * i, "answer": f"answer {i}"} for i in range(12)]
    path = tmp_path / "store.db"
    evaluate(
        [Answers("one"), Answers("two")],
        examples,
        AnswerQuality(),
        [MeanScore("f1")],
        store=path,
        run="r",
        progress=False,
    )
    with open_store(path) as store:
        result = collect(store, "r", [MeanScore("f1")])
        assert result.rows.aggregates is not None
        assert render(result, "markdown") == render(replace(result, rows=list(result.rows)), "markdown")


def test_sums_by_dataset_are_those_of_its_rows_alone():
    rows = [EvalRow("s", i, {"f1": i / 7}, 10 + i, 5 + i, dataset="ab"[i % 3 == 2]) for i in range(9)]
    for some in (rows, rows[:2], rows[2:3]):
        found = aggregated(some).datasets
        for (_, name), part in found.items():
            alone = LineAggregates()
            for each in some:
                if each.dataset == name:
                    alone.take_scores([each])
            assert part == alone
