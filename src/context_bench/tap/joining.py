"""Increments read as the full requests they stand for: what `previous_response_id` names is put before what they add.

Over a WebSocket a client sends only what is new; the provider remembers the rest, and bills it. What is remembered here is in memory
only, packed, and the responses longest unused go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from context_bench.core.jsontext import MOST_BYTES
from context_bench.core.keys import packed, unpacked
from context_bench.wire.apis.shared import dump, load_json

_ENTRY = 300  # bytes of Python's own for each response, roughly
#: Fields of a message that a request over HTTP has not; `stream` is what the WebSocket does anyway.
_ENVELOPE = frozenset({"type", "event_id", "stream_id", "generate", "stream", "previous_response_id"})
_TELLING = (b"response.output_item.done", b"response.completed", b"response.incomplete")

Items = list[Any]


@dataclass(frozen=True, slots=True)
class _Response:
    """The items that one request added and its answer brought; those before are with the response it continued."""

    follows: str | None
    items: bytes
    size: int  # bytes of them, unpacked


@dataclass(frozen=True, slots=True)
class Joined:
    """A message as the request it stands for. `missing`: it goes on from a response that is not known here, and is no more than it says."""

    body: dict[str, Any]
    own: Items
    follows: str | None
    missing: bool


class Joining:
    """Remembers responses by their owner (whose key asked for them) and id, in at most `room` bytes."""

    def __init__(self, room: int = 24_000_000) -> None:
        self._responses: LRUCache[tuple[str, str], _Response] = LRUCache(room, lambda response: _ENTRY + len(response.items))

    def join(self, owner: str, message: Mapping[str, Any]) -> Joined:
        """A `response.create` as the body that a POST of the whole conversation would have."""
        own, follows = _items(message.get("input")), message.get("previous_response_id")
        body = {name: value for name, value in message.items() if name not in _ENVELOPE}
        body |= {"input": own, "stream": True}
        if not isinstance(follows, str) or not follows:
            return Joined(body, own, None, missing=False)
        before = self._before(owner, follows)
        if before is None:
            return Joined({**body, "previous_response_id": follows}, own, follows, missing=True)
        return Joined({**body, "input": [*before, *own]}, own, follows, missing=False)

    def answered(self, owner: str, joined: Joined, events: Iterator[bytes]) -> None:
        """Remember what a request and its answer added. `events`: the answer's events, each one JSON text."""
        name, output = _response(events)
        if name is None or joined.missing or name == joined.follows or (owner, name) in self._responses:
            return
        plain = dump([*joined.own, *output])
        data = packed(plain.decode("utf-8", "replace"))
        response = _Response(joined.follows, data, len(plain))
        if self._responses.getsizeof(response) <= self._responses.maxsize:
            self._responses[owner, name] = response

    def _before(self, owner: str, name: str) -> Items | None:
        """All items up to and with this response; `None` if one on the way is not known any more, or all are more than is read."""
        pieces: list[Items] = []
        at: str | None = name
        left = MOST_BYTES
        while at is not None:
            found = self._responses.get((owner, at))
            if found is None or found.size > left:  # what is packed small may be large
                return None
            left -= found.size
            pieces.append(load_json(unpacked(found.items)))
            at = found.follows
        return [item for piece in reversed(pieces) for item in piece]


def _items(given: Any) -> Items:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _response(events: Iterator[bytes]) -> tuple[str | None, Items]:
    """The id of a response that is whole, and its items: as they were finished one by one, else as its last event has them."""
    items: dict[int, Any] = {}
    for raw in events:
        if not any(word in raw for word in _TELLING):
            continue
        event = load_json(raw)
        if not isinstance(event, dict):
            continue
        if event.get("type") == "response.output_item.done":
            index = event.get("output_index")
            items[index if isinstance(index, int) else len(items)] = event.get("item")
        elif event.get("type") in ("response.completed", "response.incomplete") and isinstance(event.get("response"), dict):
            response = event["response"]
            told = response.get("output")
            output = [items[index] for index in sorted(items)] or (told if isinstance(told, list) else [])
            return (response["id"] if isinstance(response.get("id"), str) else None), output
    return None, []
