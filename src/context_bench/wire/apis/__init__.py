"""Requests, replies and streams of each provider API, read and written; the API that a request came over.

Wires: `openai-chat` (chat completions), `openai-responses`, `anthropic` (messages), `anthropic-count` (count_tokens),
`models`, `embeddings`, `other`. Reading is tolerant of requests (what is not understood stays as a part without text),
strict with replies (`BadReply`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.apis import anthropic, openai_chat, openai_responses
from context_bench.wire.apis.shared import OBJECT, Reply, StreamReader, as_str, params_of, unknown_part
from context_bench.wire.request import Part, WireMessage, WireRequest, count_request

__all__ = [
    "EndOfStream",
    "Reply",
    "ShapedRequest",
    "StreamReader",
    "chat_request",
    "parse_reply",
    "parse_request",
    "render_reply",
    "render_stream",
    "stream_reader",
    "wire_of",
]


class Api(NamedTuple):
    """Readers and writers of one API."""

    parse_request: Callable[[Mapping[str, Any]], WireRequest]
    parse_reply: Callable[[Any], Reply]
    render_reply: Callable[[Reply, WireRequest], dict[str, Any]]
    render_stream: Callable[[Reply, WireRequest, int], Iterator[bytes]]
    stream: type[StreamReader]


_APIS = {
    "openai-chat": Api(
        openai_chat.parse_request,
        openai_chat.parse_reply,
        openai_chat.render_reply,
        openai_chat.render_stream,
        openai_chat.ChatStream,
    ),
    "openai-responses": Api(
        openai_responses.parse_request,
        openai_responses.parse_reply,
        openai_responses.render_reply,
        openai_responses.render_stream,
        openai_responses.ResponsesStream,
    ),
    "anthropic": Api(
        anthropic.parse_request,
        anthropic.parse_reply,
        anthropic.render_reply,
        anthropic.render_stream,
        anthropic.AnthropicStream,
    ),
}
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
    if (api := _APIS.get("anthropic" if wire == "anthropic-count" else wire)) is not None:
        request = api.parse_request(body)
        request.wire = wire
        return request
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
    return _api(wire, "replies of a model").parse_reply(body)


def render_reply(wire: str, reply: Reply, request: WireRequest) -> dict[str, Any]:
    """`reply` as the provider's JSON body."""
    return _api(wire, "replies of a model").render_reply(reply, request)


def render_stream(wire: str, reply: Reply, request: WireRequest, pieces: int = 8) -> Iterator[bytes]:
    """`reply` as the provider's server-sent events, one event per item; each text is cut into at most `pieces`
    deltas.
    """
    return _api(wire, "streams").render_stream(reply, request, pieces)


def stream_reader(wire: str) -> StreamReader:
    """A reader of one streamed reply. `wire`: `openai-chat`, `openai-responses` or `anthropic`."""
    return _api(wire, "streams").stream()


def _api(wire: str, what: str) -> Api:
    if wire not in _APIS:
        raise ValueError(f"no {what} on the wire {wire!r}; known: {', '.join(_APIS)}")
    return _APIS[wire]


@dataclass(slots=True)
class ShapedRequest:
    """A request ready to send: `path` begins with `/v1`, `headers` never hold a key."""

    wire: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def stream(self) -> bool:
        """The request asks for a stream of events (the agent shapes always do)."""
        return bool(self.body.get("stream"))

    def parsed(self) -> WireRequest:
        """The body in neutral form."""
        return parse_request(self.wire, self.body)

    def tokens(self, counter: TokenCounter | None = None) -> int:
        """Tokens of the request by the rule of `wire.request.count_request`; default counter: the model's."""
        parsed = self.parsed()
        return count_request(parsed, counter or counter_for(parsed.model)).total


def chat_request(body: dict[str, Any], headers: dict[str, str] | None = None) -> ShapedRequest:
    """The plainest request: messages on the OpenAI chat wire."""
    return ShapedRequest("openai-chat", "/v1/chat/completions", headers or {}, body)


class EndOfStream:
    """Looks for the event that ends a stream of any wire in its bytes, without reading the others: at the beginning of
    a line.

    `whole`: all of that event has come, with the empty line after it.
    """

    _ENDS = rb"(?:message_stop|response\.(?:completed|failed|incomplete))\b"
    #: Each way begins with its letter, and looks back for the end of the line before it: so a flood of empty lines is
    #: passed over as fast as bytes are read, and nobody else waits for it.
    _LINE = re.compile(
        rb"d(?<=[\r\n]d)ata: ?(?:\[DONE\]|\{\s*\"type\"\s*:\s*\"" + _ENDS + rb")|e(?<=[\r\n]e)vent: ?" + _ENDS
    )
    _EMPTY = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
    _LONGEST, _LONGEST_EMPTY = 100, 3

    def __init__(self) -> None:
        self._tail, self._begun = b"\n", False
        self.whole = False

    def begins_in(self, data: bytes) -> bool:
        """Has that event begun in `data`, or before it?"""
        seen = self._tail + data
        if not self._begun:
            if (found := self._LINE.search(seen)) is None:
                self._tail = seen[-self._LONGEST :]
                return False
            self._begun, seen = True, seen[found.start() :]
        self.whole = self.whole or self._EMPTY.search(seen) is not None
        self._tail = seen[-self._LONGEST_EMPTY :]
        return True
