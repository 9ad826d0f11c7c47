"""Reduction of the prompt on its way, and the rank of a system between quality and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import Fold, OnePass
from context_bench.stats.pareto import rank_systems

__all__ = [
    "CompressionRatio",
    "ParetoRank",
]

METRICS = {
    "compression_ratio": "CompressionRatio",
    "pareto_rank": "ParetoRank",
}
MEASURES = {
    "compression_ratio": {"unit": "share", "better": "higher", "place": "tokens"},
    "mean_input_tokens": {"unit": "tokens", "better": "lower", "place": "tokens", "about": "of a prompt as sent"},
    "mean_output_tokens": {"unit": "tokens", "better": "lower", "place": "tokens", "about": "of a prompt as forwarded"},
    "pareto_rank": {
        "unit": "count",
        "better": "lower",
        "about": "between score and cost of a pass; 1: no other system is better in one and no worse in the other",
    },
}


@dataclass
class CompressionRatio(OnePass):
    """`compression_ratio` = 1 − Σ forwarded / Σ sent over the rows where both are known (negative: the prompts grew).

    Also `mean_input_tokens` (sent) and `mean_output_tokens` (forwarded), over the same rows. 0.0 if nothing was sent.
    What no row knows is absent, unless there are no rows at all (then zeros).
    """

    name: ClassVar[str] = "compression_ratio"

    def _fold(self) -> Fold:
        sent = forwarded = alone = 0.0
        rows = n = n_alone = 0
        while (row := (yield)) is not None:
            rows += 1
            if row.input_tokens is not None and row.output_tokens is not None:
                sent += row.input_tokens
                forwarded += row.output_tokens
                n += 1
            elif row.input_tokens is not None:
                alone += row.input_tokens
                n_alone += 1
        if not rows:
            return {"compression_ratio": 0.0, "mean_input_tokens": 0.0, "mean_output_tokens": 0.0}
        if not n:
            return {"mean_input_tokens": alone / n_alone} if n_alone else {}
        return {
            "compression_ratio": 1 - forwarded / sent if sent else 0.0,
            "mean_input_tokens": sent / n,
            "mean_output_tokens": forwarded / n,
        }


@dataclass
class ParetoRank:
    """`pareto_rank` = 1 + number of systems that are no worse in quality and cost and better in one of them (1 = on the
    front).

    One system's rows cannot tell: `compute` gives the placeholder 0.0. A run of two or more systems writes the rank
    into each summary, over all arms that share model and shape, controls included, since a control that is as good and
    cheaper is the news; it is absent where quality or cost was not measured, and of `full#2`, which is there for the
    noise. Differences within both systems' intervals are none. A rank has no interval: see `stats.front_shares` for how
    often it would hold.
    """

    quality_field: str = "score"
    cost_field: str = "cost_of_pass"
    name: ClassVar[str] = "pareto_rank"

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return {"pareto_rank": 0.0}

    @staticmethod
    def rank_systems(
        summary: Mapping[str, Mapping[str, float]], quality_field: str = "mean_score", cost_field: str = "cost_of_pass"
    ) -> dict[str, int]:
        """System → rank. Missing quality counts as 0, missing cost as infinite; equal systems share a rank."""
        return rank_systems(summary, quality_field, cost_field)
