"""Score and tokens in one number, as the memory benchmark documents it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import score, tallied

_MEANS = ("mean_score", "mean_input_tokens", "mean_ingest_latency", "mean_query_latency")


@dataclass
class TokenEfficiencyMetric:
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

    def tally(self) -> _Efficiency:
        """For computing in one pass, without holding rows."""
        return _Efficiency(self.score_field)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return dict.fromkeys(("token_efficiency", *_MEANS), 0.0) | tallied(self.tally(), rows)


@dataclass(slots=True)
class _Efficiency:
    read: str
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, row: EvalRow) -> None:
        known = (
            score(row, self.read),
            real(row.input_tokens),
            real(row.metadata.get("ingest_latency")),
            real(row.metadata.get("query_latency")),
        )
        for name, value in zip(_MEANS, known, strict=True):
            if value is not None:
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + 1

    def result(self) -> dict[str, float]:
        means = {name: self.sums[name] / self.counts[name] for name in _MEANS if name in self.sums}
        if "mean_score" not in means or "mean_input_tokens" not in means:
            return means
        quality, tokens = means["mean_score"], means["mean_input_tokens"]
        usable = quality > 0 and tokens > 0
        found = {"token_efficiency": quality * (100 / tokens) ** 0.1 if usable else 0.0}
        if tokens > 0:
            found["token_efficiency_raw"] = quality / (tokens / 1000)
        return found | means
