"""One HTTP transport per event loop, shared by all clients: kept-open connections instead of new ones for each client.

Models are called over the transport of `llm.transport`. Memories and compressors that are services elsewhere need the
environment's proxies: they have an aiohttp session, opened the same way, whose connections can tell the end of a reply
over TLS from a cut. Before anything is sent, an address can be looked at: is it listened to, and by which server?
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from context_bench.llm.transport import (
    Broken,
    CannotConnect,
    NotHttp,
    NotSecure,
    Transport,
    TransportError,
    Unusable,
    address_of,
    why,
)

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "leave",
    "of_aiohttp",
    "session_for",
    "transport_for",
]

_Key = tuple[asyncio.AbstractEventLoop, str]


@dataclass(slots=True)
class _Open:
    """Something with `closed` and `close` that ends with its loop."""

    shared: Any
    lifetime: AsyncGenerator[None, None]
    users: WeakSet[Any] = field(default_factory=WeakSet)


_open: dict[_Key, _Open] = {}


async def transport_for(user: object) -> Transport:
    """The transport of the running loop, opened when first asked for.

    It is closed when its last user says so (`leave`), when the loop shuts its generators down (as `asyncio.run` does),
    or at exit.
    """
    found: Transport = await _shared(user, "", Transport)
    return found


async def session_for(user: object, *, trust_env: bool = False) -> aiohttp.ClientSession:
    """The aiohttp session of the running loop, for what needs one. `trust_env`: proxies and logins of the environment
    are used.
    """
    kind = "aiohttp, by the environment" if trust_env else "aiohttp"
    found: aiohttp.ClientSession = await _shared(user, kind, lambda: _session(trust_env))
    return found


async def _shared(user: object, kind: str, make: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    entry = _open.get((loop, kind))
    if entry is None or entry.shared.closed:
        for stale in [key for key in list(_open) if key[0].is_closed()]:
            _open.pop(stale, None)
        shared = make()
        entry = _open[loop, kind] = _Open(shared, _lifetime((loop, kind), shared))
        await anext(entry.lifetime)
    entry.users.add(user)
    return entry.shared


async def leave(user: object) -> None:
    """`user` needs the running loop's connections no more; the last one closes them."""
    loop = asyncio.get_running_loop()
    for key, entry in list(_open.items()):
        if key[0] is loop and user in entry.users:
            entry.users.discard(user)
            if not entry.users:
                await _end(entry)


def of_aiohttp(error: Exception) -> Exception:
    """Failure of an aiohttp session, as `llm.transport` would report it."""
    import aiohttp

    words = str(getattr(error, "strerror", None) or error)
    if isinstance(error, aiohttp.InvalidURL):
        return Unusable(words)
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return NotSecure(why(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return CannotConnect(words)
    if isinstance(error, aiohttp.ClientResponseError):
        return NotHttp(str(error.message))
    return error if isinstance(error, TimeoutError | TransportError) else Broken(words or type(error).__name__)


def _session(trust_env: bool) -> aiohttp.ClientSession:
    import aiohttp

    from context_bench.llm.relay import Connector

    return aiohttp.ClientSession(
        connector=Connector(ttl_dns_cache=300),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        headers={"User-Agent": "context-bench"},
        trust_env=trust_env,
    )


async def _lifetime(key: _Key, shared: Any) -> AsyncGenerator[None, None]:
    """Ends with the loop: event loops close the generators that were begun on them."""
    try:
        yield
    finally:
        _open.pop(key, None)
        closing = shared.close()
        if closing is not None:
            await closing
        else:
            await asyncio.sleep(0)  # connections learn that they are over


@atexit.register
def _close_all() -> None:
    """Loops in daemon threads never shut down by themselves."""
    for (loop, _), entry in list(_open.items()):
        if loop.is_running():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(_end(entry), loop).result(timeout=1)


async def _end(entry: _Open) -> None:
    await entry.lifetime.aclose()


#: Seconds for a connection, and for an answer about who somebody is; the most bytes of the latter.
_CONNECT, _ASK, _MOST = 5.0, 2.0, 16 * 2**10
_NAMES = ("service", "name", "app", "application", "server", "proxy", "version")


async def unreachable(url: str) -> str | None:
    """Reason why host and port of `url` accept no connection; `None` if they do. No request is sent."""
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
    """Identity of the server at `url`: its `Server` header, and name and version from `/health`; `None` if it gives
    none.

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
