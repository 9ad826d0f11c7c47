"""Anthropic's compaction: the edit `compact_20260112`, which writes a summary that anybody can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.compressors.model_summaries import summary_message
from context_bench.compression.compressors.provider_api import AtProvider
from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput, BadReply
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for

ADAPTED = {"anthropic_compact": "AnthropicCompact"}

LEAST = 50_000  # the lowest trigger that the provider takes


class AnthropicCompact(AtProvider):
    """One request with the edit and `pause_after_compaction`; the `compaction` block of the reply holds the summary as
    text.

    It is given as a message, so any responder can answer from it; the provider itself would put it in front of the
    conversation as a block of the assistant. `trigger`: input tokens from which the provider compacts, at least 50,000:
    a shorter prefix is not compacted, which is a failure here. `instructions` replace the provider's own prompt.
    """

    name = "anthropic_compact"
    wire = "anthropic"
    home = "https://api.anthropic.com"
    betas = ("compact-2026-01-12",)

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        trigger: int = LEAST,
        instructions: str | None = None,
        timeout: float = 300.0,
        max_tokens: int = 8000,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if trigger < LEAST:
            raise BadInput(
                f"anthropic_compact: trigger is at least {LEAST} input tokens (the provider takes no less), not "
                f"{trigger}"
            )
        self.trigger, self.instructions = trigger, instructions

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The summary as one message."""
        counter = counter_for(self.model)
        if not prefix:
            return Compressed([], 0, 0), state
        edit: dict[str, Any] = {
            "type": "compact_20260112",
            "trigger": {"type": "input_tokens", "value": self.trigger},
            "pause_after_compaction": True,
        }
        if self.instructions:
            edit["instructions"] = self.instructions
        body = {**self._body([*prefix, {"role": "user", "content": "Go on."}]), "context_management": {"edits": [edit]}}
        document = await self._post("/v1/messages", body)
        made = summary_message(self._summary(document))
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    def _summary(self, document: Mapping[str, Any]) -> str:
        content = document.get("content")
        blocks = [each for each in content if isinstance(each, Mapping)] if isinstance(content, list) else []
        found = next((each for each in blocks if each.get("type") == "compaction"), None)
        if found is None:
            raise BadReply(
                f"anthropic_compact: nothing was compacted: the prefix stayed below the trigger of {self.trigger} "
                "input tokens"
            )
        if not isinstance(found.get("content"), str) or not found["content"].strip():
            raise BadReply(
                "anthropic_compact: the compaction block of the reply is empty: the provider's compaction failed"
            )
        return str(found["content"]).strip()

    def _settings(self) -> dict[str, Any]:
        return {"trigger": self.trigger, "instructions": self.instructions}
