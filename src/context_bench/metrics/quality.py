"""The documented place of the score metrics and of the text comparisons behind them."""

from context_bench.core.text import exact_match, f1_score, normalise as normalize_answer, recall_score
from context_bench.metrics.mean_score import MeanScore
from context_bench.metrics.pass_rate import PassRate

__all__ = ["MeanScore", "PassRate", "exact_match", "f1_score", "normalize_answer", "recall_score"]
