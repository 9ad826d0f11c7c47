"""Nothing: what the model answers without the context."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.core.protocols import Compressed

COMPRESSORS = {"none": "NoContext", "tail_only": "NoContext"}


class NoContext:
    """Removes all messages of the prefix; a budget is ignored."""

    name = "none"
    leaves = "nothing"
    deterministic = True

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        return Compressed([], tokens_after=0), state
