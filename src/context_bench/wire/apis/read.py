"""The door to the wires: which one a request came over, and requests, replies and streams read and written.

Wires: `openai-chat` (chat completions), `openai-responses`, `anthropic` (messages), `anthropic-count` (count_tokens),
`models`, `embeddings`, `other`. Reading is tolerant of requests (what is not understood stays as a part without text),
strict with replies (`BadReply`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.wire.apis import anthropic, openai_chat, openai_responses
from context_bench.wire.apis.shared import OBJECT, Reply, as_str, params_of, unknown_part
from context_bench.wire.request import Part, WireMessage, WireRequest
from context_bench.wire.sse import StreamReader

__all__ = ["Reply", "StreamReader", "parse_reply", "parse_request", "render_reply", "render_stream", "wire_of"]

_POSTED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"/chat/completions$"), "openai-chat"),
    (re.compile(r"/responses$"), "openai-responses"),
    (re.compile(r"/messages/count_tokens$"), "anthropic-count"),
    (re.compile(r"/messages$"), "anthropic"),
    (re.compile(r"/embeddings$"), "embeddings"),
)
_THREADS = re.compile(r"/threads/[^/]+/messages$")
_MODELS = re.compile(r"/models(/[^/].*)?$")


def wire_of(method: str, path: str) -> str:
    """The wire of a request by its method and path; any prefix (`/v1`, `/proxy/openai/v1` …) and query are allowed."""
    path = "/" + re.sub(r"/{2,}", "/", path.split("?", 1)[0].split("#", 1)[0]).strip("/")
    method = method.upper()
    if method in ("GET", "HEAD") and _MODELS.search(path):
        return "models"
    if method != "POST" or _THREADS.search(path):
        return "other"
    return next((wire for pattern, wire in _POSTED if pattern.search(path)), "other")


def parse_request(wire: str, body: Mapping[str, Any]) -> WireRequest:
    """A request's body in neutral form. Bodies of wires without messages become requests without messages."""
    if not isinstance(body, OBJECT):
        return WireRequest(wire, None, [])
    if wire == "openai-chat":
        return openai_chat.parse_request(body)
    if wire == "openai-responses":
        return openai_responses.parse_request(body)
    if wire in ("anthropic", "anthropic-count"):
        return anthropic.parse_request(body, wire)
    if wire == "embeddings":
        given = body.get("input")
        texts = given if isinstance(given, list) and not all(isinstance(item, int) for item in given) else [given]
        parts = [
            Part("text", text) if isinstance(text, str) else unknown_part(text) for text in texts if text is not None
        ]
        return WireRequest(
            wire, as_str(body.get("model")), [WireMessage("user", parts)], params=params_of(body, "input", "model")
        )
    return WireRequest(
        wire, as_str(body.get("model")), [], params=params_of(body, "model", "stream"), stream=bool(body.get("stream"))
    )


def parse_reply(wire: str, body: Any) -> Reply:
    """The reply in a decoded JSON body; `BadReply` says what is wrong with it."""
    if wire == "openai-chat":
        return openai_chat.parse_reply(body)
    if wire == "openai-responses":
        return openai_responses.parse_reply(body)
    if wire == "anthropic":
        return anthropic.parse_reply(body)
    raise ValueError(f"no replies of a model on the wire {wire!r}")


def render_reply(wire: str, reply: Reply, request: WireRequest) -> dict[str, Any]:
    """`reply` as the provider's JSON body."""
    if wire == "openai-chat":
        return openai_chat.render_reply(reply, request)
    if wire == "openai-responses":
        return openai_responses.render_reply(reply, request)
    if wire == "anthropic":
        return anthropic.render_reply(reply, request)
    raise ValueError(f"no replies of a model on the wire {wire!r}")


def render_stream(wire: str, reply: Reply, request: WireRequest, pieces: int = 8) -> Iterator[bytes]:
    """`reply` as the provider's server-sent events, one event per item; each text is cut into at most `pieces`
    deltas.
    """
    if wire == "openai-chat":
        return openai_chat.render_stream(reply, request, pieces)
    if wire == "openai-responses":
        return openai_responses.render_stream(reply, request, pieces)
    if wire == "anthropic":
        return anthropic.render_stream(reply, request, pieces)
    raise ValueError(f"no streams on the wire {wire!r}")
