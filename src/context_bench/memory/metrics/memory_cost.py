"""Cost of a memory's answers: context, seconds, and the price of what was used.

Percentiles are by nearest rank, the ⌈p · n⌉-th smallest of single calls.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import Fold, OnePass, cost_usd, score
from context_bench.stats.distributions import nearest_rank

_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_MEANS = ("retrieved_tokens", "context_share")
_TIMES = ("search", "search_first", "answer", "overhead")

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
class MemoryCost(OnePass):
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

    def _fold(self) -> Fold:
        values = {name: array("d") for name in (*_MEANS, *_TIMES)}
        judged = judged_tokens = cost = 0.0  # the sum of the score, of rows that say how much was found; and of that
        facts: float | None = None
        unpriced, searched = 0, set[Hashable]()
        while (row := (yield)) is not None:
            tokens, judgement = score(row, "retrieved_tokens"), score(row, self.score_field)
            spent = {
                "retrieved_tokens": tokens,
                "context_share": score(row, "context_share"),
                "answer": score(row, "answer_seconds"),
                "overhead": score(row, "overhead_seconds"),
            }
            if (seconds := score(row, "search_seconds")) is not None:
                spent["search_first" if is_first(row, searched) else "search"] = seconds
            for name, value in spent.items():
                if value is not None:
                    values[name].append(value)
            if judgement is not None and tokens is not None:
                judged += judgement
                judged_tokens += tokens
            if (found := score(row, "evidence_found")) is not None:
                facts = (facts or 0.0) + (found if (judgement or 0.0) >= self.threshold else 0.0)
            if (paid := cost_usd(row)) is not None:
                cost += paid
            elif not row.failed:
                unpriced += 1
        numbers = {name: math.fsum(values[name]) / len(values[name]) for name in _MEANS if values[name]}
        if judged_tokens:
            numbers["score_per_1k_tokens"] = 1000 * judged / judged_tokens
        for name in _TIMES:
            if ordered := sorted(values[name]):
                numbers |= {f"{name}_{label}": nearest_rank(ordered, share) for label, share in _SHARES}
                numbers[f"{name}_n"] = float(len(ordered))
        if facts is not None:
            numbers["facts_used"] = facts
        if facts and values["retrieved_tokens"]:
            numbers["tokens_per_fact_used"] = math.fsum(values["retrieved_tokens"]) / facts
        if facts and not unpriced:
            numbers["query_usd_per_fact_used"] = cost / facts
        return numbers


def is_first(row: EvalRow, searched: set[Hashable]) -> bool:
    """True for the first search of a haystack, which may have to load things. `searched`: those before, kept here."""
    haystack = (row.dataset, row.group if row.group is not None else row.example_id, row.trial)
    seen = haystack in searched
    searched.add(haystack)
    return not seen
