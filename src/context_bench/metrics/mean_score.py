"""The mean of one score."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import score, tallied


@dataclass
class MeanScore:
    """`mean_score`: mean of `score_field` over the rows that have it (0.0 if none has). Rows without it are left out,
    not counted as 0.
    """

    score_field: str = "score"
    name: ClassVar[str] = "mean_score"

    def tally(self) -> _Mean:
        """For computing in one pass, without holding rows."""
        return _Mean(self.score_field)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Mean:
    field: str
    total: float = 0.0
    n: int = 0

    def add(self, row: EvalRow) -> None:
        value = score(row, self.field)
        if value is not None:
            self.total += value
            self.n += 1

    def result(self) -> dict[str, float]:
        return {"mean_score": self.total / self.n if self.n else 0.0}
