"""Measure the prefix of a request that its session has sent before, which a provider's prompt cache could have reused.

Increments are read as the full requests that they stand for: the content that `previous_response_id` names is put
before them. Over a WebSocket a client sends only what is new; the provider remembers the rest, and bills it. Our memory
of it is packed, never on disk, and drops the responses that were longest unused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache

from context_bench.core.keys import MOST_BYTES, digest_of, packed, unpacked
from context_bench.wire.apis.shared import dump, load_json
from context_bench.wire.cache import Segments, common_characters

_NODE, _TEXT, _SESSION = 300, 320, 600  # bytes of Python's own for each, roughly
_BEGINNING = 64  # characters of a text


class Prefixes:
    """Remembers what each session has sent: at most `room` bytes in all and so many `sessions`, those longest unused go
    first, and of each session the `each` latest requests that no later one continues.

    Requests are held as paths of a tree, so that what they share at their start is there once; their texts packed, in
    memory only, one that several sessions send once.
    """

    def __init__(self, room: int = 8_000_000, *, sessions: int = 1_024, each: int = 32) -> None:
        self._most, self._most_sessions, self._each = room, sessions, each
        self._texts = _Texts()
        self._nodes = 0
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    @property
    def held(self) -> int:
        """Bytes that are taken now."""
        return self._texts.size + _NODE * self._nodes + _SESSION * len(self._sessions)

    def shared(self, session: str, request: Segments, count: Callable[[str], int]) -> int | None:
        """Tokens of the longest prefix shared with an earlier request of `session`; `None` for its first. Then
        remembers this one.
        """
        path = [(digest_of(kind, text), kind, text) for kind, text in request]
        known = self._sessions.get(session)
        tokens = None if known is None else self._shared_tokens(known, path, count)
        self._keep(session, path)
        return tokens

    def _shared_tokens(self, session: _Session, path: _Path, count: Callable[[str], int]) -> int:
        node, tokens = session.root, 0
        for digest, kind, text in path:
            if (following := node.children.get(digest)) is None:
                alike = (other.digest for other in node.children.values() if other.kind == kind)
                partial = self._texts.most_shared(text, alike)
                return tokens + (count(text[:partial]) if partial else 0)
            node, tokens = following, tokens + count(text)
        return tokens

    def _keep(self, name: str, path: _Path) -> None:
        session = self._sessions.setdefault(name, _Session())
        self._sessions.move_to_end(name)
        node = session.root
        for digest, kind, text in path:
            following = node.children.get(digest)
            if following is None:
                session.ends.pop(node, None)
                following = node.children[digest] = _Node(digest, kind, node)
                self._texts.take(digest, text)
                self._nodes += 1
            node = following
        if not node.children and node.parent is not None:
            session.ends[node] = None
            session.ends.move_to_end(node)
        self._forget(session)

    def _forget(self, session: _Session) -> None:
        while len(session.ends) > self._each:
            self._drop(session)
        while self._sessions and (self.held > self._most or len(self._sessions) > self._most_sessions):
            name, oldest = next(iter(self._sessions.items()))
            if oldest.ends:
                self._drop(oldest)
            if not oldest.ends:
                del self._sessions[name]

    def _drop(self, session: _Session) -> None:
        """Forget the request of a session that is longest unused, but what others share with it."""
        node, _ = session.ends.popitem(last=False)
        while node.parent is not None and not node.children:
            parent = node.parent
            del parent.children[node.digest]
            self._texts.give_back(node.digest)
            self._nodes -= 1
            node = parent


_Path = list[tuple[bytes, str, str]]  # of a request's segments: digest, kind, text


@dataclass(slots=True, eq=False)
class _Node:
    """A segment after those of its parents."""

    digest: bytes
    kind: str
    parent: _Node | None
    children: dict[bytes, _Node] = field(default_factory=dict)


@dataclass(slots=True)
class _Session:
    """`ends`: the last segments of requests that no other continues, the longest unused first."""

    root: _Node = field(default_factory=lambda: _Node(b"", "", None))
    ends: OrderedDict[_Node, None] = field(default_factory=OrderedDict)


class _Texts:
    """Packed texts by their digest, each once however many need it.

    Their beginnings are held as they are: where texts differ there already, none is unpacked.
    """

    def __init__(self) -> None:
        self.size = 0
        self._held: dict[bytes, tuple[bytes, str, int]] = {}

    def take(self, digest: bytes, text: str) -> None:
        data, beginning, needed = self._held.get(digest) or (packed(text), text[:_BEGINNING], 0)
        self._held[digest] = data, beginning, needed + 1
        if not needed:
            self.size += _TEXT + len(data)

    def give_back(self, digest: bytes) -> None:
        data, beginning, needed = self._held[digest]
        if needed > 1:
            self._held[digest] = data, beginning, needed - 1
        else:
            del self._held[digest]
            self.size -= _TEXT + len(data)

    def most_shared(self, text: str, digests: Iterable[bytes]) -> int:
        """The most characters that `text` and one of these begin with."""
        most = 0
        for digest in digests:
            data, beginning, _ = self._held[digest]
            if beginning.startswith(text[: min(most + 1, _BEGINNING)]):  # else they share no more than that
                whole = text.startswith(beginning) and len(beginning) == _BEGINNING
                most = max(most, common_characters(text, unpacked(data) if whole else beginning))
        return most


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
    """A message as the request it stands for. `missing`: it goes on from a response that is not known here, and is no
    more than it says.
    """

    body: dict[str, Any]
    own: Items
    follows: str | None
    missing: bool


def _size(response: _Response) -> int:
    return _ENTRY + len(response.items)


class Joining:
    """Remembers responses by their owner (whose key asked for them) and id, in at most `room` bytes."""

    def __init__(self, room: int = 24_000_000) -> None:
        self._responses: LRUCache[tuple[str, str], _Response] = LRUCache(room, _size)

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
        """All items up to and with this response; `None` if one on the way is not known any more, or all are more than
        is read.
        """
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
    """The id of a response that is whole, and its items: as they were finished one by one, else as its last event has
    them.
    """
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
        elif event.get("type") in ("response.completed", "response.incomplete") and isinstance(
            event.get("response"), dict
        ):
            response = event["response"]
            told = response.get("output")
            output = [items[index] for index in sorted(items)] or (told if isinstance(told, list) else [])
            return (response["id"] if isinstance(response.get("id"), str) else None), output
    return None, []
