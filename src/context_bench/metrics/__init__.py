"""Many rows of one system → a few numbers, a file for each subject. A new one is found by what its file declares.

`METRICS` gives it a name on the command line, `MEASURES` says how reports show its numbers (`core.measures`). Names
below `TYPE_CHECKING` are for type checkers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.families import built_in_names
from context_bench.core.lazy import lazy

#: Name → place: of the files here and of the families of this package.
BUILTINS = dict(sorted(built_in_names("metric").items()))

__all__ = ["BUILTINS", *sorted(place.partition(":")[2] for place in BUILTINS.values())]

if TYPE_CHECKING:
    from context_bench.metrics.cost_of_pass import CostOfPass as CostOfPass
    from context_bench.metrics.latency import Latency as Latency
    from context_bench.metrics.per_dataset import PerDatasetBreakdown as PerDatasetBreakdown
    from context_bench.metrics.per_qa_type import PerQATypeMetric as PerQATypeMetric
    from context_bench.metrics.quality import MeanScore as MeanScore, PassAtK as PassAtK, PassRate as PassRate
    from context_bench.metrics.token_efficiency import TokenEfficiencyMetric as TokenEfficiencyMetric
    from context_bench.metrics.token_stats import CompressionRatio as CompressionRatio, ParetoRank as ParetoRank

__getattr__, __dir__ = lazy(__name__, BUILTINS.values())
