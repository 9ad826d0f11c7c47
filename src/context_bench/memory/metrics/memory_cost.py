"""Cost of a memory's answers: context, seconds, and the price of what was used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import tallied
from context_bench.memory.figures import Use

METRICS = {"memory_cost": "MemoryCost"}
MEASURES = {
    "retrieved_tokens tokens_per_fact_used": {"unit": "tokens", "better": "lower", "place": "memory"},
    "context_share": {"unit": "share", "better": "lower", "place": "memory"},
    "facts_used": {"unit": "count", "better": "higher", "place": "memory"},
    "query_usd_per_fact_used": {"unit": "usd", "better": "lower", "place": "memory"},
    "score_per_1k_tokens": {"unit": "number", "better": "higher", "place": "memory"},
    "search_n search_first_n answer_n overhead_n": {"unit": "count", "place": "memory"},
    "search_p* search_first_p* answer_p* overhead_p*": {"unit": "seconds", "better": "lower", "place": "memory"},
}


@dataclass
class MemoryCost:
    """`retrieved_tokens` and `context_share` (means); `search_p50`, `_p95`, `_p99` and `answer_…` in seconds of single
    calls, by nearest rank, with `search_n`; `search_first_…` the same of each haystack's first search, which the others
    leave out; `overhead_…` of what this tool itself took for a question, which is in neither. `score_per_1k_tokens`:
    `score_field` summed over the tokens found, in thousands.

    `facts_used`: items of evidence found, of questions answered with at least `threshold` in `score_field`;
    `tokens_per_fact_used` and `query_usd_per_fact_used`: what all questions together took for each (money without
    set-ups, and only if every answered row has a price). Reads the scores of the evaluators `memory_use` and
    `retrieval`; what they did not tell is absent.
    """

    score_field: str = "f1"
    threshold: float = 0.7
    name: ClassVar[str] = "memory_cost"

    def tally(self) -> Use:
        """For computing in one pass, without holding rows."""
        return Use(self.score_field, self.threshold)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)
