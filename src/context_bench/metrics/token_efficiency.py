"""Score and tokens in one number, as the memory benchmark documents it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import Fold, OnePass, score

METRICS = {"token_efficiency": "TokenEfficiencyMetric"}
MEASURES = {
    "token_efficiency token_efficiency_raw": {"better": "higher"},
    "mean_ingest_latency mean_query_latency": {"unit": "seconds", "better": "lower"},
}

_MEANS = ("mean_score", "mean_input_tokens", "mean_ingest_latency", "mean_query_latency")


@dataclass
class TokenEfficiencyMetric(OnePass):
    """`token_efficiency` = mean score · (100 / mean input tokens)^0.1, and `token_efficiency_raw` = mean score per
    1,000 input tokens.

    The first is an ad hoc index kept for its documented formula: a thousand times fewer tokens are worth a factor of 2,
    and nothing says that this is the right exchange. Do not decide by it; look at `mean_score` and `mean_input_tokens`,
    given beside it, or at `pareto_rank`. Also `mean_ingest_latency`, `mean_query_latency` (seconds, from the rows'
    metadata). Each mean is over the rows that know it. 0 where score or tokens are 0. Called directly, `compute` gives
    0.0 for what no row knows; in a run it is absent.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "token_efficiency"

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return dict.fromkeys(("token_efficiency", *_MEANS), 0.0) | super().compute(rows)

    def _fold(self) -> Fold:
        sums, counts = dict.fromkeys(_MEANS, 0.0), dict.fromkeys(_MEANS, 0)
        while (row := (yield)) is not None:
            values = (
                score(row, self.score_field),
                real(row.input_tokens),
                real(row.metadata.get("ingest_latency")),
                real(row.metadata.get("query_latency")),
            )
            for name, value in zip(_MEANS, values, strict=True):
                if value is not None:
                    sums[name] += value
                    counts[name] += 1
        means = {name: sums[name] / n for name, n in counts.items() if n}
        if "mean_score" not in means or "mean_input_tokens" not in means:
            return means
        quality, tokens = means["mean_score"], means["mean_input_tokens"]
        indices = {"token_efficiency": quality * (100 / tokens) ** 0.1 if quality > 0 and tokens > 0 else 0.0}
        if tokens > 0:
            indices["token_efficiency_raw"] = quality / (tokens / 1000)
        return indices | means
