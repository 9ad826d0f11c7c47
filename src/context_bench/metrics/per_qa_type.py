"""The mean of one score, by kind of question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import qa_type, score, tallied


@dataclass
class PerQATypeMetric:
    """`<score_field>_<type>`: mean of the score over the rows of each `metadata["qa_type"]` (absent = `unknown`),
    sorted by type; `<score_field>_mean`: over all of them. Rows without the score are left out; no scored row gives
    `{}`.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "per_qa_type"

    def tally(self) -> _Types:
        """For computing in one pass, without holding rows."""
        return _Types(self.score_field)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Types:
    read: str
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, row: EvalRow) -> None:
        value = score(row, self.read)
        if value is not None:
            kind = qa_type(row)
            total, n = self.sums.get(kind, (0.0, 0))
            self.sums[kind] = total + value, n + 1

    def result(self) -> dict[str, float]:
        if not self.sums:
            return {}
        found = {f"{self.read}_{kind}": total / n for kind, (total, n) in sorted(self.sums.items())}
        return found | {
            f"{self.read}_mean": sum(total for total, _ in self.sums.values()) / sum(n for _, n in self.sums.values())
        }
