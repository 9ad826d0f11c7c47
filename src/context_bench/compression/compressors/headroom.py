"""Headroom (package `headroom-ai`): content-aware and without a model, in an environment of its own."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.compression.compressors.vendor_process import VendorCompressor
from context_bench.compression.probes import tokens_of
from context_bench.core.tokens import counter_for
from context_bench.sandbox.vendors import Vendor

ADAPTED = {"headroom": "Headroom"}


class Headroom(VendorCompressor):
    """`headroom.compress(messages, …)` as the package does it by default; the options are the package's own.

    A budget becomes its `target_ratio` (share kept), which it takes as a wish. `protect_recent`: messages at the end
    that it leaves alone; `compress_user_messages`: whether what users said is compressed too. `counted_as`: the model
    of its own count of tokens.
    """

    vendor = Vendor("headroom-ai", "headroom", "0.42.0")
    name = "headroom"

    def __init__(
        self,
        target_ratio: float | None = None,
        protect_recent: int | None = None,
        compress_user_messages: bool | None = None,
        *,
        counted_as: str = "gpt-4o",
        python: str | None = None,
        timeout: float = 300.0,
    ) -> None:
        given = {
            "target_ratio": target_ratio,
            "protect_recent": protect_recent,
            "compress_user_messages": compress_user_messages,
        }
        options = {name: value for name, value in given.items() if value is not None}
        super().__init__({"model": counted_as, **options}, python=python, timeout=timeout)

    def _for_budget(self, prefix: Messages, budget: int | None) -> dict[str, Any]:
        before = tokens_of(prefix, counter_for())
        share = {} if budget is None or not before else {"target_ratio": max(0.01, min(1.0, budget / before))}
        return {**self._options, **share}
