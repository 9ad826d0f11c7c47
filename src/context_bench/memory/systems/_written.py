"""What the two summary memories share: a model behind an OpenAI-compatible URL that reads the conversation part by part."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from context_bench.core.errors import Failed, describe
from context_bench.core.iterables import by_size
from context_bench.core.protocols import Prices
from context_bench.core.tokens import counter_for
from context_bench.memory.protocol import Item, Receipt
from context_bench.systems._model import OfModel


class Written(OfModel):
    """A memory that a model writes. `relay`: base URL of the model; `api_key` defaults to `OPENAI_API_KEY`.

    New items are put to the model in parts of at most `part_tokens` (o200k_base; a longer item is its own part), at temperature 0, with at
    most `max_tokens` for its reply. A part whose call fails is reported in the receipts of its items, and the memory is as before it.
    `prices` and `limiter` as of `ChatClient`.
    """

    batch: int | None = 20

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-3.5-turbo",
        api_key: str | None = None,
        *,
        part_tokens: int = 1500,
        max_tokens: int = 800,
        timeout: float = 120.0,
        max_retries: int = 3,
        prices: Prices | None = None,
        limiter: Any = None,
    ) -> None:
        settings = {"timeout": timeout, "max_retries": max_retries, "prices": prices, "limiter": limiter}
        super().__init__(relay, model, api_key, "--relay", part_tokens=part_tokens, max_tokens=max_tokens, **settings)
        self._owner = True
        self._begin("")

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Have the model read the items, part by part, in order."""
        receipts: list[Receipt] = []
        async with self._turn:  # each part is read with what was written of the one before
            for part in self._parts(items):
                try:
                    await self._read(part)
                except Failed as error:
                    receipts += [Receipt(item.id, error=describe(error)) for item in part]
                else:
                    receipts += [Receipt(item.id) for item in part]
        return receipts

    async def aclose(self) -> None:
        """Let go of the connections; a twin leaves them to the memory that it came from."""
        if self._owner:
            await super().aclose()

    async def _read(self, part: Sequence[Item]) -> None:
        """Take a part in."""
        raise NotImplementedError

    def _begin(self, name: str) -> None:
        """Be the empty namespace `name`."""
        self._turn = asyncio.Lock()

    def _parts(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        counter = counter_for()
        return by_size(items, lambda item: counter.count(dated(item)), self.part_tokens)


def dated(item: Item) -> str:
    """A turn as the model reads it: when, who, what."""
    return f"({item.time}) {item.line}" if item.time else item.line
