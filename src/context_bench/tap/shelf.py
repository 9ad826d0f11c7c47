"""Where finished records wait for whoever asks for them."""

from __future__ import annotations

import pickle
import zlib
from collections import deque
from typing import NamedTuple

from context_bench.core.records import Forwarded
from context_bench.tap.matching import Window


class Row(NamedTuple):
    """A packed record on a shelf: when it was finished and when it had arrived, both counted from 1, and who may ask for it."""

    number: int
    arrived: int
    data: bytes
    owner: str = ""

    @property
    def record(self) -> Forwarded:
        """The record again."""
        found: Forwarded = pickle.loads(zlib.decompress(self.data))  # our own bytes: packed here or in the process that reads for us
        return found


class Shelf:
    """Where finished records lie until they are asked for: all, late ones by owner, unmatched ones. They lie there packed.

    Of each kind there is room for `most` and for `most_bytes` of packed ones; the oldest go first, and `forgotten` says how many.
    `remember`: keep all of them, for whoever has the tap itself in hand.
    """

    def __init__(self, most: int = 10_000, most_bytes: int = 12_000_000, *, remember: bool = True) -> None:
        self._all, self._nobodys, self._late = (_Bounded(most, most_bytes) for _ in range(3))
        self._given: dict[str, tuple[int, int]] = {"": (0, 0)}  # by owner: the last number it has had, the last arrival before it came
        self._remember, self._number = remember, 0

    @property
    def all(self) -> list[Forwarded]:
        """All records still here, oldest first."""
        return [row.record for row in self._all.rows]

    @property
    def forgotten(self) -> int:
        """How many records there was no more room for."""
        return self._all.forgotten if self._remember else self._nobodys.forgotten + self._late.forgotten

    def welcome(self, owner: str, arrived: int) -> None:
        """A new owner is told of unmatched requests from now on, not of the `arrived` ones before it."""
        self._given.setdefault(owner, (self._number, arrived))

    def keeps(self, window: Window | None) -> bool:
        """Whether `put` will keep a record of this window, as far as can be said now. May be called in any thread."""
        return self._remember or window is None

    def put(self, record: Forwarded, window: Window | None, arrived: int, packed: bytes | None = None) -> None:
        """Take a finished record, the `arrived`-th to come in. One of a window that nobody waits for any more comes out as late."""
        self._number += 1
        if self._remember or window is None:
            row = Row(self._number, arrived, packed or packed_record(record))
            if self._remember:
                self._all.add(row)
            if window is None:
                self._nobodys.add(row)
        if window is not None and (record.late or window.collected):
            self.put_late(record, window.owner)

    def put_late(self, record: Forwarded, owner: str) -> None:
        """Keep a record until `owner` asks for what came late."""
        self._late.add(Row(self._number, 0, packed_record(record), owner))

    def take_late(self, owner: str) -> list[Forwarded]:
        """Late records of `owner`, each once."""
        return [row.record for row in self._late.take(owner)]

    def take_unmatched(self, owner: str) -> list[Forwarded]:
        """Unmatched records since `owner` last asked."""
        had, before = self._given.get(owner, (self._number, 0))
        self._given[owner] = (self._number, before)
        return [row.record for row in self._nobodys.rows if row.number > had and row.arrived > before]


class _Bounded:
    """The newest records, so many and so large."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.rows: deque[Row] = deque()
        self.forgotten = 0
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self._bytes += _held(row)
        while len(self.rows) > 1 and (len(self.rows) > self._most or self._bytes > self._most_bytes):
            self._bytes -= _held(self.rows.popleft())
            self.forgotten += 1

    def take(self, owner: str) -> list[Row]:
        """The rows of `owner`, which are no longer here."""
        found = [row for row in self.rows if row.owner == owner]
        if found:
            self.rows = deque(row for row in self.rows if row.owner != owner)
            self._bytes -= sum(map(_held, found))
        return found


def packed_record(record: Forwarded) -> bytes:
    """A record in fewer bytes; `Row.record` reads them."""
    return zlib.compress(pickle.dumps(record, pickle.HIGHEST_PROTOCOL), 1)


def _held(row: Row) -> int:
    return 200 + len(row.data)
