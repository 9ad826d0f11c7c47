"""Memories that keep their items in order (`Listed`), and the floors, ceilings and windows made of it.

`none` is the floor: its right answers come from the question or from the model. `random` shows what search has to beat,
`recency` is a sliding window. `full_context` hands over the whole conversation; a memory should come near it with a
fraction of the tokens. `oracle` hands over the evidence: what a reader gets wrong then is the reader's fault, or the
question's.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text, seed_of
from context_bench.core.tokens import counter_for
from context_bench.memory.protocol import Hit, Item, Receipt, date_limit, dated_within
from context_bench.memory.ranking import within

MEMORIES = {
    "none": "NoMemory",
    "full_context": "FullContext",
    "naive": "FullContext",
    "recency": "Recency",
    "random": "RandomPick",
    "oracle": "Oracle",
}


def spoken(item: Item) -> str:
    """The text that is remembered of an item: a turn of a conversation with who said it, a lone fact or document as it
    is.
    """
    return item.line if item.speaker or item.session else item.text


def dated_text(item: Item) -> str:
    """An item for a memory that takes nothing but text: when and by whom it was said is kept in it."""
    return f"[{item.time}] {spoken(item)}" if item.time else spoken(item)


def sizes(texts: Iterable[str]) -> dict[str, int]:
    """`items` held, and the `bytes` of their texts in UTF-8."""
    lengths = [len(text.encode("utf-8", "replace")) for text in texts]
    return {"items": len(lengths), "bytes": sum(lengths)}


@dataclass(slots=True)
class Entry:
    """One thing remembered."""

    text: str
    source: str
    time: str | None = None
    session: str | None = None

    @classmethod
    def of(cls, item: Item) -> Entry:
        return cls(spoken(item), item.id, item.time, item.session)

    def hit(self, memory_id: str, score: float | None = None) -> Hit:
        return Hit(self.text, score, (self.source,), memory_id, self.time)


class Isolated:
    """Namespaces as copies of one memory: the same configuration, state of its own. A copy owns no connection."""

    _owner = True

    def namespace(self, name: str) -> Self:
        """An isolated instance that knows nothing yet."""
        isolated = copy.copy(self)
        isolated._owner = False
        isolated._begin(name)
        return isolated

    def delete_all(self) -> Any:
        """Forget everything of this namespace."""
        raise NotImplementedError

    def reset(self) -> Any:
        """The same as `delete_all`."""
        return self.delete_all()

    def _begin(self, name: str) -> None:
        """Be the empty namespace `name`."""
        raise NotImplementedError


class Listed(Isolated):
    """A memory that keeps its items in a dict, in order; a subclass says in `search` which of them it gives.

    Ids carry a mark of their namespace, so that one of another namespace is never taken for its own. Safe to use from
    several threads.
    """

    name = "listed"
    capabilities = frozenset(
        {"add", "search", "delete", "delete_all", "update", "timestamps", "source_ids", "namespaces", "stats"}
    )
    batch: int | None = 500
    _lock: threading.RLock
    _entries: dict[str, Entry]

    def __init__(self) -> None:
        self._begin("")

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        with self._lock:
            ids = [f"{self._mark}-{number}" for number in range(self._next, self._next + len(items))]
            self._next += len(items)
            self.insert(ids, items)
        return [Receipt(item.id, memory_id) for item, memory_id in zip(items, ids, strict=True)]

    def delete(self, memory_id: str) -> bool:
        with self._lock:
            return self._entries.pop(memory_id, None) is not None

    def update(self, memory_id: str, text: str) -> bool:
        with self._lock:
            entry = self._entries.get(memory_id)
            if entry is None:
                return False
            self._entries[memory_id] = replace(entry, text=text)
            return True

    def delete_all(self) -> None:
        with self._lock:
            self._entries = {}

    def stats(self) -> dict[str, int]:
        with self._lock:
            return sizes(entry.text for entry in self._entries.values())

    def close(self) -> None:
        self.delete_all()

    def _begin(self, name: str) -> None:
        self._mark = hash_text(name, 8)
        self._next = 1
        self._entries = {}
        self._lock = threading.RLock()

    def insert(self, ids: Sequence[str], items: Sequence[Item]) -> None:
        """Keep items under ids that somebody else gave them."""
        self._entries.update(zip(ids, map(Entry.of, items), strict=True))

    def _held(self, as_of: str | None = None) -> list[tuple[str, Entry]]:
        """Entries that are held now and were known `as_of` then, oldest first."""
        until = date_limit(as_of)
        with self._lock:
            return [(memory_id, entry) for memory_id, entry in self._entries.items() if dated_within(entry.time, until)]


class NoMemory:
    """Takes everything, keeps nothing, finds nothing."""

    name = "none"
    capabilities = frozenset({"add", "search", "source_ids", "namespaces", "stats"})
    batch: int | None = None

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        return []

    def reset(self) -> None:
        """There is nothing to forget."""

    def namespace(self, name: str) -> NoMemory:
        return NoMemory()

    def stats(self) -> dict[str, int]:
        return sizes(())


class FullContext(Listed):
    """Everything that was added and is not dated after the question, in its order, whatever `k` is; only a token budget
    shortens it.
    """

    name = "full_context"
    ignores_k = True

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        return [entry.hit(memory_id) for memory_id, entry in self._held(as_of)]


class Oracle(Listed):
    """The only memory that is told the evidence of a question (`wants_evidence`); gives those items, whatever `k` is.

    Evidence that names sessions instead of items gives the items of these sessions. Without known evidence it finds
    nothing. `as_of` leaves nothing out: a dataset that names evidence dated after its question means it.
    """

    name = "oracle"
    wants_evidence = True
    ignores_k = True

    def search(self, query: str, k: int, *, as_of: str | None = None, evidence: Sequence[str] = ()) -> list[Hit]:
        """The items whose ids are in `evidence`, or else those whose session is, in the order of the conversation."""
        held, wanted = self._held(), set(evidence)
        found = [entry.hit(memory_id) for memory_id, entry in held if entry.source in wanted]
        return found or [entry.hit(memory_id) for memory_id, entry in held if entry.session in wanted]


class Recency(Listed):
    """The newest items first: at most `k`, at most the last `n`, at most `tokens` of text (o200k_base). Newest = added
    last.
    """

    name = "recency"

    def __init__(self, n: int | None = None, tokens: int | None = None) -> None:
        if any(limit is not None and limit < 1 for limit in (n, tokens)):
            raise BadInput(f"recency needs n and tokens of 1 or more, not n={n}, tokens={tokens}")
        super().__init__()
        self.n, self.tokens = n, tokens

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The window, newest first; the query plays no part."""
        limit = k if self.n is None else min(k, self.n)
        newest = [entry.hit(memory_id) for memory_id, entry in self._held(as_of)[::-1][: max(0, limit)]]
        if self.tokens is None:
            return newest
        counter = counter_for()
        return newest[: within((counter.count(hit.text) for hit in newest), self.tokens)]


class RandomPick(Listed):
    """`k` items by lot: the same ones for the same seed, question and number of items, in any namespace."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Drawn without putting back."""
        held = self._held(as_of)
        picks = random.Random(seed_of(self.seed, query)).sample(held, min(max(0, k), len(held)))
        return [entry.hit(memory_id) for memory_id, entry in picks]
