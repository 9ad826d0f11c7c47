"""Cost of one passing answer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import completion_tokens, cost_usd, score, tallied


@dataclass
class CostOfPass:
    """`cost_of_pass`: tokens (forwarded prompt + reply, failed attempts included) per row that passes; infinite if none
    does.

    Also `num_passing` (scores of at least `threshold`), and `cost_of_pass_usd` where the price of every answered row is
    known. Without any known token count `cost_of_pass` is absent.
    """

    threshold: float = 0.7
    score_field: str = "score"
    name: ClassVar[str] = "cost_of_pass"

    def tally(self) -> _Cost:
        """For computing in one pass, without holding rows."""
        return _Cost(self.score_field, self.threshold)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Cost:
    field: str
    threshold: float
    rows: int = 0
    passed: int = 0
    tokens: float = 0.0
    counted: int = 0
    counted_passes: int = 0
    usd: float = 0.0
    priced: int = 0
    unpriced: int = 0

    def add(self, row: EvalRow) -> None:
        self.rows += 1
        value = score(row, self.field)
        passed = value is not None and value >= self.threshold
        self.passed += passed
        if row.output_tokens is not None:
            self.tokens += row.output_tokens + (completion_tokens(row) or 0.0)
            self.counted += 1
            self.counted_passes += passed
        usd = cost_usd(row)
        if usd is not None:
            self.usd += usd
            self.priced += 1
        elif not row.failed:
            self.unpriced += 1

    def result(self) -> dict[str, float]:
        found = {"num_passing": float(self.passed)}
        if self.counted or not self.rows:
            found["cost_of_pass"] = self.tokens / self.counted_passes if self.counted_passes else math.inf
        if self.priced and not self.unpriced:
            found["cost_of_pass_usd"] = self.usd / self.passed if self.passed else math.inf
        return found
