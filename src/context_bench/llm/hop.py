"""A plain HTTP hop on loopback: what comes in goes on as it came, except where a function that is handed in changes or
answers it.

`serve` stands on it, and so do the misbehaving proxies that tests and the demonstration use.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from context_bench.core.addresses import listening_port, refusal
from context_bench.core.errors import BadInput
from context_bench.core.keys import load_object
from context_bench.llm.coding import decode
from context_bench.llm.relay import (
    LINE_LIMIT,
    MOST_HEADERS,
    BadTarget,
    ClientClosed,
    Outgoing,
    Passage,
    Relay,
    RelayFailure,
    end_to_end,
    raw_headers,
)
from context_bench.llm.responders import SERVER_LOG, ResponderError, listen, origin
from context_bench.wire.apis import wire_of
from context_bench.wire.apis.shared import dump

BODY_LIMIT = 128 * 2**20
#: Bytes of a body that are sent on at once; in between others are served.
_AT_ONCE = 256 * 1024
#: Headers that are of one connection, or that the next one works out anew.
_NOT_PASSED = frozenset({"host", "content-length", "expect"})


@dataclass(frozen=True)
class HopRequest:
    """One request on its way. `target` is path and query as received; `headers` are all but those of the connection
    itself. `reply_headers` are added to its reply.
    """

    method: str
    target: str
    headers: CIMultiDict[str] = field(repr=False)
    raw: bytes = field(repr=False)
    reply_headers: tuple[tuple[str, str], ...] = ()

    @property
    def wire(self) -> str:
        """As `wire.apis.wire_of` names it."""
        return wire_of(self.method, self.target)

    @property
    def plain(self) -> bytes:
        """The body, its content coding undone; `ValueError` if it is not what that says."""
        return decode(self.raw, self.headers.get("Content-Encoding", ""))

    @property
    def document(self) -> str:
        """The body as text, its content coding undone; `ValueError` if it is none."""
        return self.plain.decode("utf-8")

    @property
    def body(self) -> dict[str, Any] | None:
        """The JSON object in the body, or `None`."""
        try:
            return load_object(self.document)
        except ValueError:  # not what its content coding says, or no text
            return None

    def with_document(self, document: str) -> HopRequest:
        """The same request with another JSON text as its body (sent without content coding)."""
        return self.with_raw(document.encode("utf-8"))

    def with_body(self, body: dict[str, Any]) -> HopRequest:
        """The same request with another JSON object as its body."""
        return self.with_raw(dump(body))

    def with_headers(self, headers: CIMultiDict[str]) -> HopRequest:
        """The same request with other headers."""
        return replace(self, headers=headers)

    def with_reply_header(self, name: str, value: str) -> HopRequest:
        """The same request, whose reply gets one more header."""
        return replace(self, reply_headers=(*self.reply_headers, (name, value)))

    @property
    def outgoing(self) -> Outgoing:
        """The request as the relay sends it on."""
        headers = list(self.headers.items())
        if len(self.raw) <= _AT_ONCE:
            return Outgoing(self.method, self.target, headers, self.raw or None)
        return Outgoing(
            self.method, self.target, [*headers, ("Content-Length", str(len(self.raw)))], _in_pieces(self.raw)
        )

    def with_raw(self, raw: bytes) -> HopRequest:
        """The same request with other bytes as its body (sent without content coding)."""
        headers = self.headers.copy()
        headers.popall("Content-Encoding", None)
        return replace(self, headers=headers, raw=raw)


@dataclass
class HopAnswer:
    """An answer that needs no upstream: chunks of a body."""

    chunks: Iterable[bytes]
    status: int = 200
    content_type: str = "application/json"


Change = Callable[[HopRequest], Awaitable[HopRequest | HopAnswer]]


async def unchanged(request: HopRequest) -> HopRequest:
    """Lets every request through as it is."""
    return request


class Hop:
    """An HTTP server on loopback that passes requests on to `upstream` (with or without `/v1`) and replies back, each
    chunk as it comes.

    `change(request)` is asked first: it returns the request to send on, or an `HopAnswer`. `ResponderError` raised in
    it becomes an error in the provider's own form. Errors, redirects, encodings and unknown routes are passed on
    untouched; if the upstream breaks off, so do we.
    """

    def __init__(self, upstream: str, change: Change = unchanged, *, port: int = 0, host: str = "127.0.0.1") -> None:
        self.relay = Relay(upstream, logins=True)
        self.host, self.port, self.change = host, listening_port(port, "the port"), change
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`; once started."""
        return origin(self.host, self.port)

    async def start(self) -> None:
        """Bind and serve; `BadInput` if the port is taken."""
        await self.relay.open()
        server = web.Server(
            self._handle,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=MOST_HEADERS,
            logger=SERVER_LOG,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        try:
            self.port = await listen(self._runner, self.host, self.port, backlog=1024)
        except BadInput:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the port and all connections."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self.relay.close()

    async def fetch(self, request: HopRequest) -> tuple[int, bytes]:
        """Send a request upstream and read its whole reply: for proxies that make calls of their own."""
        return await self.relay.fetch(request.outgoing)

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            refused = refusal(incoming.headers, (self.host,))
            if refused:
                raise ResponderError(403, refused)
            return await self.relay.relay(incoming, _Hopping(self, incoming))
        except ResponderError as error:
            return _error_reply(incoming, error)


class _Hopping(Passage):
    """One exchange of a hop."""

    def __init__(self, hop: Hop, incoming: web.BaseRequest) -> None:
        self._hop, self._incoming = hop, incoming

    async def outgoing(self) -> Outgoing | web.StreamResponse:
        incoming = self._incoming
        self._hop.relay.url_of(incoming.raw_path)  # a bad target is refused before anything is asked
        headers = CIMultiDict(end_to_end(raw_headers(incoming), _NOT_PASSED))
        changed = await self._hop.change(
            HopRequest(incoming.method, incoming.raw_path, headers, await _whole(incoming))
        )
        if isinstance(changed, HopAnswer):
            return await _given(incoming, changed)
        self.reply_headers = changed.reply_headers
        return changed.outgoing

    def failed(self, failure: RelayFailure) -> web.Response | None:
        if isinstance(failure, ClientClosed):
            return None
        if isinstance(failure, BadTarget):
            return _error_reply(self._incoming, ResponderError(400, str(failure)))
        error = ResponderError(502, f"The upstream {self._hop.relay.base} gave no reply: {failure}")
        return _error_reply(self._incoming, error)


async def _in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _AT_ONCE):
        yield data[start : start + _AT_ONCE]


async def _whole(incoming: web.BaseRequest) -> bytes:
    """The request's body, at most `BODY_LIMIT` bytes."""
    body = io.BytesIO()  # gives its bytes away without a copy, for which all others would wait
    if (incoming.content_length or 0) <= BODY_LIMIT:
        while body.tell() <= BODY_LIMIT and (piece := await incoming.content.readany()):
            body.write(piece)
    if body.tell() > BODY_LIMIT or (incoming.content_length or 0) > BODY_LIMIT:
        raise ResponderError(413, f"The request is larger than {BODY_LIMIT} bytes")
    return body.getvalue()


def _error_reply(incoming: web.BaseRequest, error: ResponderError) -> web.Response:
    """An error in the provider's own form."""
    wire = wire_of(incoming.method, incoming.raw_path)
    return web.Response(body=dump(error.body(wire)), status=error.status, content_type="application/json")


async def _given(incoming: web.BaseRequest, answer: HopAnswer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    response.content_type = answer.content_type
    await response.prepare(incoming)
    for chunk in answer.chunks:
        await response.write(chunk)
    await response.write_eof()
    return response
