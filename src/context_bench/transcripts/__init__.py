"""Readers of what agents and gateways wrote down: transcripts, streams, request logs, tap records → `core.session.Session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.transcripts.read import Pair as Pair
    from context_bench.transcripts.read import read_pairs as read_pairs
    from context_bench.transcripts.read import read_sessions as read_sessions

__all__ = ["Pair", "read_pairs", "read_sessions"]

__getattr__, __dir__ = lazy(__name__, [f".read:{name}" for name in __all__])
