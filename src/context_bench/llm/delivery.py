"""Delivery of a reply by a model server: errors in the provider's own form, and every fault that can be played.

Also how our own HTTP servers listen, and their log: a fault is one line, and a client's input that is not HTTP is none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from context_bench.core.errors import BadInput
from context_bench.wire.apis.shared import Reply, sse

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
    event. `coding`: the body is packed so, each chunk readable as it comes.
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
