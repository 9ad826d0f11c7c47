"""Items drawn by lot: what a search has to beat."""

from __future__ import annotations

import random

from context_bench.core.keys import seed_of
from context_bench.memory.protocol import Hit
from context_bench.memory.systems._listed import Listed


class RandomPick(Listed):
    """`k` items by lot: the same ones for the same seed, question and number of items, in any namespace."""

    name = "random"
    capabilities = Listed.capabilities | {"search"}

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Drawn without putting back."""
        held = self._held(as_of)
        lot = random.Random(seed_of(self.seed, query))
        return [entry.hit(memory_id) for memory_id, entry in lot.sample(held, min(max(0, k), len(held)))]
