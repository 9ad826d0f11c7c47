"""One connection, and one reply at a time on it."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import TYPE_CHECKING

import httptools

from context_bench.llm.transport.errors import UNENDED, Broken, NotHttp, why
from context_bench.llm.transport.response import Response

if TYPE_CHECKING:
    from context_bench.llm.transport.pool import Transport

#: Bytes of status line, headers, trailers and chunk extensions together, and number of headers, beyond which nothing is read any more.
LARGEST_HEAD, MOST_HEADERS = 256 * 2**10, 256


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
        self._ended = self.transport is None or ended_by_peer(self.transport)
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
            told = " ".join(_told(error).split()) if error is not None else ""
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


def ended_by_peer(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side ended what it sends, asked when asyncio says that there is no more.

    Anybody on the way can end a connection. Over TLS only its peer can say that it has (close_notify), and asyncio does not tell the two
    apart; a read does, which finds an end or nothing yet.
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


def _told(error: Exception) -> str:
    return why(error) if isinstance(error, ssl.SSLError) else str(getattr(error, "strerror", None) or error)


def _promised(keep_alive: str) -> float | None:
    """Seconds for which a server says that it keeps an unused connection (`timeout=5`), less one for the way."""
    found = re.search(r"\btimeout\s*=\s*(\d{1,6})\b", keep_alive)
    return None if found is None else float(found[1]) - 1
