"""The best sentences in their order: ranked by the words of the question (BM25), or by the bundled sentence embedder.

BM25 is a strong and cheap extractive baseline. The embedder ranks by meaning: nearest to the question, or to the text
as a whole.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any, Protocol

from context_bench.compression.compressors.texts import Messages, compressed, keep_best
from context_bench.core.errors import BadInput
from context_bench.core.numbers import amount, share
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.context import check_limit, texts_of

COMPRESSORS = {
    "bm25": "BM25",
    "extractive": "Extractive",
}

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
        if (amount(k1) or 0.0) != k1:
            raise BadInput(f"bm25: k1={k1!r} is not a number from 0 (1.5 is usual)")
        if share(b) is None:
            raise BadInput(f"bm25: b={b!r} is not a share from 0 to 1 (0.75 is usual)")
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

        def rank(found: Sequence[str]) -> Sequence[int]:
            return _best_first(bm25_scores(found, asked, self.k1, self.b))

        limit = self.budget if budget is None else budget
        return compressed(
            prefix, limit, self.keep, counter, lambda texts, tokens: keep_best(texts, tokens, counter, rank)
        ), state


def bm25_scores(documents: Iterable[str], query: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Okapi BM25 of each document for `query` (Robertson & Zaragoza 2009), all ≥ 0: idf = ln(1 + (N − n + 0.5) / (n +
    0.5)).
    """
    wanted = sorted(set(_words(query)))
    number = {word: at for at, word in enumerate(wanted)}
    holding = [0] * len(wanted)  # documents that have a word
    lengths, shared = array("Q"), array("I")  # of each document: its words, and those of the query among them
    postings, times = array("I"), array("I")  # of each of the latter: which one, and how often
    for document in documents:
        words = _words(document)
        lengths.append(len(words))
        asked = [number[word] for word in words if word in number]
        bag = Counter(asked) if asked else {}
        shared.append(len(bag))
        for word in sorted(bag):
            holding[word] += 1
            postings.append(word)
            times.append(bag[word])
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    idf = [math.log(1 + (len(lengths) - n + 0.5) / (n + 0.5)) for n in holding]

    def score(start: int, size: int, length: int) -> float:
        norm = k1 * (1 - b + b * length / mean)
        return sum(idf[postings[at]] * times[at] * (k1 + 1) / (times[at] + norm) for at in range(start, start + size))

    starts = accumulate(shared, initial=0)
    return [
        score(start, size, length) if size else 0.0
        for start, size, length in zip(starts, shared, lengths, strict=False)
    ]


def _best_first(scores: Sequence[float]) -> array[int]:
    """Positions, the highest score first, equal ones in their order. Most of a long text shares no word: 0."""
    hits = sorted((at for at, score in enumerate(scores) if score), key=lambda at: -scores[at])
    return array("Q", chain(hits, (at for at, score in enumerate(scores) if not score)))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _last_user_text(messages: Messages) -> str:
    users = [message for message in messages if message.get("role") == "user"]
    return "\n".join(texts_of(users[-1:]))


_SAMPLE = 1500  # sentences by which it is measured how much of a text is covered
_CHOSEN = 600  # sentences that are chosen one by one
_SHORT = 30  # characters below which a sentence counts no less


class SentenceEmbedder(Protocol):
    """Texts → vectors of one length."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order."""


class Extractive:
    """Keeps the best sentences by their vectors (cosine), in their order, up to `budget` tokens or the share `keep`.

    `by`: "cover", those that together come near to all of the text, which knows no question (a session is compressed
    before one is asked); or "query", nearest to the question. A sentence that was there before comes last. `embedder`:
    any object with `embed(texts)`.
    """

    name = "extractive"
    of_text = True
    deterministic = True
    loads_weights = True  # a copy in another process would load them again
    longest_context = 2**18  # characters; sentences of so many take a processor about a quarter of a minute

    def __init__(
        self,
        keep: float = 0.5,
        budget: int | None = None,
        by: str = "cover",
        model: str | None = None,
        embedder: SentenceEmbedder | None = None,
    ) -> None:
        check_limit(self.name, budget, keep)
        if by not in ("cover", "query"):
            raise BadInput(f"extractive: by={by!r} is not known; expected cover or query")
        self.keep, self.budget, self.by, self.model = keep, budget, by, model
        self.needs_query = by == "query"
        self._embedder = embedder

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which its choice depends."""
        own = (
            getattr(self._embedder, "name", type(self._embedder).__name__)
            if self._embedder
            else "all-MiniLM-L6-v2 int8"
        )
        return {
            "class": "Extractive",
            "keep": self.keep,
            "budget": self.budget,
            "by": self.by,
            "model": self.model,
            "embedder": own,
        }

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

        def rank(found: Sequence[str]) -> list[int]:
            return self._ranked([sentence.strip() for sentence in found], query)

        limit = self.budget if budget is None else budget
        return compressed(
            prefix, limit, self.keep, counter, lambda texts, tokens: keep_best(texts, tokens, counter, rank)
        ), state

    def _ranked(self, texts: list[str], query: str | None) -> list[int]:
        """Positions, best first. Each text is embedded once."""
        import numpy as np

        different = list(dict.fromkeys(texts))
        if not different:
            return []
        asked = [query] if self.by == "query" and query else []
        vectors = np.asarray(self._embeds().embed([*different, *asked]), dtype=np.float32)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        worth = vectors[:-1] @ vectors[-1] if asked else _cover(vectors, [len(text) for text in different])
        # Rounded, so that sums in another order (batches, machines) do not change a rank.
        near = dict(zip(different, np.round(worth, 5).tolist(), strict=True))
        first: set[str] = set()
        again = [text in first or bool(first.add(text)) for text in texts]  # type: ignore[func-returns-value]
        return sorted(range(len(texts)), key=lambda at: (again[at], -near[texts[at]], at))

    def _embeds(self) -> SentenceEmbedder:
        return _bundled_embedder() if self._embedder is None else self._embedder


@cache
def _bundled_embedder() -> SentenceEmbedder:
    """One for all: a compressor is copied for each model that it counts tokens for."""
    from context_bench.llm.embedder import Embedder

    return Embedder()


def _cover(vectors: Any, sizes: Sequence[int]) -> Any:
    """The rank of each sentence when the next chosen is the one that brings all others nearest to a chosen one, for its
    length.

    (Facility location, greedily: Lin & Bilmes 2011, who divide the gain by a power of the length as here.)
    """
    import numpy as np

    number = len(vectors)
    shown = vectors[:: max(1, -(-number // _SAMPLE))]
    like = np.maximum(vectors @ shown.T, 0)
    costs = np.sqrt(np.maximum(np.asarray(sizes, dtype=np.float32), _SHORT))
    covered = np.zeros(len(shown), dtype=np.float32)
    worth = like.mean(axis=1) - 2.0  # those never chosen come last, the most central first
    left = np.ones(number, dtype=bool)
    for turn in range(min(number, _CHOSEN)):
        gains = np.where(left, np.maximum(like - covered, 0).sum(axis=1) / costs, -1.0)
        best = int(np.round(gains, 5).argmax())
        worth[best], left[best] = 1.0 - turn / number, False
        covered = np.maximum(covered, like[best])
    return worth
