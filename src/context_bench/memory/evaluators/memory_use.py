"""Measure what a memory puts before the reader, whatever the question's evidence: how much, how fast, and how much of
it is junk.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from context_bench.core.numbers import real
from context_bench.core.records import Example
from context_bench.core.tokens import count_tokens
from context_bench.memory.protocol import dated, iter_packed
from context_bench.memory.ranking import duplicate_share, echoes, near_duplicates, repeats_question

EVALUATORS = {"memory_use": "MemoryUse"}
MEASURES = {
    "retrieved_tokens": {"unit": "tokens", "better": "lower", "place": "memory"},
    "context_share": {"unit": "share", "better": "lower", "place": "memory"},
    "near_duplicate_share duplicate_source_share": {"unit": "share", "better": "lower", "place": "memory"},
    "recall_loop_share query_echo_share": {"unit": "share", "better": "lower", "place": "memory"},
    "hit_count": {"unit": "count", "place": "memory"},
    "search_seconds answer_seconds overhead_seconds": {"unit": "seconds", "better": "lower", "place": "memory"},
}

_TOLD = ("retrieved_tokens", "search_seconds", "answer_seconds", "overhead_seconds")


class MemoryUse:
    """`retrieved_tokens` (of what was found), `context_share` (of what the whole conversation as hits would have,
    o200k_base), `hit_count`, `search_seconds`, `answer_seconds`, `overhead_seconds` (this tool's own part of the
    question); of the hits the shares in [0, 1] that `near_duplicate_share` say nearly the same as an earlier one,
    `duplicate_source_share` stand for nothing but items that earlier ones stood for, `recall_loop_share` hold the whole
    text of another one (what a memory does that stores what it recalled), `query_echo_share` only repeat the question.

    Facts, not verdicts: they apply to every answer of a memory that says them, evidence or not.
    """

    name = "memory_use"
    version = "2"
    needs = ("items",)
    fields = (
        *("retrieved_tokens", "context_share", "hit_count", "search_seconds", "answer_seconds", "overhead_seconds"),
        *("near_duplicate_share", "duplicate_source_share", "recall_loop_share", "query_echo_share"),
    )

    def applies(self, example: Example, output: Example) -> bool:
        """The system says what it found, or how much."""
        return isinstance(output.get("hits"), list) or real(output.get("retrieved_tokens")) is not None

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        told = {name: real(processed.get(name)) for name in _TOLD}
        found = {name: value for name, value in told.items() if value is not None}
        if "retrieved_tokens" in found and (tokens := _whole(original.get("items"), original.get("context"))):
            found["context_share"] = found["retrieved_tokens"] / tokens
        hits = processed.get("hits")
        return found | _junk(hits, str(original.get("question") or "")) if isinstance(hits, list) else found


@lru_cache(maxsize=8)
def _whole(packed: Any, context: Any) -> int:
    """Tokens of the whole conversation, counted as hits are: every turn by itself, with its date; of its text where no
    turns are known.
    """
    if isinstance(packed, str) and packed:
        return sum(count_tokens(dated(item.line, item.time)) for item in iter_packed(packed))
    return count_tokens(context) if isinstance(context, str) else 0


def _junk(hits: list[Any], question: str) -> dict[str, float]:
    """Nothing is said of the quality of no hits."""
    if not hits:
        return {"hit_count": 0.0}
    known = [hit if isinstance(hit, Mapping) else {} for hit in hits]
    texts = [str(hit.get("text") or "") for hit in known]
    sources = [frozenset(str(one) for one in hit.get("source_ids") or ()) for hit in known]
    return {
        "hit_count": float(len(hits)),
        "near_duplicate_share": near_duplicates(texts),
        "duplicate_source_share": duplicate_share(sources),
        "recall_loop_share": echoes(texts),
        "query_echo_share": repeats_question(texts, question),
    }
