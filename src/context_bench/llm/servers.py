"""Real HTTP servers around a responder: the model end of every offline run, test and demonstration.

`ModelServer` speaks OpenAI chat completions, OpenAI Responses, Anthropic messages and `count_tokens`, embeddings and
models, on loopback, and remembers what it received so that tests can count independently of everybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import logging
import os
import socket
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

from aiohttp import web

from context_bench.core.addresses import EXPECTED, fault_of, listening_port, refusal, shown
from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.llm.responders import SERVER_LOG, Delivery, Echo, ResponderError, Staged, listen, origin
from context_bench.wire.apis import parse_request, render_reply, render_stream, wire_of
from context_bench.wire.apis.shared import CREATED, Reply, as_list, dump, load_body
from context_bench.wire.request import WireRequest, count_request

__all__ = [
    "Delivery",
    "ModelServer",
    "Received",
    "Responder",
    "ResponderError",
    "Staged",
    "raise_descriptor_limit",
    "upstream_of",
]

_BODY_LIMIT = 128 * 2**20


class Responder(Protocol):
    """Something that answers requests. It may return `Staged` to misbehave on purpose and raise `ResponderError` to
    refuse.

    Optional: `async models() -> list[str]`, `async embed(texts) -> list[list[float]]`, `async aclose()`.
    """

    name: str

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply | Staged:
        """The answer to one request; header names are in lower case."""


@dataclass
class Received:
    """One request as it reached the server. `headers` have lower-case names and include keys: keep them out of
    reports.
    """

    method: str
    path: str
    wire: str
    headers: dict[str, str] = field(repr=False)
    raw: bytes = field(repr=False)
    at: float = 0.0  # monotonic seconds

    @cached_property
    def body(self) -> Any:
        """The JSON body, `None` if it is not JSON, or of too many values to be read."""
        try:
            return load_body(self.raw, _BODY_LIMIT)
        except ValueError:
            return None

    @cached_property
    def request(self) -> WireRequest:
        """The body in neutral form."""
        return parse_request(self.wire, self.body if isinstance(self.body, Mapping) else {})

    @property
    def text(self) -> str:
        """All text of all messages."""
        return "\n".join(message.text for message in self.request.messages)


class ModelServer:
    """A model endpoint on loopback; `async with ModelServer(Echo()) as server: server.url`.

    `api_key`: when given, requests without it get 401. `requests`: the last `keep` requests (at most `keep_bytes` of
    bodies); `seen` counts all of them, `in_flight` and `most_in_flight` those not yet answered.
    """

    def __init__(
        self,
        responder: Responder,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        *,
        keep: int = 20_000,
        keep_bytes: int = 256 * 2**20,
    ) -> None:
        self.responder, self.host, self.port = responder, host, listening_port(port, "the port")
        self._key, self._keep, self._keep_bytes = api_key, keep, keep_bytes
        self.requests: deque[Received] = deque()
        self.seen = self.in_flight = self.most_in_flight = 0
        self._held = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`; once started."""
        return origin(self.host, self.port)

    async def start(self) -> ModelServer:
        """Bind and serve; `BadInput` if the port is taken."""
        raise_descriptor_limit()
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2, logger=SERVER_LOG)
        self.port = await listen(runner, self.host, self.port, backlog=4096)
        self._runner = runner
        return self

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
        close = getattr(self.responder, "aclose", None)
        if close is not None:
            closed = close()
            if inspect.isawaitable(closed):
                await closed

    async def __aenter__(self) -> ModelServer:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        wire = wire_of(request.method, request.path)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self._admit(request)
            if request.method in ("GET", "HEAD") and request.path.rstrip("/") in ("/health", "/healthz"):
                return _json({"status": "ok", "responder": self.responder.name})
            received = self._remember(request, wire, await request.read())
            return await self._route(request, received)
        except ResponderError as error:
            return _json(error.body(wire), error.status, error.headers)
        except web.HTTPRequestEntityTooLarge:
            return _json(ResponderError(413, f"The request is larger than {_BODY_LIMIT} bytes").body(wire), 413)
        finally:
            self.in_flight -= 1

    def _admit(self, request: web.Request) -> None:
        """No web page and, if there is a key, only its holders."""
        refused = refusal(request.headers, (self.host,))
        if refused:
            raise ResponderError(403, refused)
        if self._key is None:
            return
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        for given in (bearer, request.headers.get("x-api-key", "")):
            if hmac.compare_digest(given.encode(), self._key.encode()):
                return
        raise ResponderError(401, "Incorrect API key provided", code="invalid_api_key")

    def _remember(self, request: web.Request, wire: str, raw: bytes) -> Received:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.method, request.path, wire, headers, raw, time.perf_counter())
        self.seen += 1
        self.requests.append(received)
        self._held += len(raw)
        while len(self.requests) > max(1, self._keep) or (self._held > self._keep_bytes and len(self.requests) > 1):
            self._held -= len(self.requests.popleft().raw)
        return received

    async def _route(self, request: web.Request, received: Received) -> web.StreamResponse:
        if received.wire == "models":
            return _json(await self._models(received))
        if received.wire == "other":
            raise ResponderError(404, f"Unknown request URL: {request.method} {request.path}", code="unknown_url")
        if not isinstance(received.body, Mapping):
            raise ResponderError(400, "The body is not a JSON object")
        if received.wire == "embeddings":
            return _json(await self._embeddings(received))
        if received.wire == "anthropic-count":
            counted = count_request(received.request, counter_for(received.request.model))
            return _json({"input_tokens": counted.total})
        if not received.request.messages:
            raise ResponderError(400, "The request has no messages")
        answer = await self._ask(received)
        staged = answer if isinstance(answer, Staged) else Staged(answer, Delivery())
        return await _deliver(request, received, staged)

    async def _ask(self, received: Received) -> Reply | Staged:
        try:
            return await self.responder.reply(received.request, received.headers)
        except ResponderError:
            raise
        except (
            Exception
        ) as error:  # a fault of the responder is an answer too: the client must not be left with a bare 500
            logging.getLogger(__name__).exception("%s failed on %s", self.responder.name, received.path)
            raise ResponderError(500, f"{type(error).__name__}: {error}") from error

    async def _models(self, received: Received) -> dict[str, Any]:
        offered = getattr(self.responder, "models", None)
        names: list[str] = list(await offered()) if offered else [self.responder.name]
        if "anthropic-version" in received.headers:
            entries: list[dict[str, Any]] = [{"type": "model", "id": name, "display_name": name} for name in names]
            listed: dict[str, Any] = {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}
        else:
            entries = [
                {"id": name, "object": "model", "created": CREATED, "owned_by": "context-bench"} for name in names
            ]
            listed = {"object": "list", "data": entries}
        wanted = received.path.partition("/models/")[2].rstrip("/")
        if not wanted:
            return listed
        found = next((entry for entry in entries if entry["id"] == wanted), None)
        if found is None:
            raise ResponderError(404, f"The model {wanted!r} does not exist", code="model_not_found")
        return found

    async def _embeddings(self, received: Received) -> dict[str, Any]:
        embed = getattr(self.responder, "embed", None)
        if embed is None:
            raise ResponderError(404, f"{self.responder.name} offers no embeddings")
        texts = [part.text for message in received.request.messages for part in message.parts]
        if not texts or any(text is None for text in texts):
            raise ResponderError(400, "'input' must be a text or a list of texts")
        vectors = await embed([cast("str", text) for text in texts])
        tokens = count_request(received.request, counter_for(received.request.model)).total
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(as_list(vectors))
            ],
            "model": received.request.model or self.responder.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=dump(body), status=status, content_type="application/json", headers=dict(headers or {}))


