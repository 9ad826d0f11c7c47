"""Sentences dropped at random: the floor under every method that claims to choose."""

from __future__ import annotations

import random
from typing import Any

from context_bench.compression.compressors.texts import Messages, compressed, keep_best
from context_bench.core.keys import seed_of
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.context import check_limit

COMPRESSORS = {"random_drop": "RandomDrop"}


class RandomDrop:
    """Keeps randomly chosen sentences, in their order, up to `budget` tokens (or the share `keep`).

    The choice depends on `seed`, on the text and, if `state` is an example's id, on that; on nothing else, so it
    repeats anywhere.
    """

    name = "random_drop"
    deterministic = True
    of_text = True

    def __init__(self, keep: float = 0.5, budget: int | None = None, seed: int = 0, model: str | None = None) -> None:
        check_limit(self.name, budget, keep)
        self.keep, self.budget, self.seed, self.model = keep, budget, seed, model

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
        example = state if isinstance(state, str | int) else None

        def shorten(texts: list[str], tokens: int) -> list[str]:
            chance = random.Random(seed_of(self.seed, example, texts))
            return keep_best(texts, tokens, counter, lambda found: chance.sample(range(len(found)), len(found)))

        return compressed(prefix, self.budget if budget is None else budget, self.keep, counter, shorten), state
