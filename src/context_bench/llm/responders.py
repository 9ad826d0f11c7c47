"""Responders of our own model servers: a reply and its delivery, and a model that costs nothing.

`Delivery` hands a reply over with any fault that can be played; `ResponderError` is an error in the provider's own
form. `Echo` always says the same of the same prompt: the offline level 0. Also how our own HTTP servers listen, and
their log: a fault is one line, and a client's input that is not HTTP is none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json, hash_text
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.wire.apis.shared import Reply, sse
from context_bench.wire.request import WireRequest, count_request

_OPENAI_KINDS = {
    401: "invalid_request_error",
    403: "insufficient_permissions",
    404: "invalid_request_error",
    429: "rate_limit_exceeded",
}
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ResponderError(Exception):
    """A responder refuses: becomes an HTTP error in the form of the request's wire.

    `kind` is the provider's error type (default by status), `extra` more fields of the error object, `headers` more
    reply headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        code: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.code = status, message, kind, code
        self.extra, self.headers = dict(extra or {}), dict(headers or {})

    def body(self, wire: str) -> dict[str, Any]:
        """The error body as the provider of `wire` shapes it."""
        if wire.startswith("anthropic"):
            kind = (
                self.kind
                or _ANTHROPIC_KINDS.get(self.status)
                or ("invalid_request_error" if self.status < 500 else "api_error")
            )
            return {"type": "error", "error": {"type": kind, "message": self.message, **self.extra}}
        kind = (
            self.kind
            or _OPENAI_KINDS.get(self.status)
            or ("invalid_request_error" if self.status < 500 else "server_error")
        )
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code, **self.extra}}

    def event(self, wire: str, number: int = 0) -> bytes:
        """The same inside a stream, as its event `number`."""
        body = self.body(wire)
        if wire == "openai-responses":
            inner = body["error"]
            return sse(
                {
                    "type": "error",
                    "code": inner["code"] or inner["type"],
                    "message": inner["message"],
                    "param": None,
                    "sequence_number": number,
                },
                "error",
            )
        return sse(body, "error" if wire == "anthropic" else None)


@dataclass(slots=True)
class Delivery:
    """Everything about handing a reply over that is not the reply. Times in seconds.

    `delay`: before the first byte (`inf` = never). `chunk_delay`: between chunks. `pieces`: deltas per text of a
    stream. `chunk_bytes`: cut the body into chunks of so many bytes instead of one chunk per event. `disconnect`: close
    the connection before the headers, in the middle of the body, or of the stream (the same for a streamed reply);
    `reset`: with a TCP reset instead of an orderly end. `body` and `content_type` replace what is sent,
    `content_length` is a lie to tell about it. Only of streams: `done=False` leaves the end mark out, `stream_error`
    ends the stream with an error event in its middle, `line_end` replaces LF, `comments` puts a comment before every
    event, `events` stand in the place of the reply's own. `coding`: the body is packed so, each chunk readable as it
    comes.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    chunk_delay: float = 0.0
    pieces: int = 8
    chunk_bytes: int | None = None
    disconnect: Literal["before-headers", "mid-body", "mid-stream"] | None = None
    reset: bool = False
    body: bytes | None = None
    content_type: str | None = None
    content_length: int | None = None
    done: bool = True
    stream_error: ResponderError | None = None
    line_end: str = "\n"
    comments: bool = False
    events: list[bytes] | None = None
    coding: Literal["gzip", "deflate"] | None = None


@dataclass(slots=True)
class Staged:
    """A reply and how to deliver it; what a responder may return instead of a bare `Reply`."""

    reply: Reply
    delivery: Delivery


class _OneLine(logging.Logger):
    """The library behind the servers logs whole tracebacks, of every malformed request too."""

    def exception(self, msg: object, *args: object, exc_info: object = True, **more: object) -> None:
        """Log a fault of ours in one line; the traceback is there at level DEBUG."""
        traceback = exc_info if isinstance(exc_info, BaseException) else None
        if isinstance(traceback, HttpProcessingError):
            self.debug(msg, *args)
            return
        told = "" if traceback is None else f": {type(traceback).__name__}: {' '.join(str(traceback).split())[:300]}"
        self.error(f"{msg}{told.replace('%', '%%')}", *args)
        self.debug("where it happened", exc_info=traceback)


#: What every server of ours is given as its logger.
SERVER_LOG: logging.Logger = _OneLine("context_bench.server")
SERVER_LOG.parent = logging.getLogger("context_bench")


async def listen(runner: web.BaseRunner, host: str, port: int, *, backlog: int, who: str = "Cannot") -> int:
    """Set a server up and have it listen; the port that it has. Raises `BadInput` where it cannot listen."""
    try:
        await runner.setup()
        await web.TCPSite(runner, host, port, backlog=backlog).start()
    except BaseException as error:
        await runner.cleanup()
        if not isinstance(error, OSError | OverflowError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{who} listen on {host}:{port} ({reason}); choose another port") from None
    return int(runner.addresses[0][1])


def origin(host: str, port: int) -> str:
    """`http://HOST:PORT` of a server."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def prompt_of(request: WireRequest) -> str:
    """All that a request says, as one text: every message's text, tool calls as JSON."""
    return "\n\n".join(
        "\n".join(filter(None, [message.text, canonical_json(message.tool_calls) if message.tool_calls else ""]))
        for message in request.messages
    )


