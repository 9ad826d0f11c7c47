"""What scoring asks about a repository: its paths, where lines begin, and what is defined where."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple, Protocol

from context_bench.core.spans import LineTable, Range


class Definition(NamedTuple):
    """A definition in a file: kind of its syntax node, its names, first byte, byte after the last."""

    kind: str
    names: tuple[str, ...]
    start: int
    end: int


class Definitions:
    """The definitions of one file in the order of their beginnings, found by what they hold and by name without looking at each."""

    def __init__(self, items: Iterable[Definition], with_names: Callable[[], Iterable[Definition]] | None = None) -> None:
        """`with_names`: the same items with their names, where those of `items` were left out."""
        self.items = sorted(items, key=lambda one: (one[2], -one[3], one[0]))
        self._with_names = with_names
        self._starts = [one[2] for one in self.items]
        self._reach = list(accumulate([one[3] for one in self.items], max))  # how far those up to here go
        self._by_name: dict[str, list[Definition]] | None = None

    def __iter__(self) -> Iterator[Definition]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def touched(self, spans: Iterable[Range]) -> Iterator[Definition]:
        """Those that bytes of `spans` touch, enclosing ones too; one that two spans touch comes twice.

        As in the original, a span that begins at the byte after a definition touches it (never so where a line end lies between).
        """
        for first, last in spans:
            for index in range(bisect_left(self._reach, first), bisect_right(self._starts, last)):
                if self.items[index].end >= first:
                    yield self.items[index]

    def named(self, name: str) -> list[Definition]:
        """Every definition of this name, else of what comes after its last dot."""
        if self._by_name is None:
            self._by_name = {}
            for one in sorted(self._with_names(), key=lambda one: (one[2], -one[3], one[0])) if self._with_names else self.items:
                for known in one.names:
                    self._by_name.setdefault(known, []).append(one)
        name = name.strip()
        return self._by_name.get(name) or self._by_name.get(name.rsplit(".", 1)[-1]) or []


class Files(Protocol):
    """What scoring asks about the repository at the commit the agent started from."""

    def paths(self) -> Collection[str]: ...

    def table(self, path: str) -> LineTable | None:
        """Where the lines of a file begin; `None` if there is no such file."""

    def definitions(self, path: str, profile: str) -> Definitions | None:
        """The definitions of a file; `None` if nothing can tell (no grammar is installed)."""
