"""The relay: a request goes on to one upstream as it came, and the answer goes back as it comes.

It never retries, follows a redirect, or changes a byte of a body, and adds no header of its own. What it must touch:
hop-by-hop headers and `Host`; what else goes on is the `Passage`'s to say. A stream that stays open after its
last event stays open for the client, too, until one of the two ends it: a relay that closed it would hide what the
upstream does. The tap, `serve` and the proxies of tests and demonstration stand on it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import urllib.request
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import hdrs, web
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from context_bench.core.addresses import base_url, is_loopback
from context_bench.core.errors import BadInput
from context_bench.llm.transport import closed_by_peer, why
from context_bench.llm.transport.response import UNENDED
from context_bench.wire.apis import EndOfStream

Headers = list[tuple[str, str]]

#: The longest line and header, and the most headers, that servers and clients of a relay take.
LINE_LIMIT, MOST_HEADERS = 65_536, 1_000

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
#: Shorter than what common servers keep idle connections for (5 s), so that we never write into one that is just being
#: closed.
_IDLE_SECONDS = 3.0
#: Seconds that a stream whose end is held back has for closing after its last event, and for the next piece of an event
#: that has begun.
_CLOSING_SECONDS, _EVENT_SECONDS = 0.02, 0.25
#: Bytes that are held back of a stream that goes on.
_MOST_HELD = 2**20
#: Bytes that are read of a connection at once.
_AT_ONCE = 2**16
#: Seconds after a full piece of a stream of events, in which others have their turn: no provider sends 60 MB a second.
_PAUSE = 0.001
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class RelayFailure(Exception):
    """An exchange that could not be relayed whole. `status`: of the answer to the client, where it can have one."""

    status = 502


class UpstreamFailed(RelayFailure):
    """The upstream could not be reached, or does not speak HTTP."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class UpstreamReset(RelayFailure):
    """The upstream closed or broke the connection before or within its answer."""


class ClientClosed(RelayFailure):
    """The client closed the connection before it had the whole answer."""


class BadTarget(RelayFailure):
    """A request target that names no resource of the upstream."""

    status = 400


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it goes on. `target`: path and query, or an absolute URL of which only these are used.

    `around`: the base URL of a server on this machine that it goes to instead of the relay's own upstream.
    """

    method: str
    target: str
    headers: Headers = field(repr=False)
    data: bytes | AsyncIterator[bytes] | None = field(default=None, repr=False)
    around: str | None = None


class Passage:
    """One exchange on its way through a relay. Subclasses say what goes on and look at what comes back."""

    #: The last piece of the answer waits for `before_end`.
    holds_the_end = False
    #: `whole` is called.
    minds_the_end = False
    #: Headers that the answer gets besides the upstream's.
    reply_headers: Sequence[tuple[str, str]] = ()

    async def outgoing(self) -> Outgoing | web.StreamResponse:
        """Request for the upstream, or an answer that needs none."""
        raise NotImplementedError

    def answered(self, status: int, headers: Headers) -> None:
        """The head of the answer has come, with all its headers."""

    def piece(self, data: bytes, *, last: bool) -> None:
        """A piece of the answer has come; it has not gone on yet. `last`: the upstream has said its last byte."""

    def whole(self) -> None:
        """The answer is whole: its last byte has come, or the event that ends a stream. What follows that may still
        come.
        """

    async def before_end(self) -> None:
        """All of the answer has come, and its last piece goes on when this returns."""

    def failed(self, failure: RelayFailure) -> web.Response | None:
        """The answer to the client in the place of the upstream's, where none of that was passed on; `None` hangs up on
        the client.
        """
        return None


# What follows down to `Relay` reaches into private parts of aiohttp, and is the only place that does.


class Connector(aiohttp.TCPConnector):
    """An aiohttp connector for as many connections as are asked for, which can tell the end of a reply over TLS from a
    cut.

    A reply without a length ends with its connection. Anybody on the way can end a connection; only the server can say
    over TLS that it has ended it (close_notify). Where it has not, reading the reply raises
    `aiohttp.ClientPayloadError`, as for every other cut reply.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(limit=0, **settings)
        self._factory = cast("partial[ResponseHandler]", partial(_Handler, loop=self._loop))


