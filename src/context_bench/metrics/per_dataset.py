"""The mean of one score, dataset by dataset."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import Fold, OnePass, score

METRICS = {"per_dataset": "PerDatasetBreakdown"}
MEASURES = {"dataset:*": {"better": "higher"}}


@dataclass
class PerDatasetBreakdown(OnePass):
    """`dataset:<tag>`: mean of `score_field` over the dataset's rows that have it, sorted by tag; rows without a tag
    are `dataset:unknown`.

    A dataset on which nothing has this score is absent: a score that does not apply is no 0.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "per_dataset"

    def _fold(self) -> Fold:
        sums = yield from sums_by(self.score_field, lambda row: row.dataset or "unknown")
        return {f"dataset:{tag}": total / n for tag, (total, n) in sorted(sums.items())}


def sums_by(
    score_field: str, key: Callable[[EvalRow], str]
) -> Generator[None, EvalRow | None, dict[str, tuple[float, int]]]:
    """Sum and number of a score by a key of its rows. Part of a fold."""
    sums: dict[str, tuple[float, int]] = {}
    while (row := (yield)) is not None:
        value = score(row, score_field)
        if value is not None:
            total, n = sums.get(key(row), (0.0, 0))
            sums[key(row)] = total + value, n + 1
    return sums
