"""A model that writes texts for compressors and memories, behind any URL."""

from __future__ import annotations

import math
import os
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.tokens import counter_for


class TextModel:
    """Something that a model behind `relay` writes, at temperature 0: `_ask` it. `settings`: as of `ChatClient`.

    `option`: the option of the command line that names the model as well. Without `relay`, and with `part_tokens` or
    `max_tokens` below 1, `BadInput`.
    """

    name = "written"
    rules = ""  # what the model is told to do

    def __init__(
        self,
        relay: str | None,
        model: str,
        api_key: str | None,
        option: str,
        *,
        part_tokens: int,
        max_tokens: int,
        **settings: Any,
    ) -> None:
        if relay is None:
            raise BadInput(
                f"{self.name} needs a model that writes it: {self.name}:relay=http://HOST:PORT (or {option} URL)"
            )
        if part_tokens < 1 or max_tokens < 1:
            raise BadInput(f"{self.name}: part_tokens and max_tokens are 1 or more, not {part_tokens} and {max_tokens}")
        from context_bench.llm.chat import ChatClient

        self._client = ChatClient(relay, api_key=api_key or os.environ.get("OPENAI_API_KEY"), **settings)
        self.model, self.part_tokens, self.max_tokens = model, part_tokens, max_tokens

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which its texts depend; no key."""
        return {
            "class": type(self).__name__,
            "url": self._client.base_url,
            "model": self.model,
            "rules": stable_hash(self.rules, 12),
            "part_tokens": self.part_tokens,
            "max_tokens": self.max_tokens,
        }

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def _ask(self, text: str, budget: int | None = None) -> str:
        """The model's text about `text`; the rules name a `budget` (tokens)."""
        from context_bench.wire.apis import chat_request

        rules = self.rules if budget is None else f"{self.rules}\n{_asked_for(budget)}"
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": text}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.max_tokens}
        reply = await self._client.send(chat_request(body), counter=counter_for(self.model))
        return (reply.text or "").strip()


def _asked_for(budget: int) -> str:
    return (
        f"All of it together may have at most {budget} tokens, which is about {max(1, math.floor(budget * 0.7))} words."
    )
