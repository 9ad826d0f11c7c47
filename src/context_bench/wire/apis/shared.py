"""Common parts of the wires: the neutral reply, JSON reading that forgives nothing silently, stop reasons, ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from context_bench.core.errors import BadReply
from context_bench.core.jsontext import load_body as load_body
from context_bench.core.jsontext import load_json as load_json
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.records import Usage
from context_bench.wire.request import Part, WireRequest

#: What a JSON object may be: nearly always the first, and to ask for the second only takes ten times as long.
OBJECT = (dict, Mapping)
_LISTS = (list, tuple)
#: Rendered replies carry one fixed date, so that equal requests get byte-equal replies.
CREATED = 1_700_000_000


@dataclass(slots=True)
class Reply:
    """Answer of a model, whatever wire it came over.

    `text`: the answer, `None` if the reply has none (null content, only tool calls). `tool_calls`:
    `{"id", "name", "arguments"}` with `arguments` as JSON text. `finish_reason` in OpenAI's words: `stop`, `length`,
    `tool_calls`, `content_filter`; anything else as sent. `raw_usage`: the provider's own usage object. `logprobs`: as
    an OpenAI chat completion tells them, where they were asked for. `after_done`: what a stream sent after its end,
    none of which is in the reply: `events`, `bytes`, and the beginning of the `text`.
    """

    text: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    raw_usage: dict[str, Any] | None = field(default=None, compare=False)
    logprobs: Any = field(default=None, compare=False)
    after_done: dict[str, Any] | None = field(default=None, compare=False)


class Pieces:
    """Texts by name that come in pieces: each is put together when it is asked for, not with each piece."""

    def __init__(self) -> None:
        self._pieces: dict[Any, list[str]] = {}

    def add(self, name: Any, piece: str) -> None:
        """One more piece of a text."""
        self._pieces.setdefault(name, []).append(piece)

    def taken(self, name: Any, before: str | None = None) -> str | None:
        """`before` and what came after it, which is let go; `None` if there is neither."""
        pieces = self._pieces.pop(name, None)
        return before if pieces is None else (before or "") + "".join(pieces)


class StreamState:
    """Puts the events of one stream together; each API has its own.

    `started`, `complete`, `error`: as of a `StreamReader`. `over`: the event has come after which there is nothing more
    of the reply.
    """

    def __init__(self) -> None:
        self.started = self.complete = self.over = False
        self.error: str | None = None
        self._pieces = Pieces()

    @property
    def reply(self) -> Reply:
        """The reply as far as it has arrived."""
        raise NotImplementedError

    def event(self, name: str, data: str) -> None:
        """Take one server-sent event. Raises `ValueError` for one that is no JSON object."""
        if data.strip() == "[DONE]":
            self.done()
            return
        body = load_body(data)
        if not isinstance(body, OBJECT):
            raise ValueError(f"an event is a JSON {type(body).__name__}")
        self.take(name, body)

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        """Take the object of one event; unknown events are passed over."""
        raise NotImplementedError

    def done(self) -> None:
        """Take the end mark, which may come or not."""
        self.over = True

    def fail(self, error: Any) -> None:
        """Take an error that the stream tells of; the first one counts."""
        self.error = self.error or error_text(error)

    def finish(self) -> None:
        """Settle what can only be settled at the end."""


def as_dict(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return {} if value is None else dict(value) if isinstance(value, OBJECT) else {}


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return list(value) if isinstance(value, _LISTS) else []


def as_str(value: Any) -> str | None:
    """`value` if it is text."""
    return value if isinstance(value, str) else None


def params_of(body: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    """Every top-level field that is not told elsewhere in the neutral form."""
    return {key: value for key, value in body.items() if key not in taken}


def unknown_part(raw: Any) -> Part:
    """A content part that is not text to us; its type is kept for tables."""
    kind = raw.get("type") if isinstance(raw, OBJECT) else None
    cache = raw.get("cache_control") if isinstance(raw, OBJECT) else None
    return Part(kind if isinstance(kind, str) else "unknown", None, raw, cache)


def text_part(kind: str, text: str, raw: Any = None) -> Part:
    """A content part with text."""
    return Part(kind, text, raw, None if raw is None else raw.get("cache_control") if isinstance(raw, OBJECT) else None)


def joined(parts: list[Part], *kinds: str) -> str | None:
    """Text of all parts of these kinds without separators, or `None` if there is no such part."""
    found = [part.text for part in parts if part.kind in kinds and part.text is not None]
    return "".join(found) if found else None


def error_text(error: Any) -> str:
    """The provider's own words in an `error` value of any form."""
    if isinstance(error, OBJECT):
        words = [str(error[key]) for key in ("type", "code", "message") if error.get(key) not in (None, "")]
        return ": ".join(words) or canonical_json(error)[:500]
    return str(error)


def require_body(body: Any, *, expects: str) -> Mapping[str, Any]:
    """The reply's body if it is an object that is no error; else `BadReply`."""
    if not isinstance(body, OBJECT):
        raise BadReply(f"Unexpected response: a JSON {type(body).__name__} instead of an object with {expects}")
    if body.get("error"):
        raise BadReply(f"Unexpected response: an error in a successful reply: {error_text(body['error'])}")
    return body


def arguments_text(arguments: Any) -> str:
    """Arguments of a tool call as JSON text: objects are written compactly, text stays as sent."""
    return arguments if isinstance(arguments, str) else canonical_json({} if arguments is None else arguments)


def arguments_value(arguments: Any) -> Any:
    """Arguments of a tool call as an object where the text is JSON; else an object that keeps the text."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return load_json(arguments) if arguments.strip() else {}
    except ValueError:
        return {"_raw": arguments}


def reply_id(prefix: str, reply: Reply, request: WireRequest) -> str:
    """An id that is the same for the same reply to a request of the same length."""
    return prefix + stable_hash([reply.text, reply.tool_calls, reply.model, request.model, len(request.messages)], 24)


def pieces_of(text: str, pieces: int) -> Iterator[str]:
    """`text` in at most `pieces` parts of nearly equal length; nothing for the empty text."""
    if not text:
        return
    size = -(-len(text) // max(1, pieces))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def dump(value: Any) -> bytes:
    """`value` as JSON on one line, in UTF-8; lone surrogates (which UTF-8 has not) are written as escapes."""
    try:
        return orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + (data if isinstance(data, bytes) else dump(data)) + b"\n\n"
