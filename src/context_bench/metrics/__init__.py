"""Many rows of one system → a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.families import built_in_names
from context_bench.core.lazy import lazy

_OWN = {
    "compression_ratio": "context_bench.metrics.compression:CompressionRatio",
    "cost_of_pass": "context_bench.metrics.cost_of_pass:CostOfPass",
    "latency": "context_bench.metrics.latency:Latency",
    "mean_score": "context_bench.metrics.mean_score:MeanScore",
    "pareto_rank": "context_bench.metrics.pareto:ParetoRank",
    "pass_at_k": "context_bench.metrics.pass_at_k:PassAtK",
    "pass_rate": "context_bench.metrics.pass_rate:PassRate",
    "per_dataset": "context_bench.metrics.per_dataset:PerDatasetBreakdown",
    "per_qa_type": "context_bench.metrics.per_qa_type:PerQATypeMetric",
    "token_efficiency": "context_bench.metrics.token_efficiency:TokenEfficiencyMetric",
}
#: Name → place: of the platform, and of the families of this package.
BUILTINS = dict(sorted({**_OWN, **built_in_names("metric")}.items()))

__all__ = [
    "BUILTINS",
    "AbstentionRates",
    "CompressionRatio",
    "CostOfPass",
    "Latency",
    "MeanScore",
    "MemoryCost",
    "MemorySpread",
    "ParetoRank",
    "PassAtK",
    "PassRate",
    "PerDatasetBreakdown",
    "PerQATypeMetric",
    "TokenEfficiencyMetric",
]

if TYPE_CHECKING:
    from context_bench.metrics.compression import CompressionRatio
    from context_bench.metrics.cost_of_pass import CostOfPass
    from context_bench.metrics.latency import Latency
    from context_bench.metrics.mean_score import MeanScore
    from context_bench.metrics.pareto import ParetoRank
    from context_bench.metrics.pass_at_k import PassAtK
    from context_bench.metrics.pass_rate import PassRate
    from context_bench.metrics.per_dataset import PerDatasetBreakdown
    from context_bench.metrics.per_qa_type import PerQATypeMetric
    from context_bench.metrics.token_efficiency import TokenEfficiencyMetric

__getattr__, __dir__ = lazy(__name__, BUILTINS.values())
