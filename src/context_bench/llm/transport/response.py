"""A reply on its way, and the compression of its body."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from context_bench.core.keys import TooLarge
from context_bench.llm.coding import Decoder, Undecodable

if TYPE_CHECKING:
    from context_bench.llm.transport import Connection


class TransportError(Exception):
    """No whole reply; the text says why, in the words of the system or of the parser."""


class Unusable(TransportError):
    """A URL that cannot be called."""


class CannotConnect(TransportError):
    """No connection: nobody listens, the name is unknown, the way there is broken. Nothing was sent."""


class NotSecure(TransportError):
    """The other side could not prove who it is, or does not speak TLS. Nothing was sent."""


class NotHttp(TransportError):
    """Something came back that cannot be read as an HTTP reply."""


class Oversized(NotHttp):
    """More came back than is read; to ask again would bring as much."""


class Broken(TransportError):
    """The connection ended before the reply was whole; the request may have been worked on."""


#: A reply without a length over TLS whose connection ended and whose TLS did not.
UNENDED = (
    "the connection ended without an end of TLS (close_notify) in a reply that tells no length: it may have been cut"
)
_UNTRUSTED = (
    "nobody that this machine trusts vouches for its certificate ({said}); if the server is yours, set SSL_CERT_FILE "
    "to a file with the "
    "certificate of its authority (PEM)"
)
#: OpenSSL's number for what is wrong with a certificate → the sentence; those not here stand for themselves.
_CERTIFICATE = {
    2: _UNTRUSTED,
    9: "its certificate is not yet valid by this machine's clock ({said})",
    10: "its certificate has expired by this machine's clock ({said})",
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    26: "its certificate is not made for a server ({said})",
    62: "its certificate is for another name ({said})",
    64: "its certificate is for another address ({said})",
}
_NOT_TLS = "it does not speak TLS there ({said}); if it speaks plain HTTP, give its address as http://"
_TOO_OLD = "it speaks only versions of TLS that are older than 1.2 ({said})"
_HANDSHAKE = {
    **dict.fromkeys(
        ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"),
        _NOT_TLS,
    ),
    **dict.fromkeys(("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"), _TOO_OLD),
}


def why(error: BaseException) -> str:
    """Reason for a missing connection: a sentence for what TLS reports, else the system's words (asyncio's own repeat
    the address).

    Errors of aiohttp are opened for the one that they are about.
    """
    error = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return _CERTIFICATE.get(error.verify_code, "its certificate is refused ({said})").format(said=said)
    reason = str(error.reason or "")
    return _HANDSHAKE.get(reason, "TLS failed ({said})").format(
        said=reason.replace("_", " ").lower() or "no reason given"
    )


#: Seconds that a stream has for closing after its last event, and bytes that are read of what it sends instead.
_CLOSING_SECONDS, _MOST_AFTER = 0.1, 64 * 2**10
#: So much of a body waits for its reader; then the other side is kept waiting.
MOST_AHEAD = 2**20
#: Bytes to which a compressed body, a stream perhaps, may unpack.
LARGEST = 64 * 2**20
#: Bytes from which on a body is a large one, how many of these are read at once, and seconds after which is looked
#: again for room.
_LARGE, _AT_ONCE, _LOOKED = 2 * 2**20, 4, 0.02


class Response:
    """A reply on its way: `status` and `headers` (lower-case names) are there once `Transport.post` has returned it.

    Whoever has one reads it to its end or calls `close`, which also ends the connection of a reply that is not whole.
    """

    __slots__ = (
        "_connection",
        "_decoder",
        "_parts",
        "_plain",
        "_trouble",
        "_waiter",
        "ahead",
        "done",
        "headers",
        "status",
        "timer",
    )

    def __init__(self, connection: Connection) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self.done = False
        self.timer: asyncio.TimerHandle | None = None
        self._connection: Connection | None = connection
        self._parts: list[bytes] = []
        self.ahead = 0  # bytes that have arrived and wait to be read
        self._trouble: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: Decoder | None = None
        self._plain: Iterator[bytes] = iter(())

    @property
    def content_type(self) -> str:
        """The media type without its parameters, in lower case; empty if none was told."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def headed(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            if self._trouble is not None:
                raise self._trouble
            await self._news()

    async def piece(self) -> bytes:
        """Bytes of the body that arrived since the last call, at least one; empty at the body's end."""
        decoder = self._decoder
        if decoder is None:
            return await self._raw()
        while not (told := _next(self._plain)):
            raw = await self._raw()
            if not raw:
                if not decoder.whole:
                    raise Broken("the compressed body ended too early")
                return b""
            self._plain = decoder.pieces(raw)
        return told

    async def read(self, limit: int) -> bytes:
        """The whole body, or its first `limit` bytes; then the connection is given up."""
        whole = await self.piece()
        if self.done and not self._parts and self._trouble is None and self._decoder is None and len(whole) <= limit:
            return whole
        parts, size = [whole], len(whole)
        roomy = False
        try:
            while size < limit and (more := await self.piece()):
                parts.append(more)
                size += len(more)
                if self._decoder is not None:
                    await asyncio.sleep(0)  # a small body may unpack to many pieces; other requests are read meanwhile
                if size > _LARGE and not roomy:
                    roomy = await self._wait_for_slot()
        finally:
            if roomy:
                _large_read_slots().release()
        if size > limit or not self.done:
            self.close()
        return b"".join(parts)[:limit]

    async def take_leave(self, feed: Callable[[bytes], object]) -> None:
        """After the last event of a stream: see it close, so that the connection can be used again; nothing that
        happens now spoils the reply.

        What goes on sending, or does not close within a moment, goes to `feed` as far as it came; its connection is
        ended by the caller.
        """
        size = 0
        with suppress(TimeoutError, TransportError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                while size < _MOST_AFTER and (chunk := await self.piece()):
                    feed(chunk)
                    size += len(chunk)

    async def _wait_for_slot(self) -> bool:
        """Wait until fewer than so many large bodies are read at once, however many there are under way; no longer than
        the reply may.
        """
        room = _large_read_slots()
        while room.locked():
            if self._trouble is not None:
                raise self._trouble
            await asyncio.sleep(_LOOKED)
        return await room.acquire()

    def close(self) -> None:
        """Be done with it; a reply that is not whole costs the connection."""
        self._stop_timer()
        connection, self._connection = self._connection, None
        if not self.done and connection is not None:
            connection.abort()
        self.done = True

    async def _raw(self) -> bytes:
        while not self._parts:
            if self._trouble is not None:
                raise self._trouble
            if self.done:
                return b""
            await self._news()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        if self.ahead > MOST_AHEAD and self._connection is not None:
            self._connection.resume()
        self.ahead = 0
        return data

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # --- what the connection tells ---

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Status and headers are there."""
        self.status, self.headers = status, headers
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            self._decoder = _decoder(coding)
        self._wake()

    def body(self, data: bytes) -> None:
        """A piece of the body is there."""
        self._parts.append(data)
        self.ahead += len(data)
        if self.ahead > MOST_AHEAD and self._connection is not None:
            self._connection.pause()
        self._wake()

    def finish(self) -> None:
        """The body is whole."""
        self.done, self._connection = True, None
        self._stop_timer()
        self._wake()

    def fail(self, trouble: BaseException) -> None:
        """There will be no more. What is no HTTP spoils what came before it, too."""
        if isinstance(trouble, NotHttp):
            self._parts.clear()
        if self._trouble is None and (not self.done or isinstance(trouble, NotHttp)):
            self._trouble = trouble
        self._stop_timer()
        self._wake()


_slots_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _large_read_slots() -> asyncio.Semaphore:
    """Of the running loop."""
    return _slots_of_loops.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))


_ASKED_FOR = frozenset({"gzip", "x-gzip", "deflate"})


def _decoder(coding: str) -> Decoder:
    """Takes compression off that nobody asked for; a small body may be a very large one."""
    if coding not in _ASKED_FOR:
        raise NotHttp(f"Content-Encoding {coding[:40]!r} was not asked for")
    return Decoder(coding, LARGEST)


def _next(pieces: Iterator[bytes]) -> bytes:
    """The next plain bytes; empty where more compressed ones are needed."""
    try:
        return next((piece for piece in pieces if piece), b"")
    except TooLarge as error:
        raise Oversized(f"the compressed body is {error}") from None
    except Undecodable as error:
        raise NotHttp(f"a compressed body that cannot be read: {error}") from None
