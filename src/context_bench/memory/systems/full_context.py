"""The whole conversation, every time: what a memory has to come near to with a fraction of the tokens."""

from __future__ import annotations

from context_bench.memory.protocol import Hit
from context_bench.memory.systems._listed import Listed


class FullContext(Listed):
    """Everything that was added and is not dated after the question, in its order, whatever `k` is; only a token budget shortens it."""

    name = "full_context"
    capabilities = Listed.capabilities | {"search"}
    ignores_k = True

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """All items, oldest first, without scores."""
        return [entry.hit(memory_id) for memory_id, entry in self._held(as_of)]
