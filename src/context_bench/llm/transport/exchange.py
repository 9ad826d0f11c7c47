"""One connection, and one reply at a time on it."""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING

import httptools

from context_bench.llm.transport.trouble import Broken, NotHttp

if TYPE_CHECKING:
    from context_bench.llm.transport.pool import Transport

#: Bytes of status line, headers, trailers and chunk extensions together, and number of headers, beyond which nothing is read any more.
LARGEST_HEAD, MOST_HEADERS = 256 * 2**10, 256
#: So much of a body waits for its reader; then the other side is kept waiting.
MOST_AHEAD = 2**20


class Response:
    """A reply on its way: `status` and `headers` (lower-case names) are there once `Transport.post` has returned it.

    Whoever has one reads it to its end or calls `close`, which also ends the connection of a reply that is not whole.
    """

    __slots__ = ("_connection", "_decoder", "_parts", "_trouble", "_waiter", "ahead", "done", "headers", "status", "timer")

    def __init__(self, connection: Connection) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self.done = False
        self.timer: asyncio.TimerHandle | None = None
        self._connection: Connection | None = connection
        self._parts: list[bytes] = []
        self.ahead = 0  # bytes that have arrived and wait to be read
        self._trouble: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: _Decoder | None = None

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
        """What has arrived of the body since the last call, at least a byte; empty at the body's end."""
        decoder = self._decoder
        if decoder is None:
            return await self._raw()
        while not (told := decoder.more()):
            raw = await self._raw()
            if not raw:
                decoder.finish()
                return b""
            decoder.feed(raw)
        return told

    async def read(self, limit: int) -> bytes:
        """The whole body, or its first `limit` bytes; then the connection is given up."""
        whole = await self.piece()
        if self.done and not self._parts and self._trouble is None and self._decoder is None and len(whole) <= limit:
            return whole
        parts, size = [whole], len(whole)
        while size < limit and (more := await self.piece()):
            parts.append(more)
            size += len(more)
        if size > limit or not self.done:
            self.close()
        return b"".join(parts)[:limit]

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
            self._decoder = _Decoder(coding)
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


class Connection(asyncio.BufferedProtocol):
    """A connection to one place. `origin`: which; `good_until`: when it is too old to be used again (the loop's time)."""

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
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.lost(self)
        response = self.response
        if response is not None and not response.done and error is None and self._open_ended and response.status:
            response.finish()
        elif response is not None:
            told = " ".join(str(getattr(error, "strerror", None) or error).split()) if error is not None else ""
            self._lose(Broken(told or f"the server ended the connection {'within' if response.status else 'before'} the reply"))
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
            self._open_ended = "content-length" not in told and not told.get("transfer-encoding", "").lower().endswith("chunked")
            self.response.head(status, told)

    def on_body(self, data: bytes) -> None:
        if self.response is not None:
            self.response.body(data)

    def on_message_complete(self) -> None:
        if self.response is not None and self.response.status:
            self._lasting = self._parser.should_keep_alive()
            self.response.finish()


def _promised(keep_alive: str) -> float | None:
    """Seconds for which a server says that it keeps an unused connection (`timeout=5`), less one for the way."""
    found = re.search(r"\btimeout\s*=\s*(\d{1,6})\b", keep_alive)
    return None if found is None else float(found[1]) - 1


class _Decoder:
    """Takes compression off that nobody asked for, a mebibyte at a time: a small body may be a very large one."""

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise NotHttp(f"Content-Encoding {coding[:40]!r} was not asked for")
        self._deflate = coding == "deflate"
        self._inflater: zlib._Decompress | None = None
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """More of the compressed bytes."""
        if self._inflater is None:  # `deflate` is sent with and without the frame that it should have
            self._inflater = zlib.decompressobj(-15 if self._deflate and data[0] & 0x0F != 8 else 47)
        self._rest += data

    def more(self) -> bytes:
        """More of the plain bytes; empty where more compressed ones are needed."""
        if self._inflater is None or not self._rest or self._inflater.eof:
            return b""
        try:
            told = self._inflater.decompress(self._rest, MOST_AHEAD)
        except zlib.error as error:
            raise NotHttp(f"a compressed body that cannot be read: {error}") from None
        self._rest = self._inflater.unconsumed_tail
        return told

    def finish(self) -> None:
        """All bytes have come; `Broken` if the compressed body is not whole."""
        if self._inflater is not None and not self._inflater.eof:
            raise Broken("the compressed body ended too early")
