"""Everything, unchanged: what the others are compared with."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.core.protocols import Compressed

COMPRESSORS = {"full": "Full", "passthrough": "Full"}


class Full:
    """Returns what it got; a budget is ignored."""

    name = "full"
    leaves = "everything"
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
        return Compressed(prefix), state
