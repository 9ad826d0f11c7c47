"""Covers as the original evaluator makes them, faults included."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from context_bench.core.spans import LineTable, Range, Ranges
from context_bench.traces.coverage.covers import Cover, Surveyor, joined
from context_bench.traces.coverage.repository import Files
from context_bench.traces.coverage.resolving import Resolver
from context_bench.traces.gold import GoldItem, upstream_path


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
    """Only files named as such are files read, `"all"` is no line, ranges are taken as they come, and lines count without a file."""

    implied_files = False

    def resolver_for(self, files: Files, cwd: str | None) -> Resolver:
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
