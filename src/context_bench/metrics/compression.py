"""Reduction of the prompt on its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import tallied


@dataclass
class CompressionRatio:
    """`compression_ratio` = 1 − Σ forwarded / Σ sent over the rows where both are known (negative: the prompts grew).

    Also `mean_input_tokens` (sent) and `mean_output_tokens` (forwarded), over the same rows. 0.0 if nothing was sent.
    What no row knows is absent, unless there are no rows at all (then zeros).
    """

    name: ClassVar[str] = "compression_ratio"

    def tally(self) -> _Tokens:
        """For computing in one pass, without holding rows."""
        return _Tokens()

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Tokens:
    rows: int = 0
    sent: float = 0.0
    forwarded: float = 0.0
    n: int = 0
    sent_alone: float = 0.0
    n_alone: int = 0

    def add(self, row: EvalRow) -> None:
        self.rows += 1
        if row.input_tokens is None:
            return
        if row.output_tokens is None:
            self.sent_alone += row.input_tokens
            self.n_alone += 1
            return
        self.sent += row.input_tokens
        self.forwarded += row.output_tokens
        self.n += 1

    def result(self) -> dict[str, float]:
        if not self.rows:
            return {"compression_ratio": 0.0, "mean_input_tokens": 0.0, "mean_output_tokens": 0.0}
        if not self.n:
            return {"mean_input_tokens": self.sent_alone / self.n_alone} if self.n_alone else {}
        return {
            "compression_ratio": 1 - self.forwarded / self.sent if self.sent else 0.0,
            "mean_input_tokens": self.sent / self.n,
            "mean_output_tokens": self.forwarded / self.n,
        }
