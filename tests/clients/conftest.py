"""A room with a provider for each test with a real client."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from context_bench.llm.servers import ModelServer

from . import playing


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def room(tmp_path: Path) -> Callable[..., contextlib.AbstractAsyncContextManager[playing.Room]]:
    """(rules) → a room whose provider plays them."""

    @contextlib.asynccontextmanager
    async def opened(*rules: dict) -> AsyncIterator[playing.Room]:
        await asyncio.to_thread(playing.repository, tmp_path / "work")
        provider = playing.Provider(rules)
        async with ModelServer(provider) as server:
            yield playing.Room(tmp_path, server, provider)

    return opened
