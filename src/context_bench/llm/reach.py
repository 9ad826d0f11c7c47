"""Looks before anything is sent: does somebody listen at an address, and who says to be there?"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from context_bench.llm.transport import Unusable, address_of, why

#: Seconds for a connection, and for an answer about who somebody is; the most bytes of the latter.
_CONNECT, _ASK, _MOST = 5.0, 2.0, 16 * 2**10
_NAMES = ("service", "name", "app", "application", "server", "proxy", "version")


async def unreachable(url: str) -> str | None:
    """Why nobody takes a connection at host and port of `url`, `None` if somebody does. No request is sent."""
    try:
        address = address_of(url)
    except Unusable as error:
        return str(error)
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address.host, address.port), _CONNECT)
    except TimeoutError:
        return f"no connection within {_CONNECT:g} s"
    except (OSError, UnicodeError) as error:
        return why(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None


async def who_answers(url: str) -> str | None:
    """What the server at `url` says of itself: its `Server` header, and name and version from `/health`; `None` if it says nothing.

    Text from outside, cut to a line's length; whoever shows it makes it visible.
    """
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK), trust_env=False) as session,
            session.get(f"{url.rstrip('/').removesuffix('/v1')}/health", allow_redirects=False) as reply,
        ):
            server, body = reply.headers.get("Server", "")[:80], await reply.content.read(_MOST)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
    parts = [f"Server: {server}"] if server else []
    if reply.status == 200 and (health := _names(body)):
        parts.append(f"/health: {health}")
    return ", ".join(parts) or None


def _names(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, Mapping):
        return ""
    told = {name: found[name] for name in _NAMES if isinstance(found.get(name), str)}
    return " ".join(f"{name} {value[:60]}" for name, value in told.items())
