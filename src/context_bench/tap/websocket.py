"""WebSockets through the tap: opened at the upstream as the client asked, then messages go on as they come, both ways.

If the upstream does not open one, the client gets 426 at once, which sends clients such as Codex back to plain
requests. Replies about the client's key or pace (401, 407, 429) are passed on as they are. Messages are read as
requests and answers: each `response.create` is a request, and the events until its end are its answer. Answers come in
the order of the requests, for each lane (`stream_id`) if there are several.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import aiohttp
from aiohttp import WSMsgType, hdrs, web

from context_bench.core.clock import Clock
from context_bench.core.jsontext import TooLarge
from context_bench.tap.forwarded import Exchange
from context_bench.tap.matching import Headers
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


class Talk:
    """Finds the requests and answers of one WebSocket among its messages.

    It is told of every message of the client before it goes on, of every message of the upstream after. `begin` makes
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
        """The client says something."""
        said = _object(text)
        if said is None or said.get("type") != "response.create":
            return
        if len(self._waiting) >= MOST_WAITING:
            self._end(
                self._waiting[0], f"not answered: {MOST_WAITING} later requests of this WebSocket were waiting too"
            )
        self._waiting.append((_lane(said), self._begin(text.encode("utf-8", "surrogatepass"))))

    def answered(self, text: str) -> None:
        """The upstream has said something."""
        event = _object(text) if self._waiting else None
        found = self._whose(event) if event is not None else None
        if event is None or found is None:
            return
        _take(found[1], text.encode("utf-8", "surrogatepass"), event, self._clock.monotonic())
        if as_str(event.get("type")) in _ENDS:
            found[1].ending = True
            self._end(found)
            self._last = found[1]

    def ends(self, text: str) -> bool:
        """True if a message may end an answer that waits for its record. Looks at bytes only."""
        return any(each.kept is not None for _, each in self._waiting) and any(f'"{kind}"' in text for kind in _ENDS)

    async def kept(self) -> None:
        """Wait until the answer that was ended last is kept."""
        last, self._last = self._last, None
        if last is not None and self._keep is not None:
            await self._keep(last)

    def over(self, why: str) -> None:
        """Nothing more will be said: what has no whole answer yet ends here."""
        while self._waiting:
            self._end(self._waiting[0], why)

    def _whose(self, event: Mapping[str, Any]) -> tuple[str, Exchange] | None:
        lane = _lane(event)
        return next(
            (each for each in self._waiting if each[0] == lane), self._waiting[0] if len(self._waiting) == 1 else None
        )

    def _end(self, found: tuple[str, Exchange], why: str | None = None) -> None:
        self._waiting.remove(found)
        found[1].error = found[1].error or why
        self._leave(found[1])


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
        said = load_body(text)
    except TooLarge:  # its exchange is recorded as one that was not read
        return {"type": next((kind for kind in _ASKS_OR_ENDS if f'"{kind}"' in text), None)}
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _lane(said: Mapping[str, Any]) -> str:
    return as_str(said.get("stream_id")) or ""


#: The largest message that is relayed; a larger one ends the WebSocket with code 1009, as RFC 6455 has it.
MESSAGE_LIMIT = 64 * 1024 * 1024
#: How long the upstream may take to open a WebSocket before it counts as refused.
PATIENCE = 10.0
_log = logging.getLogger("context_bench.tap")
_PASSED_ON = frozenset({401, 407, 429})
_TOLD_ALONG = (hdrs.RETRY_AFTER, hdrs.WWW_AUTHENTICATE, hdrs.PROXY_AUTHENTICATE)
_OWN = "sec-websocket-"  # these headers are between two hops
_CLOSING_SECONDS, _AT_ONCE = 2.0, 0.2
_GONE = 1001