class _Handler(ResponseHandler):
    """Spoils the reply under way where the connection was ended and TLS was not."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        take_little(transport)

    def eof_received(self) -> None:
        payload, transport = self._payload, self.transport
        if payload is not None and not payload.is_eof() and transport is not None and not closed_by_peer(transport):
            payload.set_exception(aiohttp.ClientPayloadError(UNENDED))
        super().eof_received()


def handshake_of(socket: aiohttp.ClientWebSocketResponse) -> aiohttp.ClientResponse:
    """The upstream's reply that opened a WebSocket."""
    return socket._response


def take_little(transport: asyncio.BaseTransport | None) -> None:
    """Have less read at once than asyncio's 256 kB: other connections wait for each piece, and threads for each step
    of the loop.
    """
    if transport is not None:
        with contextlib.suppress(AttributeError):  # a loop of another make
            cast("Any", transport).max_size = _AT_ONCE


class Untouched(web.StreamResponse):
    """A response with the upstream's headers only: what the library would add (date, server, type) is taken out
    again.
    """

    async def _prepare_headers(self) -> None:
        came = {name for name in (hdrs.CONTENT_TYPE, hdrs.DATE, hdrs.SERVER) if name in self.headers}
        await super()._prepare_headers()
        for name in (hdrs.CONTENT_TYPE, hdrs.DATE, hdrs.SERVER):
            if name not in came:
                self.headers.popall(name, None)


