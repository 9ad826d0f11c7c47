"""The mean of one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, score

METRICS = {"mean_score": "MeanScore"}
MEASURES = {"mean_score": {"unit": "score", "better": "higher", "place": "quality"}}


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
