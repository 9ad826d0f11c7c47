"""Declining as a decision: right where nothing can be known, wrong where it can."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import tallied
from context_bench.memory.figures import Declined

METRICS = {"abstention": "AbstentionRates"}
MEASURES = {
    "abstention_precision abstention_recall abstention_f1": {"unit": "score", "better": "higher", "place": "memory"},
    "coverage answered_accuracy": {"unit": "score", "better": "higher", "place": "memory"},
    "abstention_f1_always": {"unit": "score", "place": "memory"},
}


@dataclass
class AbstentionRates:
    """`abstention_precision`, `abstention_recall`, `abstention_f1` with unanswerable questions as positives, `coverage`
    (share of answerable questions that were answered), `answered_accuracy` (mean of `score_field` over those), and
    `abstention_f1_always`: the F1 of declining every question, which a system has to pass.

    Reads the scores of the evaluator `abstention`; `{}` without them.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "abstention"

    def tally(self) -> Declined:
        """For computing in one pass, without holding rows."""
        return Declined(self.score_field)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)
