"""The documented place of `CompressionRatio` and `ParetoRank`."""

from context_bench.metrics.compression import CompressionRatio
from context_bench.metrics.pareto_rank import ParetoRank

__all__ = ["CompressionRatio", "ParetoRank"]
