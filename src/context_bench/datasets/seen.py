"""Which ids a file has had, in about six bytes each."""

from __future__ import annotations

from array import array

_TABLES = 1 << 12


class SeenIds:
    """Remembers hashes of ids in small tables of its own: a set of a million texts takes 150 MB, one large table twice its room to grow.

    Of a hash 12 bits say in which table it is and 32 stand there.
    """

    def __init__(self) -> None:
        self._tables = [array("I", bytes(16)) for _ in range(_TABLES)]  # 0: free
        self._taken = array("I", bytes(4 * _TABLES))

    def add(self, name: str) -> bool:
        """Remember an id; true if it is probably there already (among a million different ids, two look alike in one file of forty)."""
        number = hash(name)
        place, number = number % _TABLES, (number // _TABLES) % (1 << 32) or 1
        table = self._tables[place]
        if not _put(table, number):
            return True
        self._taken[place] += 1
        if 4 * self._taken[place] > 3 * len(table):
            larger = self._tables[place] = array("I", bytes(4 * (3 * len(table) // 2)))
            for each in table:
                if each:
                    _put(larger, each)
        return False


def _put(table: array[int], number: int) -> bool:
    size = len(table)
    at = number % size
    while there := table[at]:
        if there == number:
            return False
        at = at + 1 if at + 1 < size else 0
    table[at] = number
    return True
