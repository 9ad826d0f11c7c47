"""What the systems share that talk over one wire of a conversation: which wires there are, and a client for one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.llm.chat import ChatClient
from context_bench.wire.conversation import PATHS


def connector(wire: str, base_url: str, **settings: Any) -> Callable[[], ChatClient]:
    """What makes clients for `base_url` (`settings` as of `ChatClient`); `BadInput` if no conversation goes over `wire`."""
    if wire not in PATHS:
        raise BadInput(f"no conversation goes over the wire {wire!r}; expected one of: {', '.join(PATHS)}")
    return partial(ChatClient, base_url, **settings)
