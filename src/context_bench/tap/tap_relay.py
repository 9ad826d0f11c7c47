"""Exchanges of a tap relayed to the provider: requests without their marks, and WebSockets.

A WebSocket is opened at the upstream as the client asked, then messages go on as they come, both ways. If the upstream
does not open one, the client gets 426 at once, which sends clients such as Codex back to plain requests. Replies about
the client's key or pace (401, 407, 429) are passed on as they are. Messages are read as requests and answers: each
`response.create` is a request, and the events until its end are its answer. Answers come in the order of the requests,
for each `stream_id` if there are several.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import aiohttp
from aiohttp import WSMsgType, hdrs, web

from context_bench.core.keys import TooLarge
from context_bench.core.machine import Clock
from context_bench.llm.relay import (
    BadTarget,
    ClientClosed,
    Outgoing,
    Passage,
    Relay,
    RelayFailure,
    Untouched,
    UpstreamFailed,
    UpstreamReset,
    answer_with,
    end_to_end,
    handshake_of,
    one_spelling,
    raw_headers,
    reason,
)
from context_bench.tap.exchange import Exchange, Headers, Steering, by_body, by_head, unmarked_target, without_marks
from context_bench.tap.untouched import BaselineReplies, gathered
from context_bench.wire.apis.shared import as_str, load_body

#: Requests of one WebSocket that may wait for an answer; of more, the longest waiting is recorded as never answered.
MOST_WAITING = 64
_ASKS_OR_ENDS = (
    "response.create",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
)
_ENDS = frozenset({*_ASKS_OR_ENDS[1:], "error"})
_STREAM = [("content-type", "text/event-stream")]
_JSON = [("content-type", "application/json")]
#: The largest message that is relayed; a larger one ends the WebSocket with code 1009, as RFC 6455 has it.
MESSAGE_LIMIT = 64 * 1024 * 1024
#: How long the upstream may take to open a WebSocket before it counts as refused.
PATIENCE = 10.0
_log = logging.getLogger("context_bench.tap")
_PASSED_ON = frozenset({401, 407, 429})
_PASSED_HEADERS = (hdrs.RETRY_AFTER, hdrs.WWW_AUTHENTICATE, hdrs.PROXY_AUTHENTICATE)
_OWN = "sec-websocket-"  # these headers are between two hops
_CLOSING_SECONDS, _BRIEFLY = 2.0, 0.2
_GONE = 1001
_AT_ONCE = 1024 * 1024


class _UntouchedSocket(Untouched, web.WebSocketResponse):
    """A WebSocket with the upstream's headers, and those that this hop must send."""


@dataclass(frozen=True, slots=True)
class Socket:
    """A WebSocket that is open on both sides. `headers`: those of the client that are about its requests."""

    client: web.WebSocketResponse
    upstream: aiohttp.ClientWebSocketResponse
    headers: Headers


def tap_error(what: object, kind: str, status: int, **more: Any) -> web.Response:
    """An error of the tap's own in the form of the providers."""
    error = {"message": f"context-bench tap: {what}", "type": kind, **more}
    return web.json_response({"error": error}, status=status)


