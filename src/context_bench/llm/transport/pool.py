"""The kept-open connections of one event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import select
import socket
import ssl
from functools import cache
from typing import Any

from context_bench.llm.transport.address import Address
from context_bench.llm.transport.connection import Connection
from context_bench.llm.transport.response import Response
from context_bench.llm.transport.trouble import CannotConnect, NotSecure, why

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
