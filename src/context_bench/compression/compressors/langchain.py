"""LangChain's two ways to shorten a conversation before a call, in an environment of its own: clear old tool results,
or summarise.
"""

from __future__ import annotations

import os
from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.compression.compressors.vendor_process import VendorCompressor
from context_bench.core.errors import BadInput
from context_bench.sandbox.vendors import Vendor

ADAPTED = {"langchain_clear": "ClearToolUses", "langchain_summary": "Summarization"}

_VENDOR = Vendor("langchain", "langchain", "1.4.7")


class ClearToolUses(VendorCompressor):
    """`ClearToolUsesEdit`: all but the last `keep` results of tools become `[cleared]` once there are more than
    `trigger` tokens.

    Its own default trigger is 100,000 (its own estimate of tokens); here it is 0, since a compression point is where it
    is to happen. A budget becomes the trigger; what is then too long stays too long.
    """

    vendor = _VENDOR
    name = "langchain_clear"
    deterministic = True

    def __init__(
        self,
        keep: int = 3,
        trigger: int = 0,
        clear_at_least: int = 0,
        clear_tool_inputs: bool = False,
        *,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        options = {
            "keep": keep,
            "trigger": trigger,
            "clear_at_least": clear_at_least,
            "clear_tool_inputs": clear_tool_inputs,
        }
        super().__init__(options, python=python, timeout=timeout)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        return self._options if budget is None else {**self._options, "trigger": budget}


class Summarization(VendorCompressor):
    """`SummarizationMiddleware` with its own prompt and model calls: everything but the last `keep` messages becomes
    one summary.

    `keep_tokens`: so many tokens at the end are kept instead (its own estimate); of a budget, half is for them. The
    package itself looks only at the last `trim_tokens_to_summarize` tokens (its default: 4,000) of what it summarises.
    `relay`, `model`, `api_key`: who writes.
    """

    vendor = _VENDOR
    name = "langchain_summary"

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        *,
        keep: int = 20,
        keep_tokens: int | None = None,
        trim_tokens_to_summarize: int | None = 4000,
        python: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        if relay is None:
            raise BadInput(
                "langchain_summary needs a model that writes it: langchain_summary:relay=http://HOST:PORT (or "
                "--responder URL)"
            )
        if keep < 1 or (keep_tokens is not None and keep_tokens < 1):
            raise BadInput(f"langchain_summary: keep and keep_tokens are 1 or more, not {keep} and {keep_tokens}")
        kept = ["messages", keep] if keep_tokens is None else ["tokens", keep_tokens]
        options = {"keep": kept, "trim_tokens_to_summarize": trim_tokens_to_summarize}
        key = api_key or os.environ.get("OPENAI_API_KEY")
        super().__init__(options, python=python, timeout=timeout, relay=relay, model=model, api_key=key)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        return self._options if not budget else {**self._options, "keep": ["tokens", max(1, budget // 2)]}
