"""Examples of files with one JSON object per line, the commonest kind: read as they are wanted, and passed over where
they are not.

The ids that a file has had are held in about six bytes each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.datasets.examples import id_of, tidy
from context_bench.datasets.readers import LineOfJson, json_line, lines_of_json

_TABLES = 1 << 12


class SeenIds:
    """Remembers hashes of ids in small tables of its own: a set of a million texts takes 150 MB, one large table twice
    its room to grow.

    Of a hash 12 bits say in which table it is and 32 stand there.
    """

    def __init__(self) -> None:
        self._tables = [array("I", bytes(16)) for _ in range(_TABLES)]  # 0: free
        self._taken = array("I", bytes(4 * _TABLES))

    def add(self, name: str) -> bool:
        """Remember an id; true if it is probably there already (among a million different ids, two look alike in one
        file of forty).
        """
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


def load_jsonl(path: str | Path, n: int | None = None) -> list[Example]:
    """The first `n` examples (default all) of a file with one JSON object per line.

    Blank lines are skipped and do not count; a missing id becomes the line's index, counted from 0. Raises `BadInput`
    with file and line.
    """
    return list(JsonlExamples(Path(path), str(path), n))


class JsonlExamples(Iterator[Example]):
    """Examples of a JSONL file, tagged `dataset`, the first `n` of them. Two rows with one id are an error: their
    results could not be told apart. Raises `BadInput` with file and line.
    """

    def __init__(self, path: Path, dataset: str, n: int | None = None) -> None:
        self._path, self._dataset = path, dataset
        self._left = -1 if n is None else max(n, 0)  # below 0: all
        self._lines = lines_of_json(path)
        self._seen = SeenIds()

    def __next__(self) -> Example:
        if not self._left:
            self._lines.close()
            raise StopIteration
        line = next(self._lines)
        self._left -= 1
        where = f"{self._path}:{line.number}"
        example = tidy(json_line(line, self._path), line.number - 1, self._dataset, where)
        self._meet(example["id"], line.number)
        return example

    def skip(self, count: int) -> int:
        """Pass over so many examples, as far as there are any; returns how many. Only their ids are looked at."""
        passed = 0
        while passed < count and self._left:
            line = next(self._lines, None)
            if line is None:
                break
            self._left -= 1
            passed += 1
            self._meet(self._id(line), line.number)
        return passed

    def _id(self, line: LineOfJson) -> str | int:
        try:
            found = orjson.loads(line.text).get("id")
            if found is None or type(found) is str or type(found) is int:
                return line.number - 1 if found is None else found
        except (ValueError, AttributeError):
            pass
        # Half a surrogate pair, a number of more than 64 bits, no object: as it is read where it is wanted.
        found = json_line(line, self._path).get("id")
        return id_of(line.number - 1 if found is None else found, f"{self._path}:{line.number}")

    def _meet(self, found: str | int, number: int) -> None:
        if self._seen.add(str(found)) and (before := self._line_of(str(found), number)) is not None:
            raise BadInput(
                f"{self._path}:{number}: id {found!r} was used on line {before} already; give each row its own"
            )

    def _line_of(self, name: str, until: int) -> int | None:
        """The first line before `until` whose example has this id, if there is one: two ids may have one hash."""
        for line in lines_of_json(self._path):
            if line.number >= until:
                return None
            if str(self._id(line)) == name:
                return line.number
        return None
