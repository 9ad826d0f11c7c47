"""Selections and gold as sets of one repository: files, symbols, bytes and lines, which is what the levels count.

`UpstreamSurveyor` makes them as the original evaluator does, faults included.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from context_bench.core.ledger import LineTable, Range, Ranges, common, size, without
from context_bench.traces.coverage.selection import Definitions, Policy, RepositoryFiles, Resolver, Selection, Symbol
from context_bench.traces.gold import GoldItem, clean_path, upstream_path

Sizes = tuple[int, int, int, int]  # by level, in the order of `LEVELS`
_NONE = Definitions(())


@dataclass(slots=True)
class Cover:
    """The selected places as sets. `spans_named`: ranges were given, of whatever size."""

    files: set[str] = field(default_factory=set)
    symbols: set[Symbol] = field(default_factory=set)
    spans: dict[str, Ranges] = field(default_factory=dict)
    lines: dict[str, Ranges] = field(default_factory=dict)
    spans_named: bool = False

    def sizes(self) -> Sizes:
        """Size at each level."""
        return len(self.files), len(self.symbols), total(self.spans), total(self.lines)

    def common(self, other: Cover) -> Cover:
        """Intersection with another cover."""
        return Cover(
            self.files & other.files,
            self.symbols & other.symbols,
            _meet(self.spans, other.spans),
            _meet(self.lines, other.lines),
        )

    def add(self, other: Cover) -> None:
        """Hold what the other holds, too."""
        self.files |= other.files
        self.symbols |= other.symbols
        for mine, theirs in ((self.spans, other.spans), (self.lines, other.lines)):
            for path, ranges in theirs.items():
                known = mine.get(path)
                mine[path] = joined([*known, *ranges] if known else ranges)


class Surveyor:
    """Makes covers of selections and gold, by our own policy."""

    implied_files = True
    """A file whose lines or symbols were read was read, named as a file or not."""

    def __init__(self, files: RepositoryFiles, policy: Policy, cwd: str | None, longest: int | None = None) -> None:
        self.files, self.profile, self.longest = files, policy.profile, longest
        self.too_long = 0
        """Reads above `longest` lines, which count as reads of the file alone."""
        self.resolver = self.resolver_for(files, cwd)
        self.unresolved: Counter[str] = Counter()
        self.blind = False
        """Definitions were asked for, and no grammar is there to tell them."""
        self._known: dict[str, str | None] = {}

    def cover(self, selection: Selection) -> Cover:
        """Make the cover of a selection. Paths of no file are counted in `unresolved`."""
        named = {*selection.files, *(path for path, _ in selection.spans), *selection.symbols}
        self.unresolved.update(path for path in named if self._resolve(path) is None)
        out = Cover(files={found for path in selection.files if (found := self._resolve(path)) is not None})
        symbols = {
            found: names
            for path, names in selection.symbols.items()
            if names and (found := self._resolve(path)) is not None
        }
        by_path: dict[str, list[Range]] = {}
        for path, ranges in selection.spans:
            found = self._resolve(path)
            if found is None:
                continue
            out.spans_named = True
            if self.implied_files:
                out.files.add(found)
            if ranges is not None:
                by_path.setdefault(found, []).extend(self.everything(found) if ranges == "all" else ranges)
        for path, pairs in by_path.items():
            self.add_lines(out, path, self._short(path, pairs))
        if not symbols:
            self._add_touched(out)
            return out
        for path, names in symbols.items():
            out.symbols.update(self._named(path, names))
        if self.implied_files:
            out.files.update(symbols)
        return out

    def gold(self, items: Iterable[GoldItem]) -> Cover:
        """Make the cover of gold: its files, present or not, and the rest for files that are present."""
        by_path = self.gold_ranges(items)
        out = Cover(files=set(by_path))
        for path, pairs in by_path.items():
            self.add_lines(out, path, pairs)
        self._add_touched(out)
        return out

    def gold_ranges(self, items: Iterable[GoldItem]) -> dict[str, list[Range]]:
        """The ranges of gold by file, as they are written; one that names no file is none."""
        by_path: dict[str, list[Range]] = {}
        for item in items:
            if item.file:
                by_path.setdefault(self.gold_path(item.file), []).append((item.first, item.last))
        return by_path

    def gold_lines(self, items: Iterable[GoldItem]) -> dict[str, Ranges]:
        """The lines that gold holds."""
        return self.gold(items).lines

    def missing(self, items: Iterable[GoldItem]) -> list[str]:
        """The files of gold that are not there."""
        return [
            path for path in dict.fromkeys(self.gold_path(item.file) for item in items) if self._table(path) is None
        ]

    # -- what the original does otherwise (`upstream`) -----------------------

    def resolver_for(self, files: RepositoryFiles, cwd: str | None) -> Resolver:
        return Resolver(files.paths(), cwd)

    def gold_path(self, path: str) -> str:
        return posixpath.normpath(clean_path(path))

    def stored_path(self, path: str) -> str:
        """The name under which the repository has a file."""
        return path

    def everything(self, path: str) -> Ranges:
        """The lines of a file read whole."""
        table = self._table(path)
        return table.everything() if table is not None else []

    def add_lines(self, out: Cover, path: str, pairs: list[Range]) -> None:
        """Put lines of a file, and their bytes, into a cover."""
        table = self._table(path)
        if table is not None and (clamped := table.clamp(pairs)):
            out.lines[path] = clamped
            out.spans[path] = table.bytes_of(clamped)

    # -------------------------------------------------------------------------

    def nonblank(self, cover: Cover) -> dict[str, Ranges]:
        """The lines of a cover that hold anything but white space."""
        lines = ((path, ranges, self._table(path)) for path, ranges in cover.lines.items())
        return {path: without(ranges, table.blank) if table is not None else ranges for path, ranges, table in lines}

    def _short(self, path: str, pairs: list[Range]) -> list[Range]:
        """The ranges that are not too long, as long as they are in the file."""
        table = self._table(path)
        if self.longest is None or table is None:
            return pairs
        kept = [pair for pair in pairs if size(table.clamp([pair])) <= self.longest]
        self.too_long += len(pairs) - len(kept)
        return kept

    def _resolve(self, path: str) -> str | None:
        if path not in self._known:
            self._known[path] = self.resolver.resolve(path)
        return self._known[path]

    def _table(self, path: str) -> LineTable | None:
        return self.files.table(self.stored_path(path))

    def _definitions(self, path: str) -> Definitions:
        found = self.files.definitions(self.stored_path(path), self.profile)
        if found is None:
            self.blind = True
        return found or _NONE

    def _add_touched(self, out: Cover) -> None:
        for path, spans in out.spans.items():
            out.symbols.update((path, one.kind, one.start, one.end) for one in self._definitions(path).touched(spans))

    def _named(self, path: str, names: Iterable[str]) -> Iterator[Symbol]:
        for name in names:
            for one in self._definitions(path).named(name):
                yield path, one.kind, one.start, one.end


def total(by_path: Mapping[str, Ranges]) -> int:
    """Count the lines (or bytes) in all files."""
    return sum([last - first + 1 for ranges in by_path.values() for first, last in ranges])


def joined(ranges: Iterable[Range]) -> Ranges:
    """The union of ranges like `spans.merged`, but reversed ones stay in it, with sizes below zero: the original counts
    them so.
    """
    out: Ranges = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def _meet(a: Mapping[str, Ranges], b: Mapping[str, Ranges]) -> dict[str, Ranges]:
    return {path: both for path, ranges in a.items() if path in b and (both := common(ranges, b[path]))}


class UpstreamResolver(Resolver):
    """Leading components are dropped one by one until a file exists, down to the bare name."""

    def resolve(self, path: str) -> str | None:
        path = path.strip().strip("'\"").replace("\\", "/")
        while path.startswith("./"):
            path = path[2:]
        parts = [part for part in path.split("/") if part]
        for n in range(len(parts)):
            ending = "/".join(parts[n:])
            if posixpath.normpath(ending) in self._paths:
                return ending
        return None


class UpstreamSurveyor(Surveyor):
    """Only files named as such are files read, `"all"` is no line, ranges are taken as they come, and lines count
    without a file.
    """

    implied_files = False

    def resolver_for(self, files: RepositoryFiles, cwd: str | None) -> Resolver:
        return UpstreamResolver(files.paths(), cwd)

    def gold_path(self, path: str) -> str:
        return upstream_path(path)

    def stored_path(self, path: str) -> str:
        return posixpath.normpath(path)

    def everything(self, path: str) -> Ranges:
        return []

    def gold_lines(self, items: Iterable[GoldItem]) -> dict[str, Ranges]:
        """As they are written, those below line 1 too."""
        return {path: joined(pairs) for path, pairs in self.gold_ranges(items).items()}

    def add_lines(self, out: Cover, path: str, pairs: list[Range]) -> None:
        if lines := _lines(pairs):
            out.lines[path] = lines
        table = self._table(path)
        if table is not None and (spans := joined(filter(None, (_bytes(table, *pair) for pair in pairs)))):
            out.spans[path] = spans


def _lines(pairs: Iterable[Range]) -> Ranges:
    return joined((first, last) for first, last in pairs if first > 0 and last > 0)


def _bytes(table: LineTable, first: int, last: int) -> Range | None:
    """The bytes of lines: a first line below 1 is 1, a last line before the first is the first.

    An empty file has one byte, and so has the line that a final line end would begin.
    """
    if not table.length:
        return (0, 0)
    first = max(1, first)
    last = max(first, last)
    if first > table.lines:
        return (table.length, table.length) if first == table.lines + 1 and table.ends_in_newline else None
    end = table.starts[last] - 1 if last < table.lines else table.length - 1
    return table.starts[first - 1], end
