"""What compressors that a model writes have in common: their arguments, and the parts that a long prefix is read in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_bench.compression.compressors._messages import check_limit
from context_bench.compression.compressors._select import head
from context_bench.compression.probes.example import rendered
from context_bench.core.iterables import by_size
from context_bench.core.protocols import Prices
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.systems._model import OfModel
from context_bench.wire.conversation import ChatMessage


class WrittenByModel(OfModel):
    """A compressor that asks a model behind `relay` (an OpenAI-compatible URL; `api_key` defaults to `OPENAI_API_KEY`), at temperature 0.

    What is to be summarised is put to it in parts of at most `part_tokens` (o200k_base), so that it fits a small window; its reply has at
    most `max_tokens`. `budget`: tokens of the summary; the model is told, and what is longer all the same is cut, with a warning.
    A call that fails is the failure of the compression. `prices`: what calls cost. `limiter`: whose turn it is to ask.
    """

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        *,
        budget: int | None = None,
        part_tokens: int = 4000,
        max_tokens: int = 1200,
        timeout: float = 120.0,
        max_retries: int = 3,
        prices: Prices | None = None,
        limiter: Any = None,
    ) -> None:
        settings = {"timeout": timeout, "max_retries": max_retries, "prices": prices, "limiter": limiter}
        super().__init__(relay, model, api_key, "--responder", part_tokens=part_tokens, max_tokens=max_tokens, **settings)
        check_limit(self.name, budget, 0)
        self.budget = budget

    def fingerprint(self) -> dict[str, Any]:
        """What is written depends on this; no key."""
        return super().fingerprint() | {"budget": self.budget}

    def _parts(self, messages: Sequence[ChatMessage]) -> Iterator[str]:
        """The messages as text, in parts; one that is longer than a part is cut into several."""
        counter = counter_for()
        pieces = (piece for message in messages for piece in _pieces(rendered([message]), self.part_tokens, counter))
        return ("\n\n".join(part) for part in by_size(pieces, counter.count, self.part_tokens))


def _pieces(text: str, tokens: int, counter: VocabularyCounter) -> Iterator[str]:
    while counter.count(text) > tokens:
        first = head(text, tokens, counter) or counter.truncate(text, tokens) or text[:1]
        yield first
        text = text[len(first) :].lstrip()
    if text.strip():
        yield text
