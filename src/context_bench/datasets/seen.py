"""Which ids a file has had, in about a dozen bytes each."""

from __future__ import annotations

from array import array


class SeenIds:
    """Remembers hashes of ids in a table of its own: a set of a million texts takes 150 MB."""

    def __init__(self) -> None:
        self._table = array("q", bytes(8 * 1024))  # 0: free
        self._taken = 0

    def add(self, name: str) -> bool:
        """Remember an id; true if it is probably there already (two ids may have one hash)."""
        number = hash(name) or 1
        if not self._put(number):
            return True
        self._taken += 1
        if 4 * self._taken > 3 * len(self._table):
            old, self._table = self._table, array("q", bytes(8 * (3 * len(self._table) // 2)))
            for each in old:
                if each:
                    self._put(each)
        return False

    def _put(self, number: int) -> bool:
        table, size = self._table, len(self._table)
        at = number % size
        while there := table[at]:
            if there == number:
                return False
            at = (at + 1) % size
        table[at] = number
        return True
