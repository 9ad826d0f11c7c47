"""HTTP/1.1 as far as a client of models needs it: `POST` on kept-open connections, replies read whole or piece by
piece.

The connections of one event loop are kept open, each with one reply at a time. `Transport.post` sends once and never
again: whether to try again is decided in one place, above (`llm.chat`). What is not here on purpose: redirects,
cookies, proxies of the environment, connections shared by several requests at once.
"""

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

import httptools

from context_bench.core.errors import Refused
from context_bench.llm.transport.response import (
    UNENDED,
    Broken,
    CannotConnect,
    NotHttp,
    NotSecure,
    Oversized,
    Response,
    TransportError,
    Unusable,
    why,
)

__all__ = [
    "Address",
    "Broken",
    "CannotConnect",
    "NotHttp",
    "NotSecure",
    "Oversized",
    "Response",
    "Transport",
    "TransportError",
    "Unusable",
    "address_of",
    "head_of",
    "tls",
    "why",
]

#: Bytes of status line, headers, trailers and chunk extensions together, and number of headers, beyond which nothing is
#: read any more.
LARGEST_HEAD, MOST_HEADERS = 256 * 2**10, 256


class Connection(asyncio.BufferedProtocol):
    """A connection to one place. `origin`: which; `good_until`: when it is too old to be used again (the loop's
    time).
    """

    def __init__(self, pool: Transport, origin: tuple[str, int, bool], buffer: bytearray) -> None:
        self.pool, self.origin, self.good_until = pool, origin, 0.0
        self.transport: asyncio.Transport | None = None
        self.response: Response | None = None
        self._view = memoryview(buffer)
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._headers: dict[str, str] = {}
        self._room, self._fields = LARGEST_HEAD, MOST_HEADERS
        self._open_ended = self._paused = self._lasting = False
        self._ended = True

    def ask(self, request: bytes) -> Response:
        """Send a request; its reply."""
        assert self.transport is not None
        self.response = Response(self)
        self._headers, self._room, self._fields, self._open_ended = {}, LARGEST_HEAD, MOST_HEADERS, False
        self.transport.write(request)
        return self.response

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`."""
        if self.transport is not None and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    # --- what the event loop tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        response = self.response
        if response is None:  # nobody has asked anything
            self.abort()
            return
        before = response.ahead
        try:
            self._parser.feed_data(self._view[:nbytes])
            self._spend(nbytes if response.ahead == before else 0)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, NotHttp) as error:
            cause = error.__context__ if isinstance(error.__context__, NotHttp) else error
            self._lose(cause if isinstance(cause, NotHttp) else NotHttp(str(error)[:200] or type(error).__name__))
            self.abort()
            return
        if response.done:
            self._let_go()

    def eof_received(self) -> bool | None:
        self._ended = self.transport is None or closed_by_peer(self.transport)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.lost(self)
        response = self.response
        if response is not None and not response.done and error is None and self._open_ended and response.status:
            if self._ended:
                response.finish()
            else:
                self._lose(Broken(UNENDED))
        elif response is not None:
            told = " ".join(_reason(error).split()) if error is not None else ""
            self._lose(
                Broken(told or f"the server ended the connection {'within' if response.status else 'before'} the reply")
            )
        self.transport = None
        self.response = None
        del self._parser  # it holds on to this object

    def _lose(self, trouble: Exception) -> None:
        if self.response is not None:
            self.response.fail(trouble)

    def _let_go(self) -> None:
        """The reply is whole: keep the connection if both sides can."""
        self.resume()
        self.response = None
        told = self._headers.get("keep-alive")
        if self._lasting and self.transport is not None and not self.transport.is_closing():
            self.pool.kept(self, None if told is None else _promised(told))
        elif self.transport is not None:
            self.transport.close()

    def _spend(self, size: int) -> None:
        """Count bytes that brought nothing of a body."""
        self._room = self._room - size if size else LARGEST_HEAD
        if self._room < 0:
            raise NotHttp(f"more than {LARGEST_HEAD // 1024} KiB of headers")

    # --- what the parser tells ---

    def on_message_begin(self) -> None:
        if self.response is None or self.response.done:
            raise NotHttp("bytes after the end of the reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields -= 1
        if self._fields < 0:
            raise NotHttp(f"more than {MOST_HEADERS} headers")
        self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 101:
            raise NotHttp("HTTP 101, another protocol, was not asked for")
        if status < 200:  # a note that the reply will come
            self._headers = {}
        elif self.response is not None:
            told = self._headers
            self._open_ended = "content-length" not in told and not told.get("transfer-encoding", "").lower().endswith(
                "chunked"
            )
            self.response.head(status, told)

    def on_body(self, data: bytes) -> None:
        if self.response is not None:
            self.response.body(data)

    def on_message_complete(self) -> None:
        if self.response is not None and self.response.status:
            self._lasting = self._parser.should_keep_alive()
            self.response.finish()


def closed_by_peer(transport: asyncio.BaseTransport) -> bool:
    """True if the other side ended what it sends, asked when asyncio says that there is no more.

    Anybody on the way can end a connection. Over TLS only its peer can say that it has (close_notify), and asyncio does
    not tell the two apart; a read does, which finds an end or nothing yet.
    """
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return True
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


def _reason(error: Exception) -> str:
    return why(error) if isinstance(error, ssl.SSLError) else str(getattr(error, "strerror", None) or error)


def _promised(keep_alive: str) -> float | None:
    """Seconds for which a server says that it keeps an unused connection (`timeout=5`), less one for the way."""
    found = re.search(r"\btimeout\s*=\s*(\d{1,6})\b", keep_alive)
    return None if found is None else float(found[1]) - 1


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
    """The parts of an `http` or `https` URL without credentials; `Unusable` if it has no host or a port that is
    none.
    """
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
    lines = {
        "host": address.authority,
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "context-bench",
        **headers,
    }
    told = []
    for name, value in lines.items():
        if name in _FRAMING:
            continue
        if not _NAME.fullmatch(name) or _UNSENDABLE.search(value):
            raise Refused(
                f"The request cannot be sent: the header {name[:60]!r} holds characters that HTTP cannot carry, such "
                "as a line break"
            )
        told.append(f"{name}: {value}\r\n")
    return f"POST {address.target} HTTP/1.1\r\n{''.join(told)}".encode("utf-8", "replace")


#: Seconds for which an unused connection is kept; servers and what stands before them end such connections, too, often
#: after a minute.
KEPT = 15.0
#: From so many seconds on it is looked at before it is used: the other side may have ended it while this program was
#: busy.
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
        """The pool is open, and the running loop is its own."""
        return not self.closed and asyncio.get_running_loop() is self._loop

    async def post(self, address: Address, head: bytes, body: bytes, seconds: float | None = None) -> Response:
        """Send a request once; its reply, with status and headers. `seconds`: until the reply must be whole, else
        `TimeoutError`.

        `head` is what `head_of` made. Raises `Trouble`; a caller that is cancelled or done early loses the connection,
        not the next reply.
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
    """Poll an unused connection. True if nothing has come, not even its end, that the loop did not report yet."""
    plain = connection.transport.get_extra_info("socket") if connection.transport is not None else None
    if plain is None or plain.fileno() < 0:
        return False
    if not hasattr(select, "poll"):  # Windows, whose select takes any number
        return not select.select([plain], [], [], 0)[0]
    poll = select.poll()
    poll.register(plain, select.POLLIN)
    return not poll.poll(0)