class Relay:
    """Relays single exchanges to one upstream (with or without `/v1`) over kept-open connections. Opened and closed on
    one event loop.

    `logins`: the upstream's URL may hold a user name and password, which are sent with requests that bring no key;
    `base` is without them.
    """

    def __init__(self, upstream: str, *, logins: bool = False) -> None:
        self.base, self._login = _without_login(check_upstream(upstream, logins=logins))
        self.outward_proxy = _outward_proxy(self.base)
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections, once open."""
        assert self._session is not None, "the relay is not open"
        return self._session

    async def open(self) -> None:
        """Make the connection pool."""
        self._session = aiohttp.ClientSession(
            connector=Connector(keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
            auto_decompress=False,
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=MOST_HEADERS,
        )
        self._session._retry_connection = False  # the library would send a GET twice when a connection breaks

    async def close(self) -> None:
        """Close all connections to the upstream."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def relay(self, incoming: web.BaseRequest, passage: Passage) -> web.StreamResponse:
        """Do one exchange. Raises `CancelledError` when the client went away."""
        take_little(incoming.transport)
        try:
            sent = await passage.outgoing()
            if isinstance(sent, web.StreamResponse):
                return sent
            upstream = await self._ask(sent)
            try:
                return await _answer(incoming, passage, upstream)
            finally:
                upstream.release()  # kept if the answer is whole, else closed
        except RelayFailure as failure:
            answer = passage.failed(failure)
            begun = incoming.writer.output_size > 0
            return answer if answer is not None and not begun else _hang_up(incoming)

    async def fetch(self, sent: Outgoing) -> tuple[int, bytes]:
        """Send a request and read its whole reply: for proxies that make calls of their own."""
        async with await self._ask(sent) as reply:
            return reply.status, await reply.read()

    def url_of(self, target: str, around: str | None = None) -> URL:
        """URL of a request target, at the upstream or at `around`. Raises `BadTarget`."""
        try:
            return URL(join(around or self.base, target), encoded=True)
        except ValueError:
            raise BadTarget(f"the request target {target[:100]!r} is no path, nor an http or https URL") from None

    async def _ask(self, sent: Outgoing) -> aiohttp.ClientResponse:
        headers = one_spelling(sent.headers)
        if self._login is not None and sent.around is None:
            headers.setdefault(hdrs.AUTHORIZATION, self._login)
        try:
            return await self.session.request(
                sent.method,
                self.url_of(sent.target, sent.around),
                headers=headers,
                data=sent.data,
                allow_redirects=False,
                proxy=None if sent.around else self.outward_proxy,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamFailed(502, f"upstream {self.base} cannot be reached ({reason(error)})") from None
        except aiohttp.ClientResponseError as error:
            raise UpstreamFailed(502, f"upstream {self.base} did not answer in HTTP ({error.message[:200]})") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamReset(
                f"the upstream closed the connection without an answer ({type(error).__name__})"
            ) from None


async def _answer(incoming: web.BaseRequest, passage: Passage, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    raw = raw_headers(upstream)
    passage.answered(upstream.status, raw)
    headers = CIMultiDict([*end_to_end(raw), *passage.reply_headers])
    response = Untouched(status=upstream.status, reason=upstream.reason or "", headers=headers)
    response._send_headers_immediately = not upstream.content.is_eof()  # a reply that is all here leaves in one piece
    await _to_client(response.prepare(incoming))
    end = _End(upstream, passage)
    while piece := await _from_upstream(upstream):
        passage.piece(piece, last=upstream.content.is_eof())
        if end.begins_in(piece) and passage.holds_the_end:
            break
        await _to_client(response.write(piece))
        if len(piece) >= _AT_ONCE and upstream.content_type == "text/event-stream":
            await asyncio.sleep(_PAUSE)
    if passage.holds_the_end:
        rest, broken = await _closing(upstream, passage, end) if piece else (b"", None)
        await passage.before_end()
        await _to_client(response.write(piece + rest))
        if broken is not None:
            raise broken
        while piece := await _from_upstream(upstream):  # it stays open after its end: the client's to close
            await _to_client(response.write(piece))
    await _to_client(response.write_eof())
    return response


async def answer_with(
    incoming: web.BaseRequest, passage: Passage, status: int, headers: Headers, pieces: Sequence[bytes]
) -> web.StreamResponse:
    """Answer with a reply that was kept, as if the upstream had just given it."""
    passage.answered(status, headers)
    response = Untouched(status=status, headers=CIMultiDict(headers))
    if not any("event-stream" in value for name, value in headers if name.lower() == "content-type"):
        response.content_length = sum(map(len, pieces))
    await _to_client(response.prepare(incoming))
    for place, piece in enumerate(pieces, 1):
        passage.piece(piece, last=place == len(pieces))
        if place == len(pieces):
            passage.whole()
            await passage.before_end()
        await _to_client(response.write(piece))
    await _to_client(response.write_eof())
    return response


class _End:
    """Finds the piece with which an answer can be whole for its client: the last bytes, or the event that ends a
    stream.

    Tells the passage, where it minds, once the answer is whole.
    """

    def __init__(self, upstream: aiohttp.ClientResponse, passage: Passage) -> None:
        self._content, self._passage = upstream.content, passage
        self.whole = False
        length = upstream.headers.get(hdrs.CONTENT_LENGTH, "")
        self._left = int(length) if length.isascii() and length.isdecimal() else -1
        streamed = upstream.content_type == "text/event-stream" and hdrs.CONTENT_ENCODING not in upstream.headers
        self._events = EndOfStream() if streamed else None

    def begins_in(self, piece: bytes) -> bool:
        """Has the end begun with this piece?"""
        if not self._passage.minds_the_end or self.whole:
            return self.whole
        self._left -= len(piece)
        last = self._content.is_eof() or self._left == 0
        begun = last or (self._events is not None and self._events.begins_in(piece))
        if last or (self._events is not None and self._events.whole):
            self.whole = True
            self._passage.whole()
        return begun


async def _closing(upstream: aiohttp.ClientResponse, passage: Passage, end: _End) -> tuple[bytes, UpstreamReset | None]:
    """The rest of the event that ends a stream, and what follows it until it closes; at most a moment, and so much. And
    how it broke.
    """
    rest = bytearray()
    broken = None
    try:
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(_CLOSING_SECONDS if end.whole else _EVENT_SECONDS) as limit:
            while len(rest) < _MOST_HELD and (piece := await _from_upstream(upstream)):
                passage.piece(piece, last=upstream.content.is_eof())
                rest += piece
                if not end.whole:
                    end.begins_in(piece)
                    limit.reschedule(clock() + (_CLOSING_SECONDS if end.whole else _EVENT_SECONDS))
    except TimeoutError:
        pass
    except UpstreamReset as error:
        broken = error
    return bytes(rest), broken


async def _from_upstream(upstream: aiohttp.ClientResponse) -> bytes:
    try:
        return await upstream.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamReset(f"the upstream broke off within its answer ({type(error).__name__})") from None


async def _to_client(writing: Any) -> None:
    try:
        await writing
    except (aiohttp.ClientError, OSError):
        raise ClientClosed from None


def _hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """End the client's connection where the upstream ended ours; the returned response cannot be written any more."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)


def raw_headers(message: web.BaseRequest | aiohttp.ClientResponse) -> Headers:
    """The headers as they came, in order."""
    return [(name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in message.raw_headers]


def end_to_end(headers: Headers, also: Collection[str] = ()) -> Headers:
    """The headers without those that are between two hops only, and without `also` (lower case)."""
    named = {word.strip().lower() for key, value in headers if key.lower() == "connection" for word in value.split(",")}
    dropped = _HOP_BY_HOP | named | set(also)
    return [(key, value) for key, value in headers if key.lower() not in dropped]


def one_spelling(headers: Headers) -> CIMultiDict[str]:
    """The headers with repeated names spelt like the first: the client would lose one of `X-A` and `x-a`."""
    spelling: dict[str, str] = {}
    return CIMultiDict((spelling.setdefault(name.lower(), name), value) for name, value in headers)


def reason(error: Exception) -> str:
    """Reason for a missing connection, in the system's words."""
    return why(error)[:300]


def _outward_proxy(base: str) -> str | None:
    """The proxy that the environment prescribes for the way out of this network; never for loopback."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _without_login(url: str) -> tuple[str, str | None]:
    """A base URL without user name and password, and these as the value of a header."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url, None
    named = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    login = f"Basic {base64.b64encode(named.encode()).decode()}"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), login


def check_upstream(url: str, where: str = "upstream", *, logins: bool = False) -> str:
    """The upstream's base URL without trailing slashes. Raises `BadInput` for what cannot be one."""
    url = base_url(url, where)
    parts = urlsplit(url)
    if not logins and (parts.username or parts.password):
        raise BadInput("the upstream's URL holds a user name or password; give the key on its own (--upstream-key-env)")
    if parts.query or parts.fragment:
        raise BadInput("the upstream's URL holds a query or fragment; expected http(s)://HOST[:PORT][/PATH]")
    return url.rstrip("/")


def join(base: str, target: str) -> str:
    """The URL to ask for a request target: path segments that end the base and begin the target are taken once.

    Of an absolute target, as sent to forward proxies, path and query count; `*` is the base itself. `ValueError` for
    other targets.

    >>> join("http://h/v1", "/v1/chat/completions")
    'http://h/v1/chat/completions'
    """
    if not target.startswith("/"):
        target = "/" if target == "*" else _path_of(target)
    path, mark, query = target.partition("?")
    prefix = [segment for segment in urlsplit(base).path.split("/") if segment]
    asked = path.split("/")[1:]
    overlap = next((n for n in range(min(len(prefix), len(asked)), 0, -1) if prefix[-n:] == asked[:n]), 0)
    return "/".join([base, *asked[overlap:]]) + mark + query


def _path_of(absolute: str) -> str:
    """Path and query of an absolute `http` or `https` URL, cut out as they stand."""
    scheme = _SCHEME.match(absolute)
    if scheme is None or scheme[0].lower() not in ("http://", "https://"):
        raise ValueError("neither a path nor an http or https URL")
    rest = absolute[scheme.end() :]
    begins = next((place for place, letter in enumerate(rest) if letter in "/?#"), len(rest))
    if not begins:
        raise ValueError("a URL without a host")
    path = rest[begins:].partition("#")[0]
    return path if path.startswith("/") else f"/{path}"