async def _deliver(request: web.Request, received: Received, staged: Staged) -> web.StreamResponse:
    delivery = staged.delivery
    if delivery.delay:
        await _wait(delivery.delay)
    if delivery.disconnect == "before-headers":
        return _cut(request, delivery)
    streamed = received.request.stream and delivery.body is None
    chunks = list(_packed(_chunks(received, staged, streamed), delivery.coding))
    response = web.StreamResponse(status=delivery.status, headers=delivery.headers)
    if "content-type" not in response.headers:
        response.content_type = delivery.content_type or ("text/event-stream" if streamed else "application/json")
    if delivery.coding is not None:
        response.headers["Content-Encoding"] = delivery.coding
    total = sum(map(len, chunks))
    if streamed:
        response.headers["Cache-Control"] = "no-cache"
    else:
        response.content_length = total if delivery.content_length is None else delivery.content_length
    await response.prepare(request)
    stop = total // 2 if delivery.disconnect else total
    sent = 0
    with contextlib.suppress(ConnectionResetError):  # whoever asked went away, which is no fault of ours
        for chunk in chunks:
            if sent and delivery.chunk_delay:
                await _wait(delivery.chunk_delay)
            await response.write(chunk[: stop - sent])
            sent += len(chunk)
            if sent >= stop:
                break
    if delivery.disconnect or (delivery.content_length or 0) > total:
        return _cut(request, delivery, response)
    with contextlib.suppress(ConnectionResetError):
        await response.write_eof()
    return response


