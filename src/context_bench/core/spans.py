"""Sets of lines and bytes as lists of ranges: both ends included, sorted, and never touching one another.

Lines are counted from 1. Only LF ends a line: a carriage return, a form feed or a Unicode line separator is a byte like
any other, CRLF keeps its CR, and a byte order mark belongs to line 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Range = tuple[int, int]
Ranges = list[Range]


def merged(ranges: Iterable[Range]) -> Ranges:
    """The union of ranges; those that touch (3-5, 6-8) become one. A range whose end lies before its start is empty and
    left out.
    """
    out: Ranges = []
    for first, last in sorted(pair for pair in ranges if pair[0] <= pair[1]):
        if out and first <= out[-1][1] + 1:
            if last > out[-1][1]:
                out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return out


def size(ranges: Iterable[Range]) -> int:
    """Number of lines (or bytes) in merged ranges."""
    return sum([last - first + 1 for first, last in ranges])


def common(a: Sequence[Range], b: Sequence[Range]) -> Ranges:
    """Intersection of two merged sets."""
    out: Ranges = []
    i = j = 0
    while i < len(a) and j < len(b):
        first, last = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if first <= last:
            out.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def without(a: Sequence[Range], b: Sequence[Range]) -> Ranges:
    """Difference of merged sets: `a` without `b`."""
    out: Ranges = []
    j = 0
    for start, end in a:
        first = start
        while j < len(b) and b[j][1] < first:
            j += 1
        k = j
        while k < len(b) and b[k][0] <= end:
            if first < b[k][0]:
                out.append((first, b[k][0] - 1))
            first = b[k][1] + 1
            k += 1
        if first <= end:
            out.append((first, end))
    return out


def holds(ranges: Sequence[Range], place: int) -> bool:
    """True if a merged set holds this line (or byte)."""
    index = bisect_right(ranges, (place, place))
    return (index < len(ranges) and ranges[index][0] == place) or (index > 0 and ranges[index - 1][1] >= place)


@dataclass(frozen=True, slots=True)
class LineTable:
    """Starts of the lines of a file: `starts[i]` is the first byte of line i + 1, `length` the size of the file in
    bytes.

    An empty file has no lines. A final LF ends the last line and begins no other. `blank`: the lines with nothing but
    white space.
    """

    starts: tuple[int, ...]
    length: int
    blank: tuple[Range, ...] = ()
    ends_in_newline: bool = True

    @classmethod
    def of(cls, data: bytes) -> LineTable:
        """The table of a file's bytes."""
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        starts = tuple(accumulate([length + 1 for length in map(len, lines[:-1])], initial=0)) if lines else ()
        blank = _runs([number for number, line in enumerate(lines, 1) if not line or line.isspace()])
        return cls(starts, len(data), blank, data.endswith(b"\n"))

    @property
    def lines(self) -> int:
        """Number of lines of the file."""
        return len(self.starts)

    def clamp(self, ranges: Iterable[Range]) -> Ranges:
        """The lines of these ranges that the file has, merged. Reversed ranges are turned; below 1 the last line means
        the end.
        """
        out = []
        for first, last in ranges:
            if last <= 0:
                last = self.lines
            elif last < first:
                first, last = last, first
            out.append((max(1, first), min(last, self.lines)))
        return merged(out)

    def everything(self) -> Ranges:
        """All lines of the file."""
        return [(1, self.lines)] if self.lines else []

    def bytes_of(self, lines: Iterable[Range]) -> Ranges:
        """The bytes of lines of this file (as `clamp` gives them), line ends included."""
        return merged((self.starts[first - 1], self._end(last)) for first, last in lines)

    def line_of(self, offset: int) -> int:
        """The line a byte belongs to."""
        return bisect_right(self.starts, offset)

    def _end(self, line: int) -> int:
        return (self.starts[line] if line < len(self.starts) else self.length) - 1


def _runs(numbers: Iterable[int]) -> tuple[Range, ...]:
    """Growing numbers as ranges."""
    out: Ranges = []
    first = last = -1
    for number in numbers:
        if number != last + 1:
            if first > 0:
                out.append((first, last))
            first = number
        last = number
    if first > 0:
        out.append((first, last))
    return tuple(out)
