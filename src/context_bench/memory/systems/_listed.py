"""Items in the order in which they came: what every memory without an index of its own is made of."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from context_bench.core.keys import hash_text
from context_bench.memory.protocol import Hit, Item, Receipt, known_by, known_until

_Self = TypeVar("_Self", bound="Listed")


def spoken(item: Item) -> str:
    """What is remembered of an item: a turn of a conversation with who said it, a lone fact or document as it is."""
    return item.line if item.speaker or item.session else item.text


@dataclass(slots=True)
class Entry:
    """One thing kept."""

    text: str
    source: str
    time: str | None = None
    session: str | None = None

    @classmethod
    def of(cls, item: Item) -> Entry:
        """What is kept of an item."""
        return cls(spoken(item), item.id, item.time, item.session)

    def hit(self, memory_id: str, score: float | None = None) -> Hit:
        """The entry as found."""
        return Hit(self.text, score, (self.source,), memory_id, self.time)


class Listed:
    """A memory that keeps its items in a dict, in order; a subclass says in `search` which of them it gives.

    Ids carry a mark of their namespace, so that one of another namespace is never taken for its own. Safe to use from several threads.
    """

    name = "listed"
    capabilities = frozenset({"add", "delete", "delete_all", "update", "timestamps", "source_ids", "namespaces", "stats"})
    batch: int | None = 500
    _lock: threading.RLock
    _entries: dict[str, Entry]

    def __init__(self) -> None:
        self._begin("")

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Keep the items; every one is acknowledged."""
        with self._lock:
            ids = [f"{self._mark}-{number}" for number in range(self._next, self._next + len(items))]
            self._next += len(items)
            self._insert(ids, items)
        return [Receipt(item.id, memory_id) for item, memory_id in zip(items, ids, strict=True)]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The hits, best first; subclasses decide."""
        raise NotImplementedError

    def delete(self, memory_id: str) -> bool:
        """Forget one entry; whether there was one."""
        with self._lock:
            return self._entries.pop(memory_id, None) is not None

    def update(self, memory_id: str, text: str) -> bool:
        """Put `text` in the place of what an entry says; whether there was one."""
        with self._lock:
            found = self._entries.get(memory_id)
            if found is None:
                return False
            self._entries[memory_id] = Entry(text, found.source, found.time, found.session)
            return True

    def delete_all(self) -> None:
        """Forget everything of this namespace; ids are not used again."""
        with self._lock:
            self._entries = {}

    def reset(self) -> None:
        """The same as `delete_all`."""
        self.delete_all()

    def namespace(self: _Self, name: str) -> _Self:
        """An isolated twin that knows nothing yet."""
        twin = copy.copy(self)
        twin._begin(name)
        return twin

    def stats(self) -> dict[str, int]:
        """`items` held and the `bytes` of their texts (UTF-8)."""
        with self._lock:
            return {
                "items": len(self._entries),
                "bytes": sum(len(entry.text.encode("utf-8", "replace")) for entry in self._entries.values()),
            }

    def close(self) -> None:
        """Let go of what is held."""
        self.delete_all()

    def _begin(self, name: str) -> None:
        """Be the empty namespace `name`."""
        self._mark = hash_text(name, 8)
        self._next = 1
        self._entries = {}
        self._lock = threading.RLock()

    def _insert(self, ids: Sequence[str], items: Sequence[Item]) -> None:
        self._entries.update(zip(ids, map(Entry.of, items), strict=True))

    def _held(self, as_of: str | None = None) -> list[tuple[str, Entry]]:
        """What is held now and was known `as_of` then, oldest first."""
        until = known_until(as_of)
        with self._lock:
            return [(memory_id, entry) for memory_id, entry in self._entries.items() if known_by(entry.time, until)]
