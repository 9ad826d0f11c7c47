"""Rank of a system between quality and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.stats.pareto import rank_systems

METRICS = {"pareto_rank": "ParetoRank"}
MEASURES = {"pareto_rank": {"better": "lower"}}


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
