"""The relay: a request comes in, goes on to the upstream as it came, and the answer goes back as it comes.

It never retries, follows a redirect, adds a header or changes a byte of a body. What it must touch: hop-by-hop headers, `Host`, our marks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from context_bench.core.clock import Clock
from context_bench.core.errors import BadInput
from context_bench.core.loopback import host_of, is_loopback, page_refusal
from context_bench.llm.connector import Connector
from context_bench.llm.transport import why
from context_bench.tap.matching import Headers, unmarked_target, without_marks
from context_bench.tap.records import Exchange
from context_bench.tap.upgrade import MESSAGE_LIMIT, Refused, carry, check_handshake, open_upstream, protocols_of, without_handshake

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
#: Names under which a container reaches its host; let in only when the tap listens beyond loopback.
_CONTAINER_NAMES = frozenset({"host.docker.internal", "host.containers.internal", "gateway.docker.internal"})
_AT_ONCE = 1024 * 1024
#: Shorter than what common servers keep idle connections for (5 s), so that we never write into one that is just being closed.
_IDLE_SECONDS = 3.0


class _Untouched(web.StreamResponse):
    """A response with the upstream's headers only: what the library would add (date, server, type) is taken out again."""

    async def _prepare_headers(self) -> None:
        came = {name for name in (hdrs.CONTENT_TYPE, hdrs.DATE, hdrs.SERVER) if name in self.headers}
        await super()._prepare_headers()
        for name in (hdrs.CONTENT_TYPE, hdrs.DATE, hdrs.SERVER):
            if name not in came:
                self.headers.popall(name, None)


class _UntouchedSocket(_Untouched, web.WebSocketResponse):
    """The same for a WebSocket: what the upstream said when it opened it, and what this hop must say."""


@dataclass(frozen=True, slots=True)
class Socket:
    """A WebSocket that is open on both sides. `headers`: those of the client that are about its requests."""

    client: web.WebSocketResponse
    upstream: aiohttp.ClientWebSocketResponse
    headers: Headers

    async def carry(self, asked: Callable[[str], None], answered: Callable[[str], None]) -> str:
        """Carry messages until it ends; see `upgrade.carry`."""
        return await carry(self.client, self.upstream, asked, answered)


