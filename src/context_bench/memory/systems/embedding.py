"""Nearest vectors: the bundled sentence embedder (all-MiniLM-L6-v2) and cosine similarity, the usual way to build a
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any, Protocol

from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Hit, Item, date_limit, dated_within
from context_bench.memory.systems.baselines import Entry, Listed

MEMORIES = {"embedding": "Embedding"}


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
