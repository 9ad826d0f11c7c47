"""The mean of one score, dataset by dataset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import score, tallied


@dataclass
class PerDatasetBreakdown:
    """`dataset:<tag>`: mean of `score_field` over the dataset's rows that have it, sorted by tag; rows without a tag
    are `dataset:unknown`.

    A dataset on which nothing has this score is absent: a score that does not apply is no 0.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "per_dataset"

    def tally(self) -> _Groups:
        """For computing in one pass, without holding rows."""
        return _Groups(self.score_field)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Groups:
    read: str
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, row: EvalRow) -> None:
        value = score(row, self.read)
        if value is not None:
            tag = row.dataset or "unknown"
            total, n = self.sums.get(tag, (0.0, 0))
            self.sums[tag] = total + value, n + 1

    def result(self) -> dict[str, float]:
        return {f"dataset:{tag}": total / n for tag, (total, n) in sorted(self.sums.items())}