def _chunks(received: Received, staged: Staged, streamed: bool) -> Iterator[bytes]:
    delivery, wire, parsed = staged.delivery, received.wire, received.request
    if delivery.body is not None:
        whole: list[bytes] = [delivery.body]
    elif streamed:
        whole = _events(wire, staged, parsed)
    else:
        whole = [dump(render_reply(wire, staged.reply, parsed))]
    if delivery.chunk_bytes is None:
        yield from whole
        return
    joined = b"".join(whole)
    for start in range(0, len(joined), max(1, delivery.chunk_bytes)):
        yield joined[start : start + max(1, delivery.chunk_bytes)]


def _packed(chunks: Iterator[bytes], coding: str | None) -> Iterator[bytes]:
    """The chunks in a content coding, the end of the packed body with the last of them."""
    if coding is None:
        yield from chunks
        return
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    held = b""
    for chunk in chunks:
        if held:
            yield held
        held = packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield held + packer.flush()


def _events(wire: str, staged: Staged, request: WireRequest) -> list[bytes]:
    delivery = staged.delivery
    rendered = render_stream(wire, staged.reply, request, delivery.pieces)
    events = list(rendered) if delivery.events is None else list(delivery.events)
    if not delivery.done:
        events = events[:-1]
    if delivery.stream_error is not None:
        half = len(events) // 2
        events = [*events[:half], delivery.stream_error.event(wire, half)]
    if delivery.comments:
        events = [b": keep-alive\n\n" + event for event in events]
    return (
        [event.replace(b"\n", delivery.line_end.encode()) for event in events] if delivery.line_end != "\n" else events
    )


async def _wait(seconds: float) -> None:
    if seconds == float("inf"):
        await asyncio.Event().wait()
    await asyncio.sleep(seconds)


def _cut(request: web.Request, delivery: Delivery, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the connection now, orderly (FIN) or with a TCP reset."""
    transport = request.transport
    if transport is not None:
        if delivery.reset:
            sock = transport.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()
    return response or web.Response()


def raise_descriptor_limit(wanted: int = 65_536) -> int:
    """Raise this process's soft limit of open files as far as allowed; returns it. 0 where the system has no such
    limit.
    """
    try:
        import resource
    except ImportError:
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if 0 <= soft < goal:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            return goal
    return soft


def upstream_of(text: str) -> Responder | str:
    """Upstream that `--upstream` names: `echo`, `scripted:FILE`, `embedded` → a responder; a URL → the URL without its
    trailing slash.

    `embedded:keep`: as many instances as there are cores (at most 4), each of which does not read again what it was
    asked about last.
    """
    name, _, rest = text.partition(":")
    if text == "echo":
        return Echo()
    if name == "scripted" and rest:
        from context_bench.llm.scripted import Scripted

        return Scripted(rest)
    if text in ("embedded", "embedded:keep"):
        from context_bench.llm.embedded import Embedded

        return cast("Responder", Embedded(keep=True, instances=min(4, os.cpu_count() or 1)) if rest else Embedded())
    if (fault := fault_of(text.strip())) is not None:
        fault = f" ({fault})" if "://" in text else ""
        raise BadInput(
            f"{shown(text)!r} is no upstream{fault}: give a URL ({EXPECTED}), echo, embedded, or scripted:FILE"
        )
    return text.strip().rstrip("/")
