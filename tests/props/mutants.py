"""Twelve memories with one fault each, all of kinds that are shipped, and the honest one they are made from: they test
the tests.

Each is a good store (`Honest`, SQLite in a file) that does one thing wrong. `CAUGHT_BY` says which operational suite
has to notice.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from context_bench.core.text import tokens
from context_bench.memory.protocol import Hit, Item, Receipt
from context_bench.memory.systems.bm25_memory import BM25

_EVERY = 7
_LONGEST = 512  # characters
_MORE = 5
_ALIKE = 0.8  # share of common words from which two items are taken for the same
_THREADS = 4
_HELD_BACK = 8  # writes
_ASLEEP = 3.0  # seconds


class Honest(BM25):
    """The reference: nothing is wrong with it."""

    name = "honest"

    def __init__(self, path: str | Path | None = None, synchronous: str = "FULL", *, space: str = "") -> None:
        super().__init__(path, synchronous, space=space)

    def namespace(self, name: str) -> Honest:
        """The namespace `name` of the same file."""
        return type(self)(self.path, self.synchronous, space=name)


class DropsEverySeventh(Honest):
    """Acknowledges every write and does not make every seventh."""

    name = "drops-every-seventh"
    _written = 0

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        kept = []
        for item in items:
            self._written += 1
            if self._written % _EVERY:
                kept.append(item)
        good = {receipt.item_id: receipt for receipt in super().add(kept)}
        return [good.get(item.id, Receipt(item.id, f"{self._mark}-999{number}")) for number, item in enumerate(items)]


class NewestOnly(Honest):
    """Finds what was added last, whatever it is asked."""

    name = "newest-only"

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        table = self._table
        statement = f"SELECT rowid, coalesce(whole, text), source, time FROM {table} ORDER BY rowid DESC LIMIT ?"
        with self._lock:
            rows = self._db.execute(statement, (k,)).fetchall()
        return [
            Hit(text, -float(place), (source,), f"{self._mark}-{row}", when)
            for place, (row, text, source, when) in enumerate(rows)
        ]


class Leaks(Honest):
    """Has namespaces in name only: when its own has too little to say, it looks everywhere."""

    name = "leaks"

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        hits = super().search(query, k)
        with self._lock:
            spaces = [
                name for (name,) in self._db.execute("SELECT name FROM spaces WHERE name <> ?", (self._space_name,))
            ]
        for space in spaces if len(hits) < k else ():
            other = Honest(self.path, space=space) if self.path else None
            if other is not None:
                with contextlib.closing(other):
                    hits += other.search(query, k - len(hits))
        return hits


class Tombstones(Honest):
    """Remembers what was deleted and leaves it out of what it shows; the index keeps it, words, places and all."""

    name = "tombstones"

    def delete(self, memory_id: str) -> bool:
        row = self._row(memory_id)
        with self._writing() as db:
            db.execute("CREATE TABLE IF NOT EXISTS tombstones (space INTEGER, row INTEGER)")
            db.execute("INSERT INTO tombstones VALUES (?, ?)", (self._space, row))
        return row is not None

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        hits = super().search(query, k)
        with self._writing() as db:
            db.execute("CREATE TABLE IF NOT EXISTS tombstones (space INTEGER, row INTEGER)")
            dead = {
                f"{self._mark}-{row}"
                for (row,) in db.execute("SELECT row FROM tombstones WHERE space = ?", (self._space,))
            }
        return [hit for hit in hits if hit.memory_id not in dead]


class AcksBeforeCommit(Honest):
    """Says that a thing is stored and writes it with the next few; searching or closing writes the rest."""

    name = "acks-before-commit"
    _next = 1_000_000

    def __init__(self, path: str | Path | None = None, synchronous: str = "FULL", *, space: str = "") -> None:
        super().__init__(path, synchronous, space=space)
        self._waiting: list[Item] = []

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        self._waiting += items
        if len(self._waiting) >= _HELD_BACK:
            self._write()
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        self._write()
        return super().search(query, k)

    def flush(self, seconds: float | None = None) -> None:
        self._write()
        super().flush(seconds)

    def _write(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            super().add(waiting)


class Reorders(Honest):
    """With four writers it queues: a writer's item waits until the same writer's next one is in."""

    name = "reorders"

    def __init__(self, path: str | Path | None = None, synchronous: str = "FULL", *, space: str = "") -> None:
        super().__init__(path, synchronous, space=space)
        self._held: dict[int, Sequence[Item]] = {}
        self._writers: set[int] = set()

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        writer = threading.get_ident()
        with self._lock:
            self._writers.add(writer)
            if len(self._writers) < _THREADS:
                return super().add(items)
            if writer not in self._held:
                self._held[writer] = items
                return [Receipt(item.id) for item in items]
            receipts = super().add(items)
            super().add(self._held.pop(writer))
        return receipts

    def flush(self, seconds: float | None = None) -> None:
        with self._lock:
            for writer in list(self._held):
                super().add(self._held.pop(writer))
        super().flush(seconds)


class Truncates(Honest):
    """Keeps the first 512 characters."""

    name = "truncates"

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        return super().add(
            [Item(item.id, item.text[:_LONGEST], item.role, item.speaker, item.time, item.session) for item in items]
        )


class MoreThanK(Honest):
    """Gives five hits more than asked for."""

    name = "more-than-k"

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        return super().search(query, k + _MORE)


class MergesAlike(Honest):
    """Takes an item for one that it has if most of their words are the same; and says that it stored it."""

    name = "merges-alike"

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        receipts = []
        for item in items:
            near = super().search(item.text, 1)
            if near and _alike(near[0].text, item.text):
                receipts.append(Receipt(item.id, near[0].memory_id))
            else:
                receipts += super().add([item])
        return receipts


class Oversleeps(Honest):
    """Now and then asks a program, kills it when time is up, and then waits for what that had started, which holds the
    pipe.
    """

    name = "oversleeps"
    _asked = 0

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        self._asked += 1
        if self._asked % 50 == 0:
            program = subprocess.Popen(["sh", "-c", f"(echo up; exec sleep {_ASLEEP}) & wait"], stdout=subprocess.PIPE)
            assert program.stdout is not None
            program.stdout.readline()
            program.kill()  # "time is up"
            program.communicate()
        return super().search(query, k)


class Swallows(Honest):
    """Whatever goes wrong, it found nothing."""

    name = "swallows"

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        try:
            return super().search(query, k)
        except Exception:  # this is the fault
            return []


class Echoes(Honest):
    """Gives the question back as its best memory."""

    name = "echoes"

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        hits = super().search(query, k)
        best = (hits[0].score or 0.0) + 1.0 if hits else 1.0
        return [Hit(query, best), *hits][:k]


def _alike(one: str, other: str) -> bool:
    ours, theirs = set(tokens(one)), set(tokens(other))
    return len(ours & theirs) >= _ALIKE * len(ours | theirs) > 0


#: Mutant → the suites of which each has to notice it. They may be noticed by others too.
CAUGHT_BY: dict[type[Honest], tuple[str, ...]] = {
    DropsEverySeventh: ("growth",),
    NewestOnly: ("growth",),
    Leaks: ("isolation",),
    Tombstones: ("delete",),
    AcksBeforeCommit: ("crash",),
    Reorders: ("concurrency",),
    Truncates: ("growth",),
    MoreThanK: ("growth",),
    MergesAlike: ("growth",),
    Oversleeps: ("growth",),
    Swallows: ("growth",),
    Echoes: ("growth",),
}

MUTANTS = tuple(CAUGHT_BY)


def spec_of(store: type[Honest], folder: str = "{dir}") -> str:
    """How to name a mutant where a memory is asked for; its file is in `folder`."""
    return f"py:{__name__}:{store.__name__}:path={folder}/store.db"
