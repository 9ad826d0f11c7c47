"""The kept-open connections of one event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from context_bench.core.errors import Refused
from context_bench.llm.transport.connection import Connection
from context_bench.llm.transport.errors import CannotConnect, NotSecure, Unusable, why
from context_bench.llm.transport.response import Response

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_KEPT = "/%:@!$&'()*+,;=-._~"  # what has a meaning in a path, and what is encoded already


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and what to ask for there: `target` is path and query, `authority` the value of `Host`."""

    host: str
    port: int
    secure: bool
    target: str
    authority: str


@lru_cache(maxsize=256)
def address_of(url: str) -> Address:
    """The parts of an `http` or `https` URL without credentials; `Unusable` if it has no host or a port that is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        named = host if ":" in host or host.isascii() else host.encode("idna").decode("ascii")
    except ValueError as error:
        raise Unusable(str(error)) from None
    if not named or parts.scheme not in ("http", "https") or _UNSENDABLE.search(named) or " " in named:
        raise Unusable("no host in it")
    secure = parts.scheme == "https"
    usual = 443 if secure else 80
    shown = f"[{named}]" if ":" in named else named
    target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT + '?')}" if parts.query else "")
    return Address(named, port or usual, secure, target, shown if port in (None, usual) else f"{shown}:{port}")


def head_of(address: Address, headers: Mapping[str, str]) -> bytes:
    """The request line and the headers (lower-case names) up to the body's length, which `Transport.post` adds.

    `Refused` for a header that no request can carry: a line break in it would be a header of its own.
    """
    lines = {"host": address.authority, "accept": "*/*", "accept-encoding": "identity", "user-agent": "context-bench", **headers}
    told = []
    for name, value in lines.items():
        if name in _FRAMING:
            continue
        if not _NAME.fullmatch(name) or _UNSENDABLE.search(value):
            raise Refused(
                f"The request cannot be sent: the header {name[:60]!r} holds characters that HTTP cannot carry, such as a line break"
            )
        told.append(f"{name}: {value}\r\n")
    return f"POST {address.target} HTTP/1.1\r\n{''.join(told)}".encode("utf-8", "replace")


#: Seconds for which an unused connection is kept; servers and what stands before them end such connections, too, often after a minute.
KEPT = 15.0
#: From so many seconds on it is looked at before it is used: the other side may have ended it while this program was busy.
_LOOKED_AT = 0.5
#: Seconds for which an address that was looked up holds.
_RESOLVED = 300.0
_BUFFER = 64 * 2**10
_Origin = tuple[str, int, bool]


@cache
def tls() -> ssl.SSLContext:
    """The one TLS context of this process: reading the system's roots takes some 25 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Transport:
    """Connections to any number of places, opened as they are needed and used again; of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[_Origin, list[Connection]] = {}
        self._all: set[Connection] = set()
        self._found: dict[tuple[str, int], tuple[float, asyncio.Task[list[Any]]]] = {}
        self._buffer = bytearray(_BUFFER)  # of whichever connection is being read
        self._sweeping: asyncio.TimerHandle | None = None
        self.closed = False

    def usable(self) -> bool:
        """Whether it is open, and the running loop is its own."""
        return not self.closed and asyncio.get_running_loop() is self._loop

    async def post(self, address: Address, head: bytes, body: bytes, seconds: float | None = None) -> Response:
        """Send a request once; its reply, with status and headers. `seconds`: until the reply must be whole, else `TimeoutError`.

        `head` is what `head_of` made. Raises `Trouble`; a caller that is cancelled or done early loses the connection, not the next reply.
        """
        until = None if seconds is None else self._loop.time() + seconds
        origin = (address.host, address.port, address.secure)
        connection = self._unused(origin)
        if connection is None:
            async with asyncio.timeout_at(until):
                connection = await self._connected(origin)
        response = connection.ask(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        try:
            if until is not None:
                response.timer = self._loop.call_at(until, response.fail, TimeoutError())
            await response.headed()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        """End all connections."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._all):
            connection.abort()
        self._idle.clear()

    # --- what connections tell ---

    def kept(self, connection: Connection, promised: float | None = None) -> None:
        """It can be used again; `promised`: for so many seconds at most."""
        connection.good_until = self._loop.time() + (KEPT if promised is None else min(KEPT, promised))
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(KEPT, self._sweep)

    def lost(self, connection: Connection) -> None:
        """It is over."""
        self._all.discard(connection)
        unused = self._idle.get(connection.origin)
        if unused is not None and connection in unused:
            unused.remove(connection)

    def _unused(self, origin: _Origin) -> Connection | None:
        """The connection that was used last, for the other side will end that one last."""
        unused = self._idle.get(origin)
        while unused:
            connection = unused.pop()
            left = connection.good_until - self._loop.time()
            if left > 0 and (left > KEPT - _LOOKED_AT or _quiet(connection)):
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        """End the connections that nobody has used for long."""
        self._sweeping = None
        now = self._loop.time()
        for origin, unused in list(self._idle.items()):
            old = [connection for connection in unused if now >= connection.good_until]
            unused[:] = [connection for connection in unused if now < connection.good_until]
            for connection in old:
                connection.abort()
            if not unused:
                del self._idle[origin]
        if self._idle:
            self._sweeping = self._loop.call_later(KEPT / 3, self._sweep)

    async def _connected(self, origin: _Origin) -> Connection:
        host, port, secure = origin
        try:
            there = await self._look_up(host, port)
            more: dict[str, Any] = {"ssl": tls(), "server_hostname": host} if secure else {}
            if len(there) == 1:
                where: dict[str, Any] = {"host": there[0][4][0], "port": there[0][4][1]}
            else:
                from aiohappyeyeballs import start_connection

                where = {"sock": await start_connection(there, happy_eyeballs_delay=0.25, interleave=1)}
            made = await self._loop.create_connection(lambda: Connection(self, origin, self._buffer), **where, **more)
        except ssl.SSLError as error:
            raise NotSecure(why(error)) from error
        except (OSError, UnicodeError) as error:
            raise CannotConnect(why(error)) from error
        connection = made[1]
        self._all.add(connection)
        return connection

    async def _look_up(self, host: str, port: int) -> list[Any]:
        """The addresses of a host; all who ask at once, and within five minutes, share one question."""
        known = self._found.get((host, port))
        if known is None or self._loop.time() >= known[0]:
            asking = self._loop.create_task(_resolved(self._loop, host, port))
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # whoever asked may be gone
            known = self._found[host, port] = self._loop.time() + _RESOLVED, asking
        try:
            return await asyncio.shield(known[1])
        except OSError:
            self._found.pop((host, port), None)
            raise


async def _resolved(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host.partition("%")[0]).version == 6 else socket.AF_INET
    except ValueError:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(family, socket.SOCK_STREAM, 0, "", (host, port))]


def _quiet(connection: Connection) -> bool:
    """Whether nothing, not even its end, has come over an unused connection that the loop has not told of yet."""
    plain = connection.transport.get_extra_info("socket") if connection.transport is not None else None
    if plain is None or plain.fileno() < 0:
        return False
    if not hasattr(select, "poll"):  # Windows, whose select takes any number
        return not select.select([plain], [], [], 0)[0]
    poll = select.poll()
    poll.register(plain, select.POLLIN)
    return not poll.poll(0)
