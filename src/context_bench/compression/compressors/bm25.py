"""The sentences that share the question's rare words: a strong and cheap extractive baseline."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from context_bench.compression.compressors.texts import Messages, PlacedSentence, compressed, keep_best
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.context import check_limit, texts_of

COMPRESSORS = {"bm25": "BM25"}

# Words, and each character of scripts that are written without spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]|[^\W_]+")


class BM25:
    """Keeps the sentences that score best for the question, in their order, up to `budget` tokens or the share `keep`.

    Scores are Okapi BM25 (`k1`, `b`). Sentences that share no word with the question come last, in the order of the
    text. Without a query, the last user text of `tail` is it.
    """

    name = "bm25"
    deterministic = True
    of_text = True
    needs_query = True

    def __init__(
        self, keep: float = 0.5, budget: int | None = None, k1: float = 1.5, b: float = 0.75, model: str | None = None
    ) -> None:
        check_limit(self.name, budget, keep)
        self.keep, self.budget, self.k1, self.b, self.model = keep, budget, k1, b, model

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        counter = counter_for(self.model)
        asked = query if query is not None else _last_user_text(tail)

        def rank(found: Sequence[PlacedSentence]) -> list[int]:
            scores = bm25_scores([sentence.text for sentence in found], asked, self.k1, self.b)
            return sorted(range(len(found)), key=lambda position: (-scores[position], position))

        limit = self.budget if budget is None else budget
        return compressed(
            prefix, limit, self.keep, counter, lambda texts, tokens: keep_best(texts, tokens, counter, rank)
        ), state


def bm25_scores(documents: Sequence[str], query: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Okapi BM25 of each document for `query` (Robertson & Zaragoza 2009), all ≥ 0: idf = ln(1 + (N − n + 0.5) / (n +
    0.5)).
    """
    bags = [Counter(_words(document)) for document in documents]
    lengths = [sum(bag.values()) for bag in bags]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    wanted = set(_words(query))
    holding = {word: sum(word in bag for bag in bags) for word in wanted}
    idf = {word: math.log(1 + (len(bags) - n + 0.5) / (n + 0.5)) for word, n in sorted(holding.items()) if n}
    norms = [k1 * (1 - b + b * length / mean) if mean else k1 for length in lengths]
    return [
        sum(weight * bag[word] * (k1 + 1) / (bag[word] + norm) for word, weight in idf.items() if word in bag)
        for bag, norm in zip(bags, norms, strict=True)
    ]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _last_user_text(messages: Messages) -> str:
    users = [message for message in messages if message.get("role") == "user"]
    return "\n".join(texts_of(users[-1:]))
