"""What stands behind everything: a real URL, or one of our own models started on loopback for as long as it is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

LOCAL = ("embedded", "echo", "scripted:", "sentence")


def is_local(upstream: str) -> bool:
    """True for upstreams that we start ourselves: no key, no money, no prompt cache shared between arms."""
    return upstream.startswith(LOCAL)


@asynccontextmanager
async def started_upstream(upstream: str) -> AsyncIterator[str]:
    """The base URL of `upstream`; a local model is started before and stopped after."""
    if not is_local(upstream):
        yield upstream
        return
    from context_bench.llm.servers import ModelServer

    responder = _responder(upstream)
    if isinstance(responder, str):
        yield responder
        return
    async with ModelServer(responder) as server:
        yield server.url


def _responder(upstream: str) -> Any:
    """The responder of an upstream: a model of `llm`, or the sentence reader, which a family brings."""
    if upstream == "sentence":
        from context_bench.core.families import offered

        return offered("sentence_model")()
    from context_bench.llm.servers import upstream_of

    return upstream_of(upstream)
