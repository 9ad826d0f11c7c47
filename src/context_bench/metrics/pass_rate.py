"""The share of rows that pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import score, tallied


@dataclass
class PassRate:
    """`pass_rate`: share of the rows with `score_field` whose score is at least `threshold` (0.0 if no row has it)."""

    threshold: float = 0.7
    score_field: str = "score"
    name: ClassVar[str] = "pass_rate"

    def tally(self) -> _Passes:
        """For computing in one pass, without holding rows."""
        return _Passes(self.score_field, self.threshold)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Passes:
    field: str
    threshold: float
    passed: int = 0
    n: int = 0

    def add(self, row: EvalRow) -> None:
        value = score(row, self.field)
        if value is not None:
            self.n += 1
            self.passed += value >= self.threshold

    def result(self) -> dict[str, float]:
        return {"pass_rate": self.passed / self.n if self.n else 0.0}
