"""Requests, replies and streams of each provider API, read and written; the API that a request came over.

Wires: `openai-chat` (chat completions), `openai-responses`, `anthropic` (messages), `anthropic-count` (count_tokens),
`models`, `embeddings`, `other`. Reading is tolerant of requests (what is not understood stays as a part without text),
strict with replies (`BadReply`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from context_bench.core.errors import BadReply
from context_bench.core.keys import TooLarge, load_body
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.apis import anthropic, openai_chat, openai_responses
from context_bench.wire.apis.shared import (
    OBJECT,
    Fault,
    Grammar,
    Reply,
    StreamReader,
    as_str,
    error_parts,
    params_of,
    unknown_part,
)
from context_bench.wire.request import Part, WireMessage, WireRequest, by_lower_name, count_request

__all__ = [
    "EndOfStream",
    "Ending",
    "Reply",
    "ShapedRequest",
    "StreamReader",
    "chat_request",
    "parse_reply",
    "parse_request",
    "read_reply",
    "render_reply",
    "render_stream",
    "seen_at",
    "seen_body",
    "seen_stream",
    "stream_reader",
    "timed",
    "wire_of",
]


class Api(NamedTuple):
    """Readers and writers of one API."""

    parse_request: Callable[[Mapping[str, Any]], WireRequest]
    parse_reply: Callable[[Any], Reply]
    render_reply: Callable[[Reply, WireRequest], dict[str, Any]]
    render_stream: Callable[[Reply, WireRequest, int], Iterator[bytes]]
    stream: type[StreamReader]
    grammar: type[Grammar]


_APIS = {
    "openai-chat": Api(
        openai_chat.parse_request,
        openai_chat.parse_reply,
        openai_chat.render_reply,
        openai_chat.render_stream,
        openai_chat.ChatStream,
        openai_chat.ChatGrammar,
    ),
    "openai-responses": Api(
        openai_responses.parse_request,
        openai_responses.parse_reply,
        openai_responses.render_reply,
        openai_responses.render_stream,
        openai_responses.ResponsesStream,
        openai_responses.ResponsesGrammar,
    ),
    "anthropic": Api(
        anthropic.parse_request,
        anthropic.parse_reply,
        anthropic.render_reply,
        anthropic.render_stream,
        anthropic.AnthropicStream,
        anthropic.AnthropicGrammar,
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


def stream_reader(wire: str, *, grammar: bool = False) -> StreamReader:
    """A reader of one streamed reply. `wire`: `openai-chat`, `openai-responses` or `anthropic`. `grammar`: the order
    and the indexes of its events are checked, too.
    """
    api = _api(wire, "streams")
    reader = api.stream()
    if grammar:
        reader.grammar = api.grammar()
    return reader


def read_reply(
    wire: str,
    data: bytes | Iterable[tuple[float, bytes]],
    *,
    status: int | None = 200,
    headers: Iterable[tuple[str, str]] = (),
    asked: float | None = None,
    ended: Ending = "whole",
) -> Reply:
    """A reply as it was seen on a wire, whole, broken or nonsense: it never raises over what is in it.

    `data`: the body, or its pieces with the time of each, in seconds (content coding undone). `asked`: the time of the
    request on the same clock. `ended`: `broken` by whoever sent it, or `left` by whoever was to read it.
    """
    pieces = [(0.0, data)] if isinstance(data, bytes) else list(data)
    held = by_lower_name(headers)
    named = held.get("content-type", "").lower().startswith("text/event-stream")
    streamed = named or (bool(pieces) and _STREAM.match(pieces[0][1]) is not None)
    if streamed and (status or 0) < 400 and wire in _APIS:
        reader = stream_reader(wire, grammar=True)
        try:
            for _, piece in pieces:
                reader.feed(piece)
            reader.close()
            reply = seen_stream(reader, ended)
        except TooLarge as error:
            reply = Reply(complete=False, faults=(Fault("unread", str(error)),), streamed=True)
        if not named:
            reply.faults += (Fault("type", "a stream whose content type is not text/event-stream"),)
    else:
        reply = seen_body(wire, b"".join(piece for _, piece in pieces), status, ended)
    times = [] if isinstance(data, bytes) else [at for at, _ in pieces]
    return timed(seen_at(reply, wire, status, held), times, asked)


Ending = Literal["whole", "broken", "left"]
_STREAM = re.compile(rb"\s*(?:data|event): ?")


def seen_stream(reader: StreamReader, ended: Ending = "whole") -> Reply:
    """The reply of a stream that is closed, with what its form tells."""
    reply = reader.reply
    reply.streamed, reply.complete, reply.left = True, reader.complete, ended == "left" and not reader.over
    reply.faults = reader.faults
    if reader.reported is not None:
        reply.error = error_parts(reader.reported)
    return reply


def seen_body(wire: str, data: Any, status: int | None, ended: Ending = "whole") -> Reply:
    """The reply in a body: bytes, or what was read from them (JSON, text)."""
    body = data
    if isinstance(data, bytes):
        try:
            body = load_body(data)
        except (ValueError, RecursionError):
            body = data.decode("utf-8", "replace")
    left = ended == "left"
    error = body.get("error") if isinstance(body, OBJECT) else None
    if error or status is None or status >= 400:
        known = error_parts(error if error else body)
        faults = () if error or status is None or left else (Fault("error_form", "an error that is not the API's"),)
        return Reply(error=known, complete=ended == "whole", left=left, faults=faults)
    if wire not in _APIS:
        return Reply(complete=ended == "whole", left=left)
    try:
        reply = parse_reply(wire, body)
    except BadReply as bad:
        broken = ended == "broken" or (isinstance(body, str) and body.lstrip()[:1] == "{")  # the beginning of one
        return Reply(complete=False, left=left, faults=() if broken else (Fault("body", str(bad)[:200]),))
    reply.complete, reply.left = ended == "whole", left
    return reply


def seen_at(reply: Reply, wire: str, status: int | None, headers: Mapping[str, str]) -> Reply:
    """The same reply, with the wire, the status and the headers (lower-case names) that it came with."""
    reply.wire, reply.status, reply.headers = wire, status, headers
    return reply


def timed(reply: Reply, times: Sequence[float], asked: float | None) -> Reply:
    """The same reply, with the figures of the times at which its pieces came."""
    if times:
        reply.first_byte = None if asked is None else times[0] - asked
        reply.longest_pause = max((b - a for a, b in pairwise(times)), default=None)
    return reply


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
    #: One of these is in each such line: most pieces have none, which is five times as fast to see.
    _WORDS = (b"[DONE]", b"message_stop", b"response.completed", b"response.failed", b"response.incomplete")
    _EMPTY = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
    _LONGEST, _LONGEST_EMPTY = 100, 3

    def __init__(self) -> None:
        self._tail, self._begun = b"\n", False
        self.whole = False

    def begins_in(self, data: bytes) -> bool:
        """Has that event begun in `data`, or before it?"""
        seen = self._tail + data
        if not self._begun:
            found = self._LINE.search(seen) if any(word in seen for word in self._WORDS) else None
            if found is None:
                self._tail = seen[-self._LONGEST :]
                return False
            self._begun, seen = True, seen[found.start() :]
        self.whole = self.whole or self._EMPTY.search(seen) is not None
        self._tail = seen[-self._LONGEST_EMPTY :]
        return True
