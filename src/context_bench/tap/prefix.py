"""How much of a request its session has sent before: what a provider's prompt cache could have reused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from context_bench.core.keys import digest_of, packed, unpacked
from context_bench.wire.cache import Segments, common_characters

_NODE, _TEXT, _SESSION = 300, 200, 600  # bytes of Python's own for each, roughly


class Prefixes:
    """Remembers what each session has sent: at most `room` bytes in all and so many `sessions`, those longest unused go first, and of each
    session the `each` latest requests that no later one continues.

    Requests are held as paths of a tree, so that what they share at their start is there once; their texts packed, in memory only, one that
    several sessions send once.
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
        """Tokens of the longest prefix shared with an earlier request of `session`; `None` for its first. Then remembers this one."""
        path = [(digest_of(kind, text), kind, text) for kind, text in request]
        known = self._sessions.get(session)
        tokens = None if known is None else self._known(known, path, count)
        self._keep(session, path)
        return tokens

    def _known(self, session: _Session, path: _Path, count: Callable[[str], int]) -> int:
        node, tokens = session.root, 0
        for digest, kind, text in path:
            if (following := node.children.get(digest)) is None:
                alike = (self._texts.text(other.digest) for other in node.children.values() if other.kind == kind)
                partial = max((common_characters(text, other) for other in alike), default=0)
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
    """Packed texts by their digest, each once however many need it."""

    def __init__(self) -> None:
        self.size = 0
        self._held: dict[bytes, tuple[bytes, int]] = {}

    def take(self, digest: bytes, text: str) -> None:
        data, needed = self._held.get(digest) or (packed(text), 0)
        self._held[digest] = data, needed + 1
        if not needed:
            self.size += _TEXT + len(data)

    def give_back(self, digest: bytes) -> None:
        data, needed = self._held[digest]
        if needed > 1:
            self._held[digest] = data, needed - 1
        else:
            del self._held[digest]
            self.size -= _TEXT + len(data)

    def text(self, digest: bytes) -> str:
        return unpacked(self._held[digest][0])
