"""The door to the wires: which one a request came over, and requests, replies and streams read and written.

Wires: `openai-chat` (chat completions), `openai-responses`, `anthropic` (messages), `anthropic-count` (count_tokens),
`models`, `embeddings`, `other`. Reading is tolerant of requests (what is not understood stays as a part without text),
strict with replies (`BadReply`).

Streams are server-sent events. Lines end with LF, CR LF or CR; a byte order mark, comments and unknown fields are
passed over; an event that the stream's end cuts off before its blank line is taken if it is whole. How the bytes are
cut makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_bench.core.errors import BadReply
from context_bench.core.jsontext import TooLarge
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.apis import anthropic, openai_chat, openai_responses
from context_bench.wire.apis.shared import OBJECT, Reply, StreamState, as_str, params_of, unknown_part
from context_bench.wire.request import Part, WireMessage, WireRequest, count_request

__all__ = [
    "EndOfStream",
    "EventReader",
    "Reply",
    "ShapedRequest",
    "StreamReader",
    "chat_request",
    "parse_reply",
    "parse_request",
    "render_reply",
    "render_stream",
    "wire_of",
]


class Api(NamedTuple):
    """Readers and writers of one API."""

    parse_request: Callable[[Mapping[str, Any]], WireRequest]
    parse_reply: Callable[[Any], Reply]
    render_reply: Callable[[Reply, WireRequest], dict[str, Any]]
    render_stream: Callable[[Reply, WireRequest, int], Iterator[bytes]]
    stream: type[StreamState]


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


#: Characters that are kept of what a stream sends after its end.
_ASIDE = 2_000
#: The longest answers of models are some 130,000 tokens, an event each at most; and the bytes of one event that are
#: read.
_MOST_EVENTS, _LARGEST_EVENT = 400_000, 16 * 2**20
_EMPTY_LINES = re.compile(rb"\n{3,}")
_BYTE_ORDER_MARK = "\ufeff".encode()


class EventReader:
    """Cuts a byte stream into `(event name, data)` pairs."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._first, self._after_cr = True, False
        self._name, self._data = "", list[str]()
        self._held = 0  # bytes in the lines of the event that is not over

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """The events that `data` completes. Raises `TooLarge` for one that is larger than is read."""
        if self._after_cr and data:
            if data[0] == 0x0A:  # the second half of a CR LF that was cut in two
                data = data[1:]
            self._after_cr = False
        if b"\n" not in data and b"\r" not in data:
            self._rest += data
            self._bound(len(self._rest))
            return
        if b"\n\n\n" in data:  # a second empty line in a row ends nothing, and there may be millions
            data = _EMPTY_LINES.sub(b"\n\n", data)
        self._after_cr = data.endswith(b"\r")
        ends = data.endswith((b"\r", b"\n"))
        lines = (bytes(self._rest) + data).splitlines()
        self._rest = bytearray() if ends else bytearray(lines.pop())
        for line in lines:
            if not line and not self._data:  # of a flood of empty lines
                self._name, self._held = "", 0
                continue
            self._held += len(line)
            if self._held > _LARGEST_EVENT:
                self._bound()
            if (event := self._line(line)) is not None:
                yield event
        self._bound(len(self._rest))

    def _bound(self, more: int = 0) -> None:
        if self._held + more > _LARGEST_EVENT:
            raise TooLarge(f"too large: an event of more than {_LARGEST_EVENT // 2**20} MiB")

    def close(self) -> Iterator[tuple[str, str]]:
        """The last event, if its blank line is missing."""
        line, self._rest = bytes(self._rest), bytearray()
        for last in (line, b"") if line else (b"",):
            if (event := self._line(last)) is not None:
                yield event

    def _line(self, raw: bytes) -> tuple[str, str] | None:
        """Take one line; the event that it ends."""
        if self._first:
            raw, self._first = raw.removeprefix(_BYTE_ORDER_MARK), False
        if not raw:
            event = (self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self._held = "", [], 0
            return event
        if raw.startswith(b"data: "):  # nearly every one
            self._data.append(raw[6:].decode("utf-8", "replace"))
            return None
        field, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None


class EndOfStream:
    """Looks for the event that ends a stream of any wire in its bytes, without reading the others: at the beginning of
    a line.

    `whole`: all of that event has come, with the empty line after it.
    """

    _LINE = re.compile(
        rb"[\r\n](?:data: ?\[DONE\]"
        rb"|(?:event: ?|data: ?\{\s*\"type\"\s*:\s*\")(?:message_stop|response\.(?:completed|failed|incomplete))\b)"
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
            self._begun, seen = True, seen[found.start() + 1 :]
        self.whole = self.whole or self._EMPTY.search(seen) is not None
        self._tail = seen[-self._LONGEST_EMPTY :]
        return True


class StreamReader:
    """Reads one streamed reply. `wire`: `openai-chat`, `openai-responses` or `anthropic`.

    `started`: a first piece of content, reasoning or a tool call has arrived (not a bare role). `complete`: the stream
    said that the reply was whole. `over`: its last event has come, by the wire or as `[DONE]`; what follows is kept
    aside in `reply.after_done`. `error`: what the provider, or the reader (an event that is not JSON), complained of.
    """

    def __init__(self, wire: str) -> None:
        self._state = _api(wire, "streams").stream()
        self._events = EventReader()
        self._unreadable: str | None = None
        self._after: dict[str, Any] = {}
        self._left = _MOST_EVENTS

    @property
    def reply(self) -> Reply:
        """The reply as far as it has arrived; whole when `complete`."""
        reply = self._state.reply
        reply.after_done = dict(self._after) or None
        return reply

    @property
    def started(self) -> bool:
        """The model has begun to answer."""
        return self._state.started

    @property
    def complete(self) -> bool:
        """The stream ended by its own last event."""
        return self._state.complete

    @property
    def over(self) -> bool:
        """The last event has come: nobody need wait for more."""
        return self._state.over

    @property
    def error(self) -> str | None:
        """An error told inside the stream."""
        return self._state.error or self._unreadable

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive, cut anywhere. Raises `TooLarge` for more than a model says."""
        for name, text in self._events.feed(data):
            self._take(name, text, cut=False)

    def close(self) -> None:
        """The connection is at its end."""
        for name, text in self._events.close():
            self._take(name, text, cut=True)
        self._state.finish()

    def _take(self, name: str, text: str, *, cut: bool) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooLarge(f"too large: a stream of more than {_MOST_EVENTS:,} events")
        if not text or text.isspace():
            return
        if self._state.over:
            self._put_aside(name, text)
            return
        try:
            self._state.event(name, text)
        except TooLarge:
            raise
        except ValueError as error:
            if not cut:  # half an event at the end is a broken connection, which `complete` tells
                self._unreadable = self._unreadable or f"invalid JSON in the stream: {error}"
        except BadReply as error:
            self._unreadable = self._unreadable or str(error)

    def _put_aside(self, name: str, text: str) -> None:
        """Count what comes after the end, and keep its beginning. Another end mark and signs of life say nothing."""
        if text.strip() == "[DONE]" or name == "ping":
            return
        after = self._after or {"events": 0, "bytes": 0, "text": ""}
        room = _ASIDE - len(after["text"])
        after["events"], after["bytes"] = (
            after["events"] + 1,
            after["bytes"] + len(text.encode("utf-8", "surrogatepass")),
        )
        after["text"] += f"{text}\n"[: max(0, room)]
        self._after = after
