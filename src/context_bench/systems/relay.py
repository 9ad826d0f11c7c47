"""A plain HTTP hop: what comes in goes on as it came, except where a function that is handed in changes or answers it.

`serve` stands on it, and so do the misbehaving proxies that tests and the demonstration use.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from context_bench.core.errors import BadInput
from context_bench.core.loopback import refusal
from context_bench.llm.connector import Connector
from context_bench.llm.delivery import ResponderError
from context_bench.llm.transport import why
from context_bench.llm.wire import wire_of
from context_bench.llm.wires.shared import dump, load_json

BODY_LIMIT = 128 * 2**20
_LINE = 2**16  # longest header
_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}


@dataclass(frozen=True)
class Request:
    """One request on its way. `target` is path and query as received; `headers` are all but those of the connection itself."""

    method: str
    target: str
    headers: CIMultiDict[str] = field(repr=False)
    raw: bytes = field(repr=False)

    @property
    def wire(self) -> str:
        """As `llm.wire.wire_of` names it."""
        return wire_of(self.method, self.target)

    @property
    def document(self) -> str:
        """The body as text, its content coding undone; `ValueError` if it is none."""
        return unpacked(self.raw, self.headers.get("Content-Encoding", "")).decode("utf-8")

    @property
    def body(self) -> dict[str, Any] | None:
        """The JSON object in the body, or `None`."""
        try:
            found = load_json(self.document)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def with_document(self, document: str) -> Request:
        """The same request with another JSON text as its body (sent without content coding)."""
        return self._with_raw(document.encode("utf-8"))

    def with_body(self, body: dict[str, Any]) -> Request:
        """The same request with another JSON object as its body."""
        return self._with_raw(dump(body))

    def with_headers(self, headers: CIMultiDict[str]) -> Request:
        """The same request with other headers."""
        return replace(self, headers=headers)

    def _with_raw(self, raw: bytes) -> Request:
        headers = self.headers.copy()
        headers.popall("Content-Encoding", None)
        return replace(self, headers=headers, raw=raw)


@dataclass
class Answer:
    """An answer that needs no upstream: chunks of a body."""

    chunks: Iterable[bytes]
    status: int = 200
    content_type: str = "application/json"


Change = Callable[[Request], Awaitable[Request | Answer]]


async def unchanged(request: Request) -> Request:
    """Lets every request through as it is."""
    return request


class Relay:
    """An HTTP server on loopback that passes requests on to `upstream` (with or without `/v1`) and replies back, each chunk as it comes.

    `change(request)` is asked first: it returns the request to send on, or an `Answer`. `ResponderError` raised in it becomes an error in
    the provider's own form. Errors, redirects, encodings and unknown routes are passed on untouched; if the upstream breaks off, so do we.
    """

    def __init__(self, upstream: str, change: Change = unchanged, *, port: int = 0, host: str = "127.0.0.1") -> None:
        parts = urlsplit(upstream)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"upstream {upstream!r} is not a URL; expected http://HOST:PORT or https://HOST")
        self.upstream, self.host, self.port = upstream.rstrip("/"), host, port
        self.change = change
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`; once started."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def start(self) -> None:
        """Bind and serve; `BadInput` if the port is taken."""
        # Servers close idle connections after 5 s and more; one that closes as we write would cost a request.
        connector = Connector(keepalive_timeout=4.0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
            read_bufsize=2**18,
            max_line_size=_LINE,
            max_field_size=_LINE,
        )
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            shutdown_timeout=1.0,
            max_line_size=_LINE,
            max_field_size=_LINE,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        except OSError as error:
            await self.stop()
            raise BadInput(f"Cannot listen on {self.host}:{self.port} ({error.strerror or error}); choose another port") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and all connections."""
        runner, session = self._runner, self._session
        self._runner = self._session = None
        if runner is not None:
            await runner.cleanup()
        if session is not None:
            await session.close()

    async def fetch(self, request: Request) -> tuple[int, bytes]:
        """Send a request upstream and read its whole reply: for proxies that make calls of their own."""
        async with self._sent(request) as reply:
            return reply.status, await reply.read()

    def _sent(self, request: Request) -> Any:
        assert self._session is not None
        return self._session.request(
            request.method,
            URL(join(self.upstream, request.target), encoded=True),
            headers=request.headers,
            data=request.raw or None,
            allow_redirects=False,
        )

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        wire = wire_of(incoming.method, incoming.path)
        try:
            self._admit(incoming)
            changed = await self.change(Request(incoming.method, incoming.raw_path, passed_on(incoming.headers), await incoming.read()))
            if isinstance(changed, Answer):
                return await _give(incoming, changed)
            return await self._pass(incoming, changed)
        except ResponderError as error:
            return web.Response(body=dump(error.body(wire)), status=error.status, content_type="application/json")
        except web.HTTPRequestEntityTooLarge:
            refusal = ResponderError(413, f"The request is larger than {BODY_LIMIT} bytes")
            return web.Response(body=dump(refusal.body(wire)), status=413, content_type="application/json")

    def _admit(self, incoming: web.Request) -> None:
        refused = refusal(incoming.headers, (self.host,))
        if refused:
            raise ResponderError(403, refused)

    async def _pass(self, incoming: web.Request, request: Request) -> web.StreamResponse:
        begun: web.StreamResponse | None = None
        try:
            async with self._sent(request) as reply:
                response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=passed_on(reply.headers))
                if "Content-Length" in reply.headers:
                    response.content_length = int(reply.headers["Content-Length"])
                begun = response
                await response.prepare(incoming)
                async for chunk in reply.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as error:
            if begun is None:
                raise ResponderError(502, f"The upstream {_origin(self.upstream)} gave no reply: {why(error)}") from None
            if incoming.transport is not None:
                incoming.transport.abort()
            return begun