def counted(reply: Reply, request: WireRequest) -> Usage:
    """The usage of a reply by our own count: the request by the rule of `wire.request`, the reply's text, reasoning and
    tool calls.
    """
    counter = counter_for(request.model)
    made = sum(counter.count(text) for text in (reply.text, reply.refusal, reply.reasoning) if text)
    if reply.tool_calls:
        made += counter.count(canonical_json(reply.tool_calls))
    return Usage(
        input_tokens=count_request(request, counter).total,
        output_tokens=made,
        reasoning_tokens=counter.count(reply.reasoning) if reply.reasoning else None,
    )


class Echo:
    """Answers with a hash of the prompt and its token count; `usage` is our own exact count."""

    name = "echo"

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """`echo HASH: N tokens in M messages`."""
        tokens = count_request(request, counter_for(request.model)).total
        text = f"echo {hash_text(prompt_of(request), 12)}: {tokens} tokens in {len(request.messages)} messages"
        answer = Reply(text=text, finish_reason="stop", model=request.model)
        answer.usage = counted(answer, request)
        return answer

    async def models(self) -> list[str]:
        """One model."""
        return ["echo"]

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Unit vectors of 64 numbers from hashed words: texts that share words are near each other."""
        return [_vector(text) for text in texts]

    def fingerprint(self) -> dict[str, Any]:
        """Identity of its answers."""
        return {"responder": "echo", "version": 1}


#: A question whose answer takes any model a while.
SLOWLY = "Count from one to sixty in words, one number to a line."
#: A question whose answer `SlowEcho` packs.
PACKED = "Which is the longest of these words: gate, harbour, ferry?"


class SlowEcho:
    """An echo that hands two of its replies over as providers may: `SLOWLY` in a stream of 0.6 s, `PACKED` packed if
    that is accepted.
    """

    name = "echo"

    def __init__(self) -> None:
        self._echo = Echo()
        self.models = self._echo.models

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Staged:
        """The same text, staged."""
        prompt, accepted = prompt_of(request), headers.get("accept-encoding", "")
        delivery = Delivery(chunk_delay=0.05, pieces=12) if request.stream and SLOWLY in prompt else Delivery()
        if PACKED in prompt:
            delivery.coding = "gzip" if "gzip" in accepted else "deflate" if "deflate" in accepted else None
        return Staged(await self._echo.reply(request, headers), delivery)


def _vector(text: str, size: int = 64) -> list[float]:
    vector = [0.0] * size
    for word in text.lower().split():
        digest = int(hash_text(word, 8), 16)
        vector[digest % size] += 1.0 if digest >> 31 else -1.0
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector] if length else vector