class UpstreamFailed(Exception):
    """The upstream could not be reached; `status` is what the client is told."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class HungUp(Exception):
    """The upstream closed or broke the connection before or within its answer: the same is done to the client."""


class ClientGone(Exception):
    """The client closed the connection before it had the whole answer."""


class Relay:
    """Relays single exchanges to one upstream over kept-open connections. Opened and closed by its owner, on one event loop."""

    def __init__(self, upstream: str, *, key: str | None, clock: Clock) -> None:
        self._base = check_upstream(upstream)
        self._outward_proxy = _outward_proxy(self._base)
        self._key = key
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.stopping = False

    async def open(self) -> None:
        """Make the connection pool."""
        self._session = aiohttp.ClientSession(
            connector=Connector(keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
            auto_decompress=False,
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
            max_line_size=65_536,
            max_field_size=65_536,
            max_headers=1_000,
        )
        self._session._retry_connection = False  # the library would send a GET twice when a connection breaks

    async def close(self) -> None:
        """Close all connections to the upstream."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def relay(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        """Do one exchange and fill in what was seen. Raises `CancelledError` when the client went away."""
        try:
            upstream = await self._ask(request, exchange)
            try:
                return await self._answer(request, exchange, upstream)
            finally:
                upstream.release()  # kept if the answer is whole, else closed
        except UpstreamFailed as failed:
            exchange.status, exchange.error = failed.status, str(failed)
            error = {"error": {"message": f"context-bench tap: {failed}", "type": "upstream_unreachable", "code": failed.status}}
            return web.json_response(error, status=failed.status)
        except HungUp as broken:
            exchange.error = str(broken)
            return _hang_up(request)
        except ClientGone:
            exchange.error = "the client went away"
            return _hang_up(request)
        except asyncio.CancelledError:
            exchange.error = "the tap was stopped" if self.stopping else "the client went away"
            raise

    async def open_socket(self, request: web.BaseRequest, exchange: Exchange) -> Socket | web.StreamResponse:
        """Open the WebSocket that a client asks for, at the upstream and then to the client; or the answer that there is none."""
        try:
            check_handshake(request, protocols_of(exchange.headers))
            upstream = await self._upgrade(exchange)
        except (Refused, UpstreamFailed) as failed:
            exchange.status, exchange.error = failed.status, str(failed)
            error = {"error": {"message": f"context-bench tap: {failed}", "type": "no_websocket", "code": failed.status}}
            refusal = web.json_response(error, status=failed.status, headers=failed.headers if isinstance(failed, Refused) else None)
            refusal.force_close()
            return refusal
        except asyncio.CancelledError:
            exchange.error = "the tap was stopped" if self.stopping else "the client went away"
            raise
        opened = upstream._response
        raw = [(name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in opened.raw_headers]
        exchange.status, exchange.reply_headers = opened.status, raw
        chosen = [upstream.protocol] if upstream.protocol else []
        client = _UntouchedSocket(protocols=chosen, compress=False, max_msg_size=MESSAGE_LIMIT, timeout=2.0)
        client.headers.extend(without_handshake(end_to_end(raw)))
        try:
            await client.prepare(request)
        except BaseException as error:
            exchange.error = f"the client went away ({type(error).__name__})"
            await upstream.close()
            raise
        return Socket(client, upstream, without_handshake(end_to_end(exchange.headers)))

    async def _upgrade(self, exchange: Exchange) -> aiohttp.ClientWebSocketResponse:
        assert self._session is not None, "the relay is not open"
        url, headers = self._outward(exchange)
        asked = without_handshake(headers)
        packed = any(name.lower() == "sec-websocket-extensions" and "permessage-deflate" in value for name, value in headers)
        try:
            return await open_upstream(
                self._session, url, _one_spelling(asked), protocols=protocols_of(headers), packed=packed, proxy=self._outward_proxy
            )
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(502, f"upstream {self._base} cannot be reached ({_reason(error)})") from None

    def _outward(self, exchange: Exchange) -> tuple[URL, Headers]:
        """Where a request goes, and its headers as they go on."""
        key = self._key if exchange.match.ours else None
        url = join(self._base, unmarked_target(exchange.target, key))
        return URL(url, encoded=True), without_marks(end_to_end(exchange.headers, {"host", "expect"}), key)

    async def _ask(self, request: web.BaseRequest, exchange: Exchange) -> aiohttp.ClientResponse:
        assert self._session is not None, "the relay is not open"
        url, headers = self._outward(exchange)
        try:
            return await self._session.request(
                request.method,
                url,
                headers=_one_spelling(headers),
                data=await self._body(request, exchange),
                allow_redirects=False,
                proxy=self._outward_proxy,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamFailed(502, f"upstream {self._base} cannot be reached ({_reason(error)})") from None
        except aiohttp.ClientResponseError as error:
            raise UpstreamFailed(502, f"upstream {self._base} did not answer in HTTP ({error.message[:200]})") from None
        except (aiohttp.ClientError, OSError) as error:
            raise HungUp(f"the upstream closed the connection without an answer ({type(error).__name__})") from None

    async def _body(self, request: web.BaseRequest, exchange: Exchange) -> bytes | AsyncIterator[bytes] | None:
        if not request.body_exists:
            return None
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # a promise of this hop; the upstream sees the body at once
            request.writer.output_size = 0
        length = request.content_length
        if length is None or length > _AT_ONCE:
            return self._pieces(request, exchange)
        data = await request.content.read()
        exchange.body.add(self._clock.monotonic(), data)
        return data

    async def _pieces(self, request: web.BaseRequest, exchange: Exchange) -> AsyncIterator[bytes]:
        while piece := await request.content.readany():
            exchange.body.add(self._clock.monotonic(), piece)
            yield piece

    async def _answer(self, request: web.BaseRequest, exchange: Exchange, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        raw = [(name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in upstream.raw_headers]
        exchange.status, exchange.reply_headers = upstream.status, raw
        response = _Untouched(status=upstream.status, reason=upstream.reason or "", headers=CIMultiDict(end_to_end(raw)))
        response._send_headers_immediately = not upstream.content.is_eof()  # a reply that is all here leaves in one piece
        await _to_client(response.prepare(request))
        while piece := await _from_upstream(upstream):
            exchange.reply.add(self._clock.monotonic(), piece)
            exchange.ending = upstream.content.is_eof()
            await _to_client(response.write(piece))
        await _to_client(response.write_eof())
        return response


async def _from_upstream(upstream: aiohttp.ClientResponse) -> bytes:
    try:
        return await upstream.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise HungUp(f"the upstream broke off within its answer ({type(error).__name__})") from None


async def _to_client(writing: Any) -> None:
    try:
        await writing
    except (aiohttp.ClientError, OSError):
        raise ClientGone from None


def _hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """End the client's connection where the upstream ended ours; the returned response cannot be written any more."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)


