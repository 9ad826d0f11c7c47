"""Hooks of the tap in the relay: marks taken out of a request, the observer of an exchange, WebSockets, and the access
check.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

import aiohttp
from aiohttp import hdrs, web

from context_bench.core.addresses import host_of, is_loopback, page_refusal
from context_bench.core.clock import Clock
from context_bench.llm.relay import (
    BadTarget,
    ClientGone,
    HungUp,
    Outgoing,
    Passage,
    Relay,
    Untouched,
    UpstreamFailed,
    end_to_end,
    one_spelling,
    raw_headers,
    reason,
)
from context_bench.tap.forwarded import Exchange
from context_bench.tap.matching import Headers, unmarked_target, without_marks
from context_bench.tap.websocket import (
    MESSAGE_LIMIT,
    Hearing,
    UpgradeRefused,
    carry,
    check_handshake,
    open_upstream,
    protocols_of,
    without_handshake,
)

#: Names under which a container reaches its host; let in only when the tap listens beyond loopback.
_CONTAINER_NAMES = frozenset({"host.docker.internal", "host.containers.internal", "gateway.docker.internal"})
_AT_ONCE = 1024 * 1024


class _UntouchedSocket(Untouched, web.WebSocketResponse):
    """The same for a WebSocket: what the upstream said when it opened it, and what this hop must say."""


@dataclass(frozen=True, slots=True)
class Socket:
    """A WebSocket that is open on both sides. `headers`: those of the client that are about its requests."""

    client: web.WebSocketResponse
    upstream: aiohttp.ClientWebSocketResponse
    headers: Headers

    async def carry(self, hearing: Hearing | None) -> str:
        """Carry messages until it ends; see `upgrade.carry`."""
        return await carry(self.client, self.upstream, hearing)


class TapRelay:
    """Relays the exchanges of a tap to one upstream, and fills in what was seen. Opened and closed by its owner, on one
    event loop.
    """

    def __init__(self, upstream: str, *, key: str | None, clock: Clock) -> None:
        self._relay = Relay(upstream)
        self._key = key
        self._clock = clock
        self.open, self.close = self._relay.open, self._relay.close
        self.stopping = False

    async def relay(
        self, request: web.BaseRequest, exchange: Exchange, ended: Callable[[], Awaitable[None]]
    ) -> web.StreamResponse:
        """Do one exchange. `ended` is awaited before the last piece of its answer goes on, where that is to wait for
        the record.

        Raises `CancelledError` when the client went away.
        """
        try:
            return await self._relay.relay(request, _Seen(self, request, exchange, ended))
        except asyncio.CancelledError:
            exchange.error = exchange.error or self.gone
            raise

    @property
    def gone(self) -> str:
        """The reason for which an exchange was cancelled."""
        return "the tap was stopped" if self.stopping else "the client went away"

    def outward(self, exchange: Exchange) -> tuple[str, Headers]:
        """The target that a request goes to, and its headers as they go on."""
        key = self._key if exchange.match.ours else None
        return unmarked_target(exchange.target, key), without_marks(
            end_to_end(exchange.headers, {"host", "expect"}), key
        )

    def heard(self) -> float:
        """The time at which a piece came, in monotonic seconds."""
        return self._clock.monotonic()

    async def open_socket(self, request: web.BaseRequest, exchange: Exchange) -> Socket | web.StreamResponse:
        """Open the WebSocket that a client asks for, at the upstream and then to the client; or the answer that there
        is none.
        """
        try:
            check_handshake(request, protocols_of(exchange.headers))
            upstream = await self._upgrade(exchange)
        except (UpgradeRefused, UpstreamFailed, BadTarget) as failed:
            status = 400 if isinstance(failed, BadTarget) else failed.status
            exchange.status, exchange.error = status, str(failed)
            error = {"error": {"message": f"context-bench tap: {failed}", "type": "no_websocket", "code": status}}
            refusal = web.json_response(
                error, status=status, headers=failed.headers if isinstance(failed, UpgradeRefused) else None
            )
            refusal.force_close()
            return refusal
        except asyncio.CancelledError:
            exchange.error = self.gone
            raise
        opened = upstream._response
        raw = raw_headers(opened)
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
        target, headers = self.outward(exchange)
        asked = without_handshake(headers)
        packed = any(
            name.lower() == "sec-websocket-extensions" and "permessage-deflate" in value for name, value in headers
        )
        try:
            return await open_upstream(
                self._relay.session,
                self._relay.url_of(target),
                one_spelling(asked),
                protocols=protocols_of(headers),
                packed=packed,
                proxy=self._relay.outward_proxy,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(502, f"upstream {self._relay.base} cannot be reached ({reason(error)})") from None


class _Seen(Passage):
    """One exchange as it passes the tap."""

    def __init__(
        self, relay: TapRelay, request: web.BaseRequest, exchange: Exchange, ended: Callable[[], Awaitable[None]]
    ) -> None:
        self._relay, self._request, self._exchange, self._ended = relay, request, exchange, ended
        self.holds_the_end, self.minds_the_end = exchange.kept is not None, True

    async def outgoing(self) -> Outgoing:
        target, headers = self._relay.outward(self._exchange)
        return Outgoing(self._request.method, target, headers, await self._body())

    async def _body(self) -> bytes | AsyncIterator[bytes] | None:
        request = self._request
        if not request.body_exists:
            return None
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(
                b"HTTP/1.1 100 Continue\r\n\r\n"
            )  # a promise of this hop; the upstream sees the body at once
            request.writer.output_size = 0
        length = request.content_length
        if length is None or length > _AT_ONCE:
            return self._pieces()
        data = await request.content.read()
        self._exchange.body.add(self._relay.heard(), data)
        return data

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await self._request.content.readany():
            self._exchange.body.add(self._relay.heard(), piece)
            yield piece

    def answered(self, status: int, headers: Headers) -> None:
        self._exchange.status, self._exchange.reply_headers = status, headers

    def piece(self, data: bytes, *, last: bool) -> None:
        if self._exchange.ended:  # it is being read, or its record is written
            return
        self._exchange.reply.add(self._relay.heard(), data)
        self._exchange.ending = last

    def whole(self) -> None:
        self._exchange.answered = self._relay.heard()

    async def ended(self) -> None:
        await self._ended()

    def failed(self, trouble: UpstreamFailed | HungUp | ClientGone | BadTarget) -> web.Response | None:
        exchange = self._exchange
        if isinstance(trouble, HungUp | ClientGone):
            exchange.error = "the client went away" if isinstance(trouble, ClientGone) else str(trouble)
            return None
        status, kind = (
            (400, "bad_target") if isinstance(trouble, BadTarget) else (trouble.status, "upstream_unreachable")
        )
        exchange.status, exchange.error = status, str(trouble)
        error = {"error": {"message": f"context-bench tap: {trouble}", "type": kind, "code": status}}
        return web.json_response(error, status=status)


class AccessCheck:
    """The access check of the tap. A web page must not: not by a name of its own that points here, and not from another
    origin.
    """

    def __init__(self, host: str, names: Collection[str] = ()) -> None:
        self._far = not is_loopback(host)
        self._names = {name.lower() for name in names} | (
            {host.lower(), socket.gethostname().lower(), *_CONTAINER_NAMES} if self._far else set()
        )

    def refusal(self, request: web.BaseRequest) -> str | None:
        """The reason for which the request is refused, or `None`."""
        given = request.headers.get(hdrs.HOST)  # absent in HTTP/1.0, which no browser speaks
        host = "" if given is None else host_of(f"//{given}")
        if given is not None and not self._knows(host):
            return (
                f"Host {host[:100]!r} is not a name of this tap (loopback names only, unless it was started "
                "with another --host)"
            )
        return page_refusal(request.headers)

    def _knows(self, host: str) -> bool:
        if is_loopback(host) or host.lower() in self._names:
            return True
        with contextlib.suppress(ValueError):
            return self._far and bool(ipaddress.ip_address(host))  # a rebound name is never an address
        return False
