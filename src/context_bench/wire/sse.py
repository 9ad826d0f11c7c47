"""Server-sent events: bytes as they arrive → events → one reply.

Lines end with LF, CR LF or CR; a byte order mark, comments and unknown fields are passed over; an event that the
stream's end cuts off before its blank line is taken if it is whole. How the bytes are cut makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.jsontext import TooLarge
from context_bench.wire.apis import anthropic, openai_chat, openai_responses
from context_bench.wire.apis.shared import Reply, StreamState

_STATES: dict[str, type[StreamState]] = {
    "openai-chat": openai_chat.ChatStream,
    "openai-responses": openai_responses.ResponsesStream,
    "anthropic": anthropic.AnthropicStream,
}


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
        if wire not in _STATES:
            raise ValueError(f"no streams on the wire {wire!r}; known: {', '.join(_STATES)}")
        self._events = EventReader()
        self._state = _STATES[wire]()
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