def end_to_end(headers: Headers, also: Collection[str] = ()) -> Headers:
    """The headers without those that are between two hops only, and without `also` (lower case)."""
    named = {word.strip().lower() for key, value in headers if key.lower() == "connection" for word in value.split(",")}
    dropped = _HOP_BY_HOP | named | set(also)
    return [(key, value) for key, value in headers if key.lower() not in dropped]


def _one_spelling(headers: Headers) -> CIMultiDict[str]:
    """The headers with repeated names spelt like the first: the client would lose one of `X-A` and `x-a`."""
    spelling: dict[str, str] = {}
    return CIMultiDict((spelling.setdefault(name.lower(), name), value) for name, value in headers)


def _reason(error: Exception) -> str:
    return why(error)[:300]


def _outward_proxy(base: str) -> str | None:
    """The proxy that the environment prescribes for the way out of this network; never for loopback."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def check_upstream(url: str) -> str:
    """The upstream's base URL without trailing slashes. Raises `BadInput` for what cannot be one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(f"upstream {url!r} is not a base URL; expected http(s)://HOST[:PORT][/PATH]")
    if parts.username or parts.password:
        raise BadInput("the upstream's URL holds a user name or password; give the key on its own (--upstream-key-env)")
    if parts.query or parts.fragment:
        raise BadInput("the upstream's URL holds a query or fragment; expected http(s)://HOST[:PORT][/PATH]")
    return url.strip().rstrip("/")


def join(base: str, target: str) -> str:
    """The URL to ask for a request target: path segments that end the base and begin the target are taken once.

    >>> join("http://h/v1", "/v1/chat/completions")
    'http://h/v1/chat/completions'
    """
    if not target.startswith("/"):  # absolute form, as sent to forward proxies, or `*`
        parts = urlsplit(target)
        target = f"/{parts.path.lstrip('/')}{'?' + parts.query if parts.query else ''}" if parts.netloc else "/"
    path, mark, query = target.partition("?")
    prefix = [segment for segment in urlsplit(base).path.split("/") if segment]
    asked = path.split("/")[1:]
    overlap = next((n for n in range(min(len(prefix), len(asked)), 0, -1) if prefix[-n:] == asked[:n]), 0)
    return "/".join([base, *asked[overlap:]]) + mark + query


class Gate:
    """Who may use the tap at all. A web page must not: not by a name of its own that points here, and not from another origin."""

    def __init__(self, host: str, names: Collection[str] = ()) -> None:
        self._far = not is_loopback(host)
        self._names = {name.lower() for name in names} | (
            {host.lower(), socket.gethostname().lower(), *_CONTAINER_NAMES} if self._far else set()
        )

    def refusal(self, request: web.BaseRequest) -> str | None:
        """Why the request is not let in, or `None`."""
        given = request.headers.get(hdrs.HOST)  # absent in HTTP/1.0, which no browser speaks
        host = "" if given is None else host_of(f"//{given}")
        if given is not None and not self._knows(host):
            return f"Host {host[:100]!r} is not a name of this tap (loopback names only, unless it was started with another --host)"
        return page_refusal(request.headers)

    def _knows(self, host: str) -> bool:
        if is_loopback(host) or host.lower() in self._names:
            return True
        with contextlib.suppress(ValueError):
            return self._far and bool(ipaddress.ip_address(host))  # a rebound name is never an address
        return False