class TapRelay:
    """Relays the exchanges of a tap to one upstream, and fills in what was seen. Opened and closed by its owner, on one
    event loop.
    """

    def __init__(
        self, upstream: str, *, key: str | None, clock: Clock, replies: BaselineReplies, steering: Steering | None
    ) -> None:
        self._relay, self.replies, self.steering = Relay(upstream), replies, steering
        self._key, self.now = key, clock.monotonic
        self.open, self.close = self._relay.open, self._relay.close
        self.stopping = False

    async def relay(
        self, request: web.BaseRequest, exchange: Exchange, before_end: Callable[[], Awaitable[None]]
    ) -> web.StreamResponse:
        """Do one exchange. `before_end` is awaited before the last piece of its answer goes on, where that is to wait
        for the record.

        Raises `CancelledError` when the client went away.
        """
        try:
            return await self._relay.relay(request, _Seen(self, request, exchange, before_end))
        except asyncio.CancelledError:
            exchange.error = exchange.error or self.cancel_reason
            raise

    @property
    def cancel_reason(self) -> str:
        """The reason for which an exchange was cancelled."""
        return "the tap was stopped" if self.stopping else "the client went away"

    def outward(self, exchange: Exchange) -> tuple[str, Headers]:
        """The target that a request goes to, and its headers as they go on."""
        key = self._key if exchange.match.ours else None
        return unmarked_target(exchange.target, key), without_marks(
            end_to_end(exchange.headers, {"host", "expect"}), key
        )

    async def open_socket(self, request: web.BaseRequest, exchange: Exchange) -> Socket | web.StreamResponse:
        """Open the WebSocket that a client asks for, at the upstream and then to the client; or the answer that there
        is none.
        """
        try:
            check_handshake(request, protocols_of(exchange.headers))
            upstream = await self._upgrade(exchange)
        except (UpstreamFailed, BadTarget) as failed:
            exchange.status, exchange.error = failed.status, str(failed)
            refusal = tap_error(failed, "no_websocket", failed.status, code=failed.status)
            if isinstance(failed, UpgradeRefused):
                refusal.headers.extend(failed.headers)
            refusal.force_close()
            return refusal
        except asyncio.CancelledError:
            exchange.error = self.cancel_reason
            raise
        opened = handshake_of(upstream)
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
        onward = by_head(self.steering, exchange, bodiless=True)
        assert onward is not None, "a handshake has no body to steer by"
        headers = onward.headers(headers)
        packed = any(
            name.lower() == "sec-websocket-extensions" and "permessage-deflate" in value for name, value in headers
        )
        try:
            return await open_upstream(
                self._relay.session,
                self._relay.url_of(target, onward.around),
                one_spelling(without_handshake(headers)),
                protocols=protocols_of(headers),
                packed=packed,
                proxy=None if onward.around else self._relay.outward_proxy,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(502, f"upstream {self._relay.base} cannot be reached ({reason(error)})") from None


class _Seen(Passage):
    """One exchange as it passes the tap."""

    def __init__(
        self, relay: TapRelay, request: web.BaseRequest, exchange: Exchange, before_end: Callable[[], Awaitable[None]]
    ) -> None:
        self._relay, self._request, self._exchange, self._before_end = relay, request, exchange, before_end
        self.holds_the_end, self.minds_the_end = exchange.kept is not None, True

    async def outgoing(self) -> Outgoing | web.StreamResponse:
        exchange, steering = self._exchange, self._relay.steering
        target, headers = self._relay.outward(exchange)
        onward, body = by_head(steering, exchange), await self._body()
        if (reply := await self._relay.replies.answering(exchange)) is not None:
            return await answer_with(self._request, self, reply.status, reply.headers, reply.pieces)
        if onward is None:
            body, onward = await by_body(steering, exchange, body)
        return Outgoing(self._request.method, target, onward.headers(headers), body, onward.around)

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
            return self._pieces() if self._exchange.pairing is None else await gathered(self._pieces(), self._exchange)
        data = await request.content.read()
        self._exchange.body.add(self._relay.now(), data)
        return data

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await self._request.content.readany():
            self._exchange.body.add(self._relay.now(), piece)
            yield piece

    def answered(self, status: int, headers: Headers) -> None:
        self._exchange.status, self._exchange.reply_headers = status, headers

    def piece(self, data: bytes, *, last: bool) -> None:
        if self._exchange.finished:  # it is being read, or its record is written
            return
        self._exchange.reply.add(self._relay.now(), data)
        self._exchange.ending = last

    def whole(self) -> None:
        self._exchange.answered = self._relay.now()

    async def before_end(self) -> None:
        await self._before_end()

    def failed(self, failure: RelayFailure) -> web.Response | None:
        exchange = self._exchange
        if isinstance(failure, UpstreamReset | ClientClosed):
            exchange.error = "the client went away" if isinstance(failure, ClientClosed) else str(failure)
            return None
        exchange.status, exchange.error = failure.status, str(failure)
        kind = "bad_target" if isinstance(failure, BadTarget) else "upstream_unreachable"
        return tap_error(failure, kind, failure.status, code=failure.status)


class Talk:
    """Finds the requests and answers of one WebSocket among its messages.

    It takes every message of the client before it goes on, every message of the upstream after. `begin` makes
    an exchange of a request, `leave` takes it once it is over. `keep`: waits until an exchange that is over is kept,
    where its end waits for that.
    """

    def __init__(
        self,
        begin: Callable[[bytes], Exchange],
        leave: Callable[[Exchange], None],
        clock: Clock,
        keep: Callable[[Exchange], Awaitable[None]] | None = None,
    ) -> None:
        self._begin, self._leave, self._clock, self._keep = begin, leave, clock, keep
        self._last: Exchange | None = None
        self._waiting: deque[tuple[str, Exchange]] = deque()

    def asked(self, text: str) -> None:
        """Take a message of the client."""
        message = _object(text)
        if message is None or message.get("type") != "response.create":
            return
        if len(self._waiting) >= MOST_WAITING:
            self._end(
                self._waiting[0], f"not answered: {MOST_WAITING} later requests of this WebSocket were waiting too"
            )
        self._waiting.append((_stream_id(message), self._begin(text.encode("utf-8", "surrogatepass"))))

    def answered(self, text: str) -> None:
        """Take a message of the upstream."""
        event = _object(text) if self._waiting else None
        asked = self._request_of(event) if event is not None else None
        if event is None or asked is None:
            return
        exchange = asked[1]
        _take(exchange, text.encode("utf-8", "surrogatepass"), event, self._clock.monotonic())
        if as_str(event.get("type")) in _ENDS:
            exchange.ending = True
            self._end(asked)
            self._last = exchange

    def ends(self, text: str) -> bool:
        """True if a message may end an answer that waits for its record. Looks at bytes only."""
        return any(exchange.kept is not None for _, exchange in self._waiting) and any(
            f'"{kind}"' in text for kind in _ENDS
        )

    async def kept(self) -> None:
        """Wait until the answer that was ended last is kept."""
        last, self._last = self._last, None
        if last is not None and self._keep is not None:
            await self._keep(last)

    def over(self, why: str) -> None:
        """Nothing more will be said: what has no whole answer yet ends here."""
        while self._waiting:
            self._end(self._waiting[0], why)

    def _request_of(self, event: Mapping[str, Any]) -> tuple[str, Exchange] | None:
        stream = _stream_id(event)
        alone = self._waiting[0] if len(self._waiting) == 1 else None
        return next((asked for asked in self._waiting if asked[0] == stream), alone)

    def _end(self, asked: tuple[str, Exchange], why: str | None = None) -> None:
        self._waiting.remove(asked)
        asked[1].error = asked[1].error or why
        self._leave(asked[1])


def _take(exchange: Exchange, raw: bytes, event: Mapping[str, Any], at: float) -> None:
    """Keep an event as the stream of server-sent events would have brought it; a refusal as the reply that HTTP would
    have brought.
    """
    status = event.get("status")
    if event.get("type") == "error" and not exchange.reply.size and isinstance(status, int) and 400 <= status <= 599:
        exchange.status, exchange.reply_headers = status, _JSON
        exchange.reply.add(at, raw)
        return
    exchange.status, exchange.reply_headers = 200, _STREAM
    exchange.reply.add(at, b"data: " + raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n")


def _object(text: str) -> dict[str, Any] | None:
    try:
        message = load_body(text)
    except TooLarge:  # its exchange is recorded as one that was not read
        return {"type": next((kind for kind in _ASKS_OR_ENDS if f'"{kind}"' in text), None)}
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _stream_id(message: Mapping[str, Any]) -> str:
    return as_str(message.get("stream_id")) or ""


class UpgradeRefused(UpstreamFailed):
    """The upstream opens no WebSocket; the client gets `status` and `headers`."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(status, message)
        self.headers = headers


def is_upgrade(request: web.BaseRequest) -> bool:
    """True if a client asks for a WebSocket."""
    headers = request.headers
    asked = "upgrade" in (word.strip().lower() for word in headers.get(hdrs.CONNECTION, "").split(","))
    return request.method == hdrs.METH_GET and asked and headers.get(hdrs.UPGRADE, "").strip().lower() == "websocket"


def check_handshake(request: web.BaseRequest, protocols: Sequence[str]) -> None:
    """Raise `UpgradeRefused` for a client that asks in a way that cannot be granted: nobody behind need hear of it."""
    if not web.WebSocketResponse(protocols=protocols).can_prepare(request):
        raise UpgradeRefused(400, "this is no valid request for a WebSocket (RFC 6455: version 13, a key of 16 bytes)")


def without_handshake(headers: Headers) -> Headers:
    """The headers without those that only open a WebSocket."""
    return [(name, value) for name, value in headers if not name.lower().startswith(_OWN)]


def protocols_of(headers: Headers) -> list[str]:
    """The subprotocols that a client offers."""
    found = (value for name, value in headers if name.lower() == "sec-websocket-protocol")
    return [word.strip() for value in found for word in value.split(",") if word.strip()]


async def open_upstream(
    session: aiohttp.ClientSession, url: Any, headers: Any, *, protocols: Sequence[str], packed: bool, proxy: str | None
) -> aiohttp.ClientWebSocketResponse:
    """The WebSocket at the upstream. `packed`: offer to pack messages.

    Raises `UpgradeRefused`, and the errors of a request that cannot connect.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            return await session.ws_connect(
                url,
                headers=headers,
                protocols=protocols,
                compress=15 if packed else 0,
                proxy=proxy,
                max_msg_size=MESSAGE_LIMIT,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSING_SECONDS),
            )
    except aiohttp.WSServerHandshakeError as error:
        _refuse(error)
    except aiohttp.ServerDisconnectedError:
        raise UpgradeRefused(426, "the upstream closed the connection instead of opening a WebSocket") from None
    except TimeoutError:
        raise UpgradeRefused(426, f"the upstream did not open a WebSocket within {PATIENCE:.0f} s") from None


def _refuse(error: aiohttp.WSServerHandshakeError) -> NoReturn:
    given: Mapping[str, str] = error.headers or {}
    headers = {str(name): given[name] for name in _PASSED_HEADERS if name in given}
    if error.status in _PASSED_ON:
        raise UpgradeRefused(error.status, f"the upstream refuses the WebSocket with {error.status}", headers) from None
    raise UpgradeRefused(
        426, f"the upstream opens no WebSocket (it answered {error.status}); send plain requests", headers
    ) from None


@dataclass(slots=True)
class SideEnd:
    """The end of one side of a WebSocket: the code and reason to tell the other side, and what it was in words."""

    code: int
    reason: bytes
    why: str


_Receiving = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
_Hear = Callable[[str], None]


async def carry(client: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse, hearing: Talk | None) -> str:
    """Carry messages both ways until one side ends it, and say how it ended."""
    ways = [
        asyncio.create_task(_carry(client, upstream, "the client", before=hearing.asked if hearing else None)),
        asyncio.create_task(_carry(upstream, client, "the upstream", hearing=hearing)),
    ]
    patience = _BRIEFLY
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        patience = _CLOSING_SECONDS
    finally:  # also when the client's connection is gone: it may have said before that it closes, and with which code
        over = [way for way in ways if way.done()]
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        end = over[0].result() if over else SideEnd(_GONE, b"", "the client went away")
        await _close(upstream.close(code=end.code, message=end.reason), patience)
    await _close(client.close(code=end.code, message=end.reason), patience)
    return end.why


async def _carry(
    source: _Receiving, target: _Receiving, name: str, before: _Hear | None = None, hearing: Talk | None = None
) -> SideEnd:
    while True:
        message = await source.receive()
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return _end_of(source, message, name)
        text = message.data if message.type == WSMsgType.TEXT else None
        if before is not None and text is not None:
            _record(before, text)
        after = hearing.answered if hearing is not None and text is not None else None
        if hearing is not None and after is not None and hearing.ends(text or ""):
            _record(after, text or "")
            after = None
            await hearing.kept()
        try:
            await (target.send_str(message.data) if text is not None else target.send_bytes(message.data))
        except (aiohttp.ClientError, OSError):
            return SideEnd(_GONE, b"", "the connection broke")
        if after is not None:
            _record(after, text or "")


def _record(hear: _Hear, text: str) -> None:
    try:
        hear(text)
    except Exception as error:  # what is said goes on whatever becomes of its record
        _log.error("a message of a WebSocket could not be recorded: %s: %s", type(error).__name__, error)


def _end_of(source: _Receiving, message: aiohttp.WSMessage, name: str) -> SideEnd:
    if message.type == WSMsgType.CLOSE:
        reason = (message.extra or "").encode()[:123]
        code = message.data if isinstance(message.data, int) and _sendable(message.data) else 1000
        return SideEnd(code, reason, f"{name} closed the WebSocket ({message.data or 'no code'})")
    if message.type == WSMsgType.ERROR:
        fault = source.exception()
        code = int(getattr(fault, "code", None) or _GONE)
        return SideEnd(
            code,
            b"",
            f"{name} broke the WebSocket's rules or its limit of {MESSAGE_LIMIT // 2**20} MiB a message (code {code})",
        )
    return SideEnd(_GONE, b"", f"{name} went away")


def _sendable(code: int) -> bool:
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


async def _close(closing: Awaitable[Any], patience: float) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(patience):
            await closing