async def _give(incoming: web.Request, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    response.content_type = answer.content_type
    await response.prepare(incoming)
    for chunk in answer.chunks:
        await response.write(chunk)
    await response.write_eof()
    return response


def passed_on(headers: Any) -> CIMultiDict[str]:
    """Headers without those that belong to one connection, in order, with their spelling."""
    named = {name.strip().lower() for value in headers.getall("Connection", []) for name in value.split(",")}
    dropped = _HOP | named | {"host", "content-length", "expect"}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


def join(upstream: str, target: str) -> str:
    """The URL of `target` at `upstream`; a `/v1` at the end of one and the start of the other is one."""
    base = upstream.rstrip("/")
    if base.endswith("/v1") and (target == "/v1" or target.startswith(("/v1/", "/v1?"))):
        base = base[:-3]
    return base + target


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def unpacked(raw: bytes, coding: str) -> bytes:
    """A request's body with its content codings undone, at most `BODY_LIMIT` bytes; `ValueError` where that cannot be done."""
    for name in reversed([part.strip().lower() for part in coding.split(",")]):
        raw = _undone(raw, name)
        if len(raw) > BODY_LIMIT:
            raise ValueError("the decoded body is too large")
    return raw


def _undone(raw: bytes, name: str) -> bytes:
    if name in ("", "identity"):
        return raw
    try:
        if name in ("gzip", "x-gzip", "deflate"):
            return zlib.decompressobj(15 if name == "deflate" else 31).decompress(raw, BODY_LIMIT + 1)
        if name == "zstd":
            import zstandard

            return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw).read(BODY_LIMIT + 1)
        if name == "br":
            import brotli

            return bytes(brotli.Decompressor().process(raw, output_buffer_limit=BODY_LIMIT))
    except Exception as error:  # each library has an error class of its own
        raise ValueError(f"not {name}: {error}") from None
    raise ValueError(f"content coding {name[:20]!r} is not one we undo")
