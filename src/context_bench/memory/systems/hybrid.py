"""Words and vectors together: BM25 and the embedder, joined by reciprocal rank fusion (Cormack, Clarke & Büttcher,
SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from context_bench.memory.protocol import Hit, Item, Receipt
from context_bench.memory.systems.baselines import Isolated
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.memory.systems.embedding import Embedding, Embeds

MEMORIES = {"hybrid": "Hybrid"}

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
