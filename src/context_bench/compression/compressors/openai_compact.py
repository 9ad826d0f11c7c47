"""OpenAI's compaction: `POST /responses/compact`, or `context_management` with a `compact_threshold` in an ordinary
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.compressors.provider_api import AtProvider
from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput, BadReply
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for

ADAPTED = {"openai_compact": "OpenAICompact"}

#: What stands in for a message where the way asks for an answer that nobody wants.
_GO_ON = "Reply with OK."


class OpenAICompact(AtProvider):
    """The prefix becomes the items that the endpoint gives, an encrypted `compaction` item among them. They are opaque.

    `threshold`: instead of the endpoint, an ordinary request with `context_management` and this `compact_threshold`;
    the server compacts when its own count passes it, and a prefix that stays below it is a failure, not a compression.
    `tokens_after` is the provider's: what the endpoint says it wrote (`usage.output_tokens`); for a threshold, what
    `/responses/input_tokens` counts of the item.
    """

    name = "openai_compact"
    wire = "openai-responses"
    home = "https://api.openai.com"

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        threshold: int | None = None,
        instructions: str | None = None,
        timeout: float = 300.0,
        max_tokens: int = 800,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if threshold is not None and threshold < 1:
            raise BadInput(f"openai_compact: threshold is 1 token or more, not {threshold}")
        self.threshold, self.instructions = threshold, instructions

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """`opaque`: `{"wire", "items"}`; `state`: the same, which goes in front of what came since."""
        before = tokens_of(prefix, counter_for(self.model))
        if not prefix and not state:
            return Compressed([], 0, 0), state
        held = list((state or {}).get("items") or [])
        made = await (self._compacted(held, prefix) if self.threshold is None else self._passed(held, prefix))
        items, after = made
        opaque = {"wire": self.wire, "items": items}
        return Compressed([], before, after, opaque=opaque), opaque

    async def _compacted(self, held: list[Any], prefix: Messages) -> tuple[list[Any], int | None]:
        body: dict[str, Any] = {"model": self.model, "input": [*held, *self._items(prefix)]}
        if self.instructions:
            body["instructions"] = self.instructions
        document = await self._post("/v1/responses/compact", body)
        items = _output(document)
        if not any(_is_compaction(item) for item in items):
            raise BadReply("openai_compact: the reply of /responses/compact has no compaction item")
        usage = document.get("usage")
        after = usage.get("output_tokens") if isinstance(usage, Mapping) else None
        return items, after if isinstance(after, int) else None

    async def _passed(self, held: list[Any], prefix: Messages) -> tuple[list[Any], int | None]:
        asked = self._items([*prefix, {"role": "user", "content": _GO_ON}])
        body = {
            "model": self.model,
            "input": [*held, *asked],
            "context_management": [{"type": "compaction", "compact_threshold": self.threshold}],
            "store": False,
            "max_output_tokens": max(16, self.max_tokens),
        }
        items = _output(await self._post("/v1/responses", body))
        last = max((at for at, item in enumerate(items) if _is_compaction(item)), default=None)
        if last is None:
            raise BadReply(
                f"openai_compact: nothing was compacted: the prefix stayed below the threshold of {self.threshold} "
                "tokens"
            )
        kept = [items[last]]  # what came before it, it carries; the answer after it nobody asked for
        counted = await self._post("/v1/responses/input_tokens", {"model": self.model, "input": kept})
        after = counted.get("input_tokens")
        return kept, after if isinstance(after, int) else None

    def _items(self, messages: Messages) -> list[Any]:
        return list(self._body(messages)["input"])

    def _continued(self, opaque: Mapping[str, Any], asked: Messages) -> dict[str, Any]:
        body = self._body(asked)
        return {**body, "input": [*opaque["items"], *body["input"]]}

    def _settings(self) -> dict[str, Any]:
        return {"threshold": self.threshold, "instructions": self.instructions}


def _output(document: Mapping[str, Any]) -> list[Any]:
    output = document.get("output")
    if not isinstance(output, list):
        raise BadReply("openai_compact: the reply has no list of output items")
    return output


def _is_compaction(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and item.get("type") in ("compaction", "compaction_summary")
        and bool(item.get("encrypted_content"))
    )
