"""Calls by the work that made them, and spans of lines in files.

A ledger is open while one work item runs, and takes every call made meanwhile.

The current ledger lives in a context variable, so concurrent work does not mix, and a system written by a user need not
know of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from context_bench.core.protocols import Spend
from context_bench.core.records import Account, Call, Usage


@dataclass(frozen=True, slots=True)
class Mark:
    """A sign by which the calls of one conversation are recognised behind a proxy.

    `mode` "key": `token` is sent as the API key (the tap swaps in the real one); "header": as `x-context-bench`;
    "serial": nothing is sent, the tap attributes by time.
    """

    mode: str
    token: str


@dataclass(frozen=True, slots=True)
class BaselinePairing:
    """The way in which one piece of work goes with the baseline's on the same example, for a tap that both pass.

    `example`: names the example, its trial and the baseline. `first`: the work is the baseline's own, whose replies are
    remembered. `copies`: a request that arrives as one of the baseline's did is answered with the reply to that one.
    `aside`: text that we ourselves put in front of each request of this arm; it is left out when requests are compared.
    `evidence`: pieces of the context; a request in which all of them arrived is taken for the baseline's only one.
    `arms`: how many others are compared with the baseline on this example, where that is known: once the windows of all
    are over, its replies are forgotten.
    """

    example: str
    first: bool = False
    copies: bool = True
    aside: str = ""
    evidence: Sequence[str] = ()
    arms: int | None = None


@dataclass(slots=True)
class Ledger:
    """The calls of one piece of work on one account, and the rules that hold for them.

    `replies`: what a `ReplyCache` is to remember, by key; kept together with the calls that paid for it, never before
    them. `waiting`: who is told of a wait for an endpoint that gives no answer. `brief`: somebody stands by, so what
    looks down is asked once more at most. `in_full`: tokens of the request as it would have been sent, where a system
    of this process shortens before it asks. `needs_bill`: what is asked is also asked for what it is billed, so a
    stream that breaks off between its answer and its bill is asked for once more.
    """

    account: Account = "system"
    mark: Mark | None = None
    spend: Spend | None = None
    deadline: float | None = None  # on the clock's monotonic(); the whole example's, not one attempt's
    calls: list[Call] = field(default_factory=list)
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: Callable[[str], None] | None = None
    brief: bool = False
    in_full: int | None = None
    needs_bill: bool = False

    def record(self, call: Call) -> None:
        """Write one attempt down."""
        self.calls.append(call)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for a slot or in back-off."""
        return sum(call.waited for call in self.calls)

    @property
    def usage(self) -> Usage | None:
        """Billed tokens of all attempts, or `None` if no reply told."""
        known = [call.usage for call in self.calls if call.usage]
        return sum(known[1:], known[0]) if known else None

    @property
    def cost(self) -> float | None:
        """US dollars of all attempts, or `None` if no price is known."""
        known = [call.cost for call in self.calls if call.cost is not None]
        return sum(known) if known else None


_current: ContextVar[Ledger | None] = ContextVar("context_bench_ledger", default=None)


def current_ledger() -> Ledger | None:
    """The ledger that calls made right here belong to, if one is open."""
    return _current.get()


class open_ledger:
    """Make `ledger` the current one for the block (and for tasks and threads started with its context)."""

    __slots__ = ("_ledger", "_token")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> Ledger:
        self._token: Token[Ledger | None] = _current.set(self._ledger)
        return self._ledger

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


Range = tuple[int, int]
Ranges = list[Range]


def merged(ranges: Iterable[Range]) -> Ranges:
    """The union of ranges; those that touch (3-5, 6-8) become one. A range whose end lies before its start is empty and
    left out.
    """
    found = [(first, last) for first, last in ranges if first <= last]
    if len(found) < 2:
        return found
    out: Ranges = []
    for first, last in sorted(found):
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
