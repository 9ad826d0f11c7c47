"""Types of the public API as a user's checker sees them: mypy reads this file, nothing runs it.

`make types` fails where a documented call is no longer accepted, or gives another type than it says here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import context_bench
from context_bench import (
    EvalResult,
    EvalRow,
    Evaluator,
    Metric,
    OpenAIProxy,
    System,
    count_tokens,
    evaluate,
    load_dataset,
)
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import MeanScore
from context_bench.reporters import to_json, to_markdown


class Halves:
    """A system: a name and `process`, nothing to inherit from."""

    name = "halves"

    def process(self, example: dict[str, Any]) -> dict[str, Any]:
        return {**example, "context": example["context"][: len(example["context"]) // 2]}


class Length:
    """An evaluator."""

    name = "length"

    def score(self, original: dict[str, Any], processed: dict[str, Any]) -> dict[str, float]:
        return {"kept": len(processed["context"]) / max(1, len(original["context"]))}


def run() -> EvalResult:
    system: System = Halves()
    evaluator: Evaluator = Length()
    metric: Metric = MeanScore(score_field="kept")
    proxy: System = OpenAIProxy("http://127.0.0.1:8080", model="m")
    result = evaluate(
        systems=[system, proxy],
        dataset=[{"id": 1, "context": "a b", "question": "q", "answer": "a"}],
        evaluators=[evaluator, AnswerQuality()],
        metrics=[metric],
    )
    assert_type(result, EvalResult)
    return result


def read(result: EvalResult) -> None:
    for row in result.rows:
        assert_type(row, EvalRow)
    assert_type(to_json(result), str)
    assert_type(to_markdown(result), str)
    summary: Mapping[str, Any] = result.summary
    assert_type(count_tokens("text"), int)
    assert_type(context_bench.__version__, str)
    print(len(summary), len(list(load_dataset("file.jsonl"))))
