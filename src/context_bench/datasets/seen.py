"""Which ids a file has had, in eight bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left

_RECENT = 1 << 15


class SeenIds:
    """Remembers on which line an id was; of those long ago only a number that stands for the id, so that millions take few megabytes."""

    def __init__(self) -> None:
        self._recent: dict[str, int] = {}  # id → line
        self._older: array[int] = array("q")  # hashes, sorted

    def first(self, name: str, line: int) -> int | None:
        """The line `name` was on before, 0 if that may have been too long ago to tell; `None` if it is new, and then it is remembered."""
        if (before := self._recent.get(name)) is not None:
            return before
        number = hash(name)
        place = bisect_left(self._older, number)
        if place < len(self._older) and self._older[place] == number:
            return 0
        self._recent[name] = line
        if len(self._recent) == _RECENT:
            self._put_away()
        return None

    def _put_away(self) -> None:
        import numpy as np

        both = np.concatenate([np.array(self._older), np.fromiter(map(hash, self._recent), dtype=np.int64, count=len(self._recent))])
        both.sort(kind="stable")
        self._older, self._recent = array("q", both.tobytes()), {}
