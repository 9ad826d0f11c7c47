"""The share of rows that pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, score

METRICS = {"pass_rate": "PassRate"}
MEASURES = {"pass_rate": {"unit": "score", "better": "higher", "place": "quality"}}


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
