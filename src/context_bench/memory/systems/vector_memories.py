"""Nearest vectors, alone or with BM25: the bundled sentence embedder (all-MiniLM-L6-v2) and cosine similarity.

That is the usual way to build a memory. `hybrid` joins words and vectors by reciprocal rank fusion (Cormack, Clarke &
Büttcher, SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, Protocol

from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Hit, Item, Receipt, date_limit, dated_within
from context_bench.memory.systems.baselines import Entry, Isolated, Listed
from context_bench.memory.systems.bm25_memory import BM25

MEMORIES = {
    "embedding": "Embedding",
    "hybrid": "Hybrid",
}


class Embeds(Protocol):
    """Texts → vectors of one length, in order."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


@cache
def bundled() -> Embeds:
    """The bundled model, loaded once per process; `MissingExtra` without the extra `local`."""
    from context_bench.llm.embedder import Embedder

    return Embedder()


class Embedding(Listed):
    """The `k` items whose vectors are nearest to the question's, by cosine; held in memory.

    `recency` w mixes in how new an item is: (1 − w) · cosine + w · position / last position. `embedder`: any object
    with `embed(texts)`.
    """

    name = "embedding"
    capabilities = Listed.capabilities | {"scores"}
    batch = 128
    _matrix: Any

    def __init__(self, recency: float = 0.0, *, embedder: Embeds | None = None) -> None:
        if not 0 <= recency <= 1:
            raise BadInput(f"embedding: recency is a weight from 0 to 1, not {recency}")
        self.recency = recency
        self._embedder = embedder or bundled()
        super().__init__()

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "Embedding",
            "embedder": getattr(self._embedder, "name", type(self._embedder).__name__),
            "recency": self.recency,
        }

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Nearest first; ties in the order in which they were added."""
        import numpy as np

        (asked,) = self._vectors([query])
        with self._lock:
            held = list(self._entries.items())
            if not held:
                return []
            scores = self._matrix[: len(held)] @ asked
        until = date_limit(as_of)
        if self.recency and len(held) > 1:
            scores = (1 - self.recency) * scores + self.recency * np.arange(len(held), dtype=np.float32) / (
                len(held) - 1
            )
        order = (at for at in np.argsort(-scores, kind="stable") if dated_within(held[at][1].time, until))
        return [held[at][1].hit(held[at][0], float(scores[at])) for at in islice(order, max(0, k))]

    def delete(self, memory_id: str) -> bool:
        import numpy as np

        with self._lock:
            at = self._position(memory_id)
            if at is None:
                return False
            self._matrix = np.delete(self._matrix, at, axis=0)
            return super().delete(memory_id)

    def update(self, memory_id: str, text: str) -> bool:
        (vector,) = self._vectors([text])
        with self._lock:
            at = self._position(memory_id)
            if at is None:
                return False
            self._matrix[at] = vector
            return super().update(memory_id, text)

    def delete_all(self) -> None:
        with self._lock:
            super().delete_all()
            self._matrix = _rows(0, 0)

    def stats(self) -> dict[str, int]:
        """`items` held, and the `bytes` of their texts and vectors."""
        with self._lock:
            texts = super().stats()
            return {**texts, "bytes": texts["bytes"] + texts["items"] * self._matrix.shape[1] * self._matrix.itemsize}

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._matrix = _rows(0, 0)

    def insert(self, ids: Sequence[str], items: Sequence[Item]) -> None:
        """Keep items under ids that somebody else gave them."""
        entries = [Entry.of(item) for item in items]
        if not entries:
            return
        vectors = self._vectors([entry.text for entry in entries])
        with self._lock:
            held, needed = len(self._entries), len(self._entries) + len(entries)
            if needed > len(self._matrix):
                grown = _rows(max(needed, 2 * len(self._matrix)), vectors.shape[1])
                grown[:held] = self._matrix[:held] if held else 0
                self._matrix = grown
            self._matrix[held:needed] = vectors
            self._entries.update(zip(ids, entries, strict=True))

    def _vectors(self, texts: Sequence[str]) -> Any:
        """Unit vectors, one a row."""
        import numpy as np

        vectors = np.asarray(self._embedder.embed(texts), dtype=np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def _position(self, memory_id: str) -> int | None:
        return next((at for at, held in enumerate(self._entries) if held == memory_id), None)


def _rows(rows: int, columns: int) -> Any:
    import numpy as np

    return np.zeros((rows, columns), dtype=np.float32)


_DEPTH = 50  # hits asked of each for every question, if `k` is not more


class Hybrid(Isolated):
    """Score of an item = Σ 1 / (`c` + rank) over both rankings; what only one of them finds counts once. Held in
    memory.
    """

    name = "hybrid"
    capabilities = BM25._CAPABILITIES
    batch: int | None = 128

    def __init__(self, c: int = 60, *, embedder: Embeds | None = None, space: str = "") -> None:
        self.c = c
        self._embedder = embedder
        self._words, self._vectors = BM25(space=space), Embedding(embedder=embedder)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "Hybrid",
            "c": self.c,
            "depth": _DEPTH,
            "words": self._words.fingerprint(),
            "vectors": self._vectors.fingerprint(),
        }

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Keep the items in both; in neither if one of them fails."""
        receipts = self._words.add(items)
        ids = [receipt.memory_id or "" for receipt in receipts]
        try:
            self._vectors.insert(ids, items)
        except BaseException:
            for memory_id in ids:
                self._words.delete(memory_id)
            raise
        return receipts

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The `k` best of both; ties go to the one that the words found first."""
        depth = max(k, _DEPTH)
        hits: dict[str | None, Hit] = {}
        for ranking in (self._words.search(query, depth, as_of=as_of), self._vectors.search(query, depth, as_of=as_of)):
            for rank, hit in enumerate(ranking, 1):
                fused = hits.setdefault(hit.memory_id, replace(hit, score=0.0))
                hits[hit.memory_id] = replace(fused, score=(fused.score or 0.0) + 1 / (self.c + rank))
        return sorted(hits.values(), key=lambda hit: -(hit.score or 0.0))[: max(0, k)]

    def delete(self, memory_id: str) -> bool:
        self._vectors.delete(memory_id)
        return self._words.delete(memory_id)

    def update(self, memory_id: str, text: str) -> bool:
        self._vectors.update(memory_id, text)
        return self._words.update(memory_id, text)

    def delete_all(self) -> None:
        self._words.delete_all()
        self._vectors.delete_all()

    def namespace(self, name: str) -> Hybrid:
        return Hybrid(self.c, embedder=self._embedder, space=name)

    def flush(self, seconds: float | None = None) -> None:
        self._words.flush(seconds)

    def stats(self) -> dict[str, int]:
        """`items`, and the `bytes` of texts, index and vectors."""
        words, vectors = self._words.stats(), self._vectors.stats()
        return {"items": words["items"], "bytes": words["bytes"] + vectors["bytes"]}

    def close(self) -> None:
        self._words.close()
        self._vectors.close()
