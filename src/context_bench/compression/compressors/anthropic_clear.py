"""Anthropic's context editing: the edit `clear_tool_uses_20250919`, which the provider makes anew in each request and
never shows.
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
from context_bench.wire.request import SYSTEM_ROLES

ADAPTED = {"anthropic_clear": "AnthropicClear"}


class AnthropicClear(AtProvider):
    """The whole conversation is sent with the edit; what the model sees of it only the provider knows, so the result is
    opaque.

    Sizes are the provider's: `POST /v1/messages/count_tokens` with the edit says how many input tokens there were and
    are. `trigger`: input tokens (or, below 1,000, uses of tools) from which it clears; `keep`: the last uses of tools
    that stay; `clear_at_least`: tokens, so that losing the cached prefix pays; `clear_tool_inputs`: the calls'
    arguments too.
    """

    name = "anthropic_clear"
    wire = "anthropic"
    home = "https://api.anthropic.com"
    betas = ("context-management-2025-06-27",)

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        trigger: int = 1000,
        keep: int = 3,
        clear_at_least: int | None = None,
        clear_tool_inputs: bool = False,
        timeout: float = 300.0,
        max_tokens: int = 800,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if trigger < 1 or keep < 0 or (clear_at_least is not None and clear_at_least < 0):
            raise BadInput(
                f"anthropic_clear: trigger={trigger}, keep={keep}, clear_at_least={clear_at_least}: expected 1, 0, 0 "
                "or more"
            )
        edit: dict[str, Any] = {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens" if trigger >= 1000 else "tool_uses", "value": trigger},
            "keep": {"type": "tool_uses", "value": keep},
        }
        if clear_at_least:
            edit["clear_at_least"] = {"type": "input_tokens", "value": clear_at_least}
        if clear_tool_inputs:
            edit["clear_tool_inputs"] = True
        self._management = {"edits": [edit]}

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """`opaque`: `{"wire", "messages"}`, the prefix as it was; `state`: the same, which goes in front of what came
        since.
        """
        held = [*((state or {}).get("messages") or []), *prefix]
        if not held:
            return Compressed([], 0, 0), state
        asked = self._body([*held, {"role": "user", "content": "Go on."}])
        body = {name: value for name, value in asked.items() if name in ("model", "messages", "system", "tools")}
        document = await self._post("/v1/messages/count_tokens", {**body, "context_management": self._management})
        after, management = document.get("input_tokens"), document.get("context_management")
        before = management.get("original_input_tokens") if isinstance(management, Mapping) else None
        if not isinstance(after, int):
            raise BadReply("anthropic_clear: the count of tokens has no input_tokens")
        warnings = (
            []
            if isinstance(before, int) and before > after
            else ["nothing was cleared: below the trigger, or no more than keep"]
        )
        opaque = {"wire": self.wire, "messages": held}
        told = before if isinstance(before, int) else tokens_of(held, counter_for(self.model))
        return Compressed([], told, after, opaque=opaque, warnings=warnings), opaque

    def _continued(self, opaque: Mapping[str, Any], asked: Messages) -> dict[str, Any]:
        system = [message for message in asked if message.get("role") in SYSTEM_ROLES]
        rest = [message for message in asked if message.get("role") not in SYSTEM_ROLES]
        return {**self._body([*system, *opaque["messages"], *rest]), "context_management": self._management}

    def _settings(self) -> dict[str, Any]:
        return {"context_management": self._management}
