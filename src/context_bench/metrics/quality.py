"""The mean of one score, the share of rows that pass, and the text comparisons behind many scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, score
from context_bench.core.text import exact_match, f1_score, normalise as normalize_answer, recall_score

__all__ = [
    "MeanScore",
    "PassRate",
    "exact_match",
    "f1_score",
    "normalize_answer",
    "recall_score",
]

METRICS = {
    "mean_score": "MeanScore",
    "pass_rate": "PassRate",
}
MEASURES = {
    "mean_score": {"unit": "score", "better": "higher", "place": "quality"},
    "pass_rate": {"unit": "score", "better": "higher", "place": "quality"},
}


@dataclass
class MeanScore(OnePass):
    """`mean_score`: mean of `score_field` over the rows that have it (0.0 if none has). Rows without it are left out,
    not counted as 0.
    """

    score_field: str = "score"
    name: ClassVar[str] = "mean_score"

    def _fold(self) -> Fold:
        total, n = 0.0, 0
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is not None:
                total += value
                n += 1
        return {"mean_score": total / n if n else 0.0}


@dataclass
class PassRate(OnePass):
    """`pass_rate`: share of the rows with `score_field` whose score is at least `threshold` (0.0 if no row has it)."""

    threshold: float = 0.7
    score_field: str = "score"
    name: ClassVar[str] = "pass_rate"

    def _fold(self) -> Fold:
        passed = n = 0
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is not None:
                passed += value >= self.threshold
                n += 1
        return {"pass_rate": passed / n if n else 0.0}
