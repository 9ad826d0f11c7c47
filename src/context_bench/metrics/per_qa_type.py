"""The mean of one score, by kind of question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, qa_type
from context_bench.metrics.per_dataset import sums_by

METRICS = {"per_qa_type": "PerQATypeMetric"}


@dataclass
class PerQATypeMetric(OnePass):
    """`<score_field>_<type>`: mean of the score over the rows of each `metadata["qa_type"]` (absent = `unknown`),
    sorted by type; `<score_field>_mean`: over all of them. Rows without the score are left out; no scored row gives
    `{}`.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "per_qa_type"

    def _fold(self) -> Fold:
        sums = yield from sums_by(self.score_field, qa_type)
        if not sums:
            return {}
        totals, counts = zip(*sums.values(), strict=True)
        means = {f"{self.score_field}_{kind}": total / n for kind, (total, n) in sorted(sums.items())}
        return means | {f"{self.score_field}_mean": sum(totals) / sum(counts)}
