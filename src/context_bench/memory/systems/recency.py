"""The last things said: a sliding window, the cheapest memory there is."""

from __future__ import annotations

from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.memory.protocol import Hit
from context_bench.memory.systems._listed import Listed


class Recency(Listed):
    """The newest items first: at most `k`, at most the last `n`, at most `tokens` of text (o200k_base). Newest = added last."""

    name = "recency"
    capabilities = Listed.capabilities | {"search"}

    def __init__(self, n: int | None = None, tokens: int | None = None) -> None:
        if any(limit is not None and limit < 1 for limit in (n, tokens)):
            raise BadInput(f"recency needs n and tokens of 1 or more, not n={n}, tokens={tokens}")
        super().__init__()
        self.n, self.tokens = n, tokens

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The window, newest first; the query plays no part."""
        limit = k if self.n is None else min(k, self.n)
        newest = [entry.hit(memory_id) for memory_id, entry in self._held(as_of)[::-1][: max(0, limit)]]
        if self.tokens is None:
            return newest
        left, counter = self.tokens, counter_for()
        for position, hit in enumerate(newest):
            left -= counter.count(hit.text)
            if left < 0:
                return newest[:position]
        return newest