class UpgradeRefused(Exception):
    """The upstream opens no WebSocket; `status` is what the client is told, with `headers`."""

    def __init__(self, status: int, message: str, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        super().__init__(message)


def is_upgrade(request: web.BaseRequest) -> bool:
    """True if a client asks for a WebSocket."""
    headers = request.headers
    asked = "upgrade" in (word.strip().lower() for word in headers.get(hdrs.CONNECTION, "").split(","))
    return request.method == hdrs.METH_GET and asked and headers.get(hdrs.UPGRADE, "").strip().lower() == "websocket"


def check_handshake(request: web.BaseRequest, protocols: Sequence[str]) -> None:
    """Raise `UpgradeRefused` for a client that asks in a way that cannot be granted: nobody behind need hear of it."""
    if not web.WebSocketResponse(protocols=protocols).can_prepare(request):
        raise UpgradeRefused(
            400, "this is no valid request for a WebSocket (RFC 6455: version 13, a key of 16 bytes)", {}
        )


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
        raise UpgradeRefused(426, "the upstream closed the connection instead of opening a WebSocket", {}) from None
    except TimeoutError:
        raise UpgradeRefused(426, f"the upstream did not open a WebSocket within {PATIENCE:.0f} s", {}) from None


def _refuse(error: aiohttp.WSServerHandshakeError) -> NoReturn:
    given: Mapping[str, str] = error.headers or {}
    told = {str(name): given[name] for name in _TOLD_ALONG if name in given}
    if error.status in _PASSED_ON:
        raise UpgradeRefused(error.status, f"the upstream refuses the WebSocket with {error.status}", told) from None
    raise UpgradeRefused(
        426, f"the upstream opens no WebSocket (it answered {error.status}); send plain requests", told
    ) from None


@dataclass(slots=True)
class Ended:
    """The end of one side of a WebSocket: the code and reason to tell the other side, and what it was in words."""

    code: int
    reason: bytes
    why: str


_Receiving = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
_Hear = Callable[[str], None]


class Hearing(Protocol):
    """Hears what is said over a WebSocket."""

    def asked(self, text: str) -> None:
        """A message of the client, before the upstream has it."""

    def answered(self, text: str) -> None:
        """A message of the upstream; after the client has it, but for those that `ends` says yes to."""

    def ends(self, text: str) -> bool:
        """True if a message of the upstream waits for `kept` before it goes on."""

    async def kept(self) -> None:
        """Wait until what the last such message ended is kept."""


async def carry(
    client: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse, hearing: Hearing | None
) -> str:
    """Carry messages both ways until one side ends it, and say how it ended."""
    ways = [
        asyncio.create_task(_carry(client, upstream, "the client", before=hearing.asked if hearing else None)),
        asyncio.create_task(_carry(upstream, client, "the upstream", hearing=hearing)),
    ]
    patience = _AT_ONCE
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        patience = _CLOSING_SECONDS
    finally:  # also when the client's connection is gone: it may have said before that it closes, and with which code
        over = [way for way in ways if way.done()]
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        ended = over[0].result() if over else Ended(_GONE, b"", "the client went away")
        await _close(upstream.close(code=ended.code, message=ended.reason), patience)
    await _close(client.close(code=ended.code, message=ended.reason), patience)
    return ended.why


async def _carry(
    source: _Receiving, target: _Receiving, name: str, before: _Hear | None = None, hearing: Hearing | None = None
) -> Ended:
    while True:
        message = await source.receive()
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return _ended(source, message, name)
        text = message.data if message.type == WSMsgType.TEXT else None
        if before is not None and text is not None:
            _tell(before, text)
        after = hearing.answered if hearing is not None and text is not None else None
        if hearing is not None and after is not None and hearing.ends(text or ""):
            _tell(after, text or "")
            after = None
            await hearing.kept()
        try:
            await (target.send_str(message.data) if text is not None else target.send_bytes(message.data))
        except (aiohttp.ClientError, OSError):
            return Ended(_GONE, b"", "the connection broke")
        if after is not None:
            _tell(after, text or "")


def _tell(hear: _Hear, text: str) -> None:
    try:
        hear(text)
    except Exception as error:  # what is said goes on whatever becomes of its record
        _log.error("a message of a WebSocket could not be recorded: %s: %s", type(error).__name__, error)


def _ended(source: _Receiving, message: aiohttp.WSMessage, name: str) -> Ended:
    if message.type == WSMsgType.CLOSE:
        reason = (message.extra or "").encode()[:123]
        code = message.data if isinstance(message.data, int) and _sendable(message.data) else 1000
        return Ended(code, reason, f"{name} closed the WebSocket ({message.data or 'no code'})")
    if message.type == WSMsgType.ERROR:
        fault = source.exception()
        code = int(getattr(fault, "code", None) or _GONE)
        return Ended(
            code,
            b"",
            f"{name} broke the WebSocket's rules or its limit of {MESSAGE_LIMIT // 2**20} MiB a message (code {code})",
        )
    return Ended(_GONE, b"", f"{name} went away")


def _sendable(code: int) -> bool:
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


async def _close(closing: Awaitable[Any], patience: float) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(patience):
            await closing
