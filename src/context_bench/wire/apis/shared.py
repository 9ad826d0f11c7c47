"""Common parts of the wires: the neutral reply, streams, JSON reading that forgives nothing silently, stop reasons,
ids.

Streams are server-sent events. Lines end with LF, CR LF or CR; a byte order mark, comments and unknown fields are
passed over; an event that the stream's end cuts off before its blank line is taken if it is whole. How the bytes are
cut makes no difference.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from context_bench.core.errors import BadReply
from context_bench.core.keys import (
    TooLarge,
    canonical_json,
    load_body as load_body,
    load_json as load_json,
    stable_hash,
)
from context_bench.core.numbers import money
from context_bench.core.records import Usage
from context_bench.core.text import beginning
from context_bench.wire.request import Part, WireRequest

#: What a JSON object may be: nearly always the first, and to ask for the second only takes ten times as long.
OBJECT = (dict, Mapping)
_LISTS = (list, tuple)
#: Rendered replies carry one fixed date, so that equal requests get byte-equal replies.
CREATED = 1_700_000_000


#: Characters that are kept of what a stream sends after its end.
_ASIDE = 2_000
#: The longest answers of models are some 130,000 tokens, an event each at most; and the bytes of one event that are
#: read.
_MOST_EVENTS, _LARGEST_EVENT, _MOST_PARTS = 400_000, 16 * 2**20, 10_000
_EMPTY_LINES = re.compile(rb"\n{3,}")
_BYTE_ORDER_MARK = "\ufeff".encode()


@dataclass(slots=True)
class Reply:
    """Answer of a model, whatever wire it came over.

    `text`: the answer, `None` if the reply has none (null content, only tool calls). `tool_calls`:
    `{"id", "name", "arguments"}` with `arguments` as JSON text. `finish_reason` in OpenAI's words: `stop`, `length`,
    `tool_calls`, `content_filter`; anything else as sent. `raw_usage`: the provider's own usage object. `logprobs`: as
    an OpenAI chat completion tells them, where they were asked for. `after_done`: what a stream sent after its end,
    none of which is in the reply: `events`, `bytes`, and the beginning of the `text`.

    `stop`: the finish reason in the wire's own word. `signatures`: those of the thinking, in order. `blocks`: the types
    of all blocks or items, in order; of further choices, `choice`. `extras`: what else only its wire has, by name
    (citations, log probabilities, further choices, calls of the provider's tools). The others are known of a reply that
    was seen on a wire (`wire.apis.read_reply`). `headers` have lower-case names. `error`: `type`, `code` and `message`,
    as far as told. `streamed`: it came as events. `complete`: it said that it was whole; `left`: it is not, since
    whoever was to read it went away. `faults`: what its own form shows to be wrong. `first_byte`: seconds from the
    request to the first byte, `longest_pause`: seconds between two pieces.
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
    stop: str | None = field(default=None, compare=False)
    signatures: list[str] = field(default_factory=list, compare=False)
    blocks: list[str] = field(default_factory=list, compare=False)
    extras: dict[str, Any] = field(default_factory=dict, compare=False)
    wire: str = field(default="", compare=False)
    status: int | None = field(default=None, compare=False)
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    error: dict[str, str] | None = field(default=None, compare=False)
    streamed: bool = field(default=False, compare=False)
    complete: bool = field(default=True, compare=False)
    left: bool = field(default=False, compare=False)
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    first_byte: float | None = field(default=None, compare=False)
    longest_pause: float | None = field(default=None, compare=False)


class Fault(NamedTuple):
    """One thing that is wrong in the form of a reply. `code`: a short name, of which the kind of violation follows;
    `detail`: a phrase for people without the reply's texts.
    """

    code: str
    detail: str


#: What stands for bytes that are no text; and halves of a character in UTF-16, none of which is one.
_REPLACEMENT, _HALVES = "\ufffd", ("\ud800", "\udfff")


class Grammar:
    """Checks the order of a stream's events and the indexes in them, event by event; each API has its own.

    `faults`: what was found, one of each code.
    """

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self.begun = self.done = False

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults found so far, one of each code."""
        return tuple(self._faults.values())

    def fault(self, code: str, detail: str) -> None:
        """Write down a fault, the first of its code."""
        self._faults.setdefault(code, Fault(code, detail))

    def see(self, name: str, body: Mapping[str, Any]) -> None:
        """Take the next event."""
        raise NotImplementedError

    def close(self) -> None:
        """The stream is over and was whole."""

    def piece(self, text: Any) -> None:
        """Take a piece of a text: a character that begins in it has to end in it."""
        if isinstance(text, str) and text:
            for end in (text[0], text[-1]):
                if end == _REPLACEMENT or _HALVES[0] <= end <= _HALVES[1]:
                    self.fault("characters", "a character is cut in two between pieces")


class Pieces:
    """Texts by name that come in pieces: each is put together when it is asked for, not with each piece.

    `within`: those of the reply that this is a choice of.
    """

    def __init__(self, within: Pieces | None = None) -> None:
        self._pieces: dict[Any, list[str]] = {}
        self._parts: Iterator[int] = itertools.count(1) if within is None else within._parts

    def begin(self) -> None:
        """One more part of the reply: a choice, a call, a block. Raises `TooLarge` for more than a model says."""
        if next(self._parts) > _MOST_PARTS:
            raise TooLarge(f"too large: a reply of more than {_MOST_PARTS:,} choices, calls and blocks")

    def add(self, name: Any, piece: str) -> None:
        """One more piece of a text."""
        self._pieces.setdefault(name, []).append(piece)

    def taken(self, name: Any, before: str | None = None) -> str | None:
        """`before` and what came after it, which is let go; `None` if there is neither."""
        pieces = self._pieces.pop(name, None)
        return before if pieces is None else (before or "") + "".join(pieces)


class EventReader:
    """Cuts a byte stream into `(event name, data)` pairs."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._first, self._after_cr = True, False
        self._name, self._data = "", list[str]()
        self._held = 0  # bytes in the lines of the event that is not over
        self.damaged = False  # bytes came that are no text

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
            self._data.append(self._text(raw[6:]))
            return None
        field, _, value = self._text(raw).partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.damaged = True
            return raw.decode("utf-8", "replace")


class StreamReader:
    """Reads one streamed reply; each API has its own (`wire.apis.stream_reader`).

    `started`: a first piece of content, reasoning or a tool call has arrived (not a bare role). `complete`: the stream
    said that the reply was whole. `over`: its last event has come, by the wire or as `[DONE]`; what follows is kept
    aside in `reply.after_done`. `error`: what the provider, or the reader (an event that is not JSON), complained of;
    `reported`: the provider's own error, as it came. `grammar`: is shown every event, where it is set.
    """

    def __init__(self) -> None:
        self.started = self.complete = self.over = False
        self._events, self._pieces = EventReader(), Pieces()
        self._error: str | None = None
        self._unreadable: str | None = None
        self._after: dict[str, Any] = {}
        self._left = _MOST_EVENTS
        self.reported: Any = None
        self.grammar: Grammar | None = None

    @property
    def reply(self) -> Reply:
        """The reply as far as it has arrived; whole when `complete`."""
        reply = self.put_together()
        reply.after_done = dict(self._after) or None
        return reply

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults in the stream's form, by its grammar; ask once it is closed."""
        if self.grammar is None:
            return ()
        if self._events.damaged:
            self.grammar.fault("characters", "its bytes are not all UTF-8")
        if self._unreadable:
            self.grammar.fault("json", "an event is not what the API sends, or not JSON")
        if self.complete and not self._error:
            self.grammar.close()
        return self.grammar.faults

    @property
    def error(self) -> str | None:
        """An error told inside the stream."""
        return self._error or self._unreadable

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive, cut anywhere. Raises `TooLarge` for more than a model says."""
        for name, text in self._events.feed(data):
            self._take(name, text, cut=False)

    def close(self) -> None:
        """The connection is at its end."""
        for name, text in self._events.close():
            self._take(name, text, cut=True)
        self.finish()

    def put_together(self) -> Reply:
        """The reply of what has arrived."""
        raise NotImplementedError

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        """Take the object of one event; unknown events are passed over."""
        raise NotImplementedError

    def done(self) -> None:
        """Take the end mark, which may come or not."""
        self.over = True

    def fail(self, error: Any) -> None:
        """Take an error that the stream tells of; the first one counts."""
        self.reported = error if self.reported is None else self.reported
        self._error = self._error or error_text(error)

    def finish(self) -> None:
        """Settle what can only be settled at the end."""

    def _take(self, name: str, text: str, *, cut: bool) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooLarge(f"too large: a stream of more than {_MOST_EVENTS:,} events")
        if not text or text.isspace():
            return
        if self.over:
            self._put_aside(name, text)
            return
        if text.strip() == "[DONE]":
            if self.grammar is not None:
                self.grammar.done = True
            self.done()
            return
        try:
            body = load_body(text)
            if not isinstance(body, OBJECT):
                raise ValueError(f"an event is a JSON {type(body).__name__}")
            if self.grammar is not None:
                self.grammar.see(name, body)
            self.take(name, body)
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
        after["text"] += beginning(f"{text}\n", room)
        self._after = after


def filled(**named: Any) -> dict[str, Any]:
    """The named values that say something."""
    return {name: value for name, value in named.items() if value not in (None, "", [], {})}


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


def error_parts(error: Any) -> dict[str, str]:
    """Words of an `error` value of any form: its `type`, `code` and `message`, as far as they are given."""
    if not isinstance(error, OBJECT):
        return {} if error in (None, "") else {"message": str(error)}
    return {key: str(error[key]) for key in ("type", "code", "message") if error.get(key) not in (None, "")}


def error_text(error: Any) -> str:
    """The provider's own words in an `error` value of any form."""
    if isinstance(error, OBJECT):
        return ": ".join(error_parts(error).values()) or beginning(canonical_json(error), 500)
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


_COST = re.compile(r"(?:^|-)(?:response-)?cost(?:-usd)?$")


def cost_stated(headers: Mapping[str, str]) -> float | None:
    """US dollars that what stands in between says a reply has cost, by a header such as `x-litellm-response-cost`
    (names in lower case).
    """
    for name in sorted(headers):
        if _COST.search(name):
            try:
                return money(float(headers[name]))
            except ValueError:
                continue
    return None
