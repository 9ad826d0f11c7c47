"""Stands where the provider would stand, relays everything untouched, and writes down what really arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.tap.control_api import RemoteTap
    from context_bench.tap.tap_server import Tap, serve_tap

__all__ = ["RemoteTap", "Shadow", "Tap", "Watch", "serve_tap"]

# aiohttp is loaded only by those who use a tap.
__getattr__, __dir__ = lazy(
    __name__,
    [
        ".tap_server:Tap",
        ".tap_server:serve_tap",
        ".control_api:RemoteTap",
        "context_bench.traffic.watch.watcher:Watch",
        "context_bench.traffic.watch.beside:Shadow",
    ],
)
