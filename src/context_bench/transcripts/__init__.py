"""Readers of the logs of agents and gateways: transcripts, streams, request logs, tap records → `Session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.transcripts.session_files import (
        Pair as Pair,
        read_pairs as read_pairs,
        read_sessions as read_sessions,
    )

__all__ = ["Pair", "read_pairs", "read_sessions"]

__getattr__, __dir__ = lazy(__name__, [f".session_files:{name}" for name in __all__])
