"""Declining as a decision: right where nothing can be known, wrong where it can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, score

METRICS = {"abstention": "AbstentionRates"}
MEASURES = {
    "abstention_precision abstention_recall abstention_f1": {"unit": "score", "better": "higher", "place": "memory"},
    "coverage answered_accuracy": {"unit": "score", "better": "higher", "place": "memory"},
    "abstention_f1_always": {"unit": "score", "place": "memory"},
}


@dataclass
class AbstentionRates(OnePass):
    """`abstention_precision`, `abstention_recall`, `abstention_f1` with unanswerable questions as positives, `coverage`
    (share of answerable questions that were answered), `answered_accuracy` (mean of `score_field` over those), and
    `abstention_f1_always`: the F1 of declining every question, which a system has to pass.

    Reads the scores of the evaluator `abstention`; `{}` without them, and no rate that cannot be said (no unanswerable
    question, say).
    """

    score_field: str = "f1"
    name: ClassVar[str] = "abstention"

    def _fold(self) -> Fold:
        answerable, unanswerable = [0, 0], [0, 0]  # answered, declined
        right, judged = 0.0, 0
        while (row := (yield)) is not None:
            needless, rightly = score(row, "needless_abstention"), score(row, "abstention_recall")
            if rightly is not None:
                unanswerable[rightly > 0] += 1
            elif needless is not None:
                answerable[needless > 0] += 1
                value = score(row, self.score_field)
                if needless == 0 and value is not None:
                    right += value
                    judged += 1
        known, unknown, rightly_declined = sum(answerable), sum(unanswerable), unanswerable[1]
        declined = answerable[1] + rightly_declined
        rates: dict[str, float] = {}
        if declined:
            rates["abstention_precision"] = rightly_declined / declined
        if unknown:
            rates["abstention_recall"] = rightly_declined / unknown
            rates["abstention_f1"] = 2 * rightly_declined / (declined + unknown)
            rates["abstention_f1_always"] = 2 * unknown / (known + 2 * unknown)
        if known:
            rates["coverage"] = answerable[0] / known
        if judged:
            rates["answered_accuracy"] = right / judged
        return rates
