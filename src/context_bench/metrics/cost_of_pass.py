"""Cost of one passing answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, completion_tokens, cost_usd, score

METRICS = {"cost_of_pass": "CostOfPass"}
MEASURES = {
    "cost_of_pass": {
        "unit": "tokens",
        "better": "lower",
        "place": "money",
        "about": "tokens of prompts and of known replies, failed attempts included, of the rows that have the score or "
        "failed, for each that passes",
    },
    "cost_of_pass_usd cost_usd": {"unit": "usd", "better": "lower", "place": "money"},
    "num_passing": {"unit": "count", "better": "higher", "place": "money"},
}


@dataclass
class CostOfPass(OnePass):
    """`cost_of_pass`: tokens (forwarded prompt + reply, failed attempts included) per row that passes; infinite if none
    does.

    Rows that were answered and lack `score_field` are left out, as of `mean_score`: there was nothing to pass. Failed
    rows count with what they cost. Also `num_passing` (scores of at least `threshold`), and `cost_of_pass_usd` where
    the price of every answered row that counts is known. Without any known token count `cost_of_pass` is absent.
    """

    threshold: float = 0.7
    score_field: str = "score"
    name: ClassVar[str] = "cost_of_pass"

    def _fold(self) -> Fold:
        tokens = usd = 0.0
        rows = passes = counted = counted_passes = priced = unpriced = 0
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is None and not row.failed:
                continue
            rows += 1
            passed = value is not None and value >= self.threshold
            passes += passed
            if row.output_tokens is not None:
                tokens += row.output_tokens + (completion_tokens(row) or 0.0)
                counted += 1
                counted_passes += passed
            if (cost := cost_usd(row)) is not None:
                usd += cost
                priced += 1
            elif not row.failed:
                unpriced += 1
        numbers = {"num_passing": float(passes)}
        if counted or not rows:
            numbers["cost_of_pass"] = tokens / counted_passes if counted_passes else math.inf
        if priced and not unpriced:
            numbers["cost_of_pass_usd"] = usd / passes if passes else math.inf
        return numbers
