"""Progress of a run: counted when a row is done, worked out when it is shown.

It is shown on stderr only, and nothing of the text shown can steer the terminal.
"""

from __future__ import annotations

import math
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol

from context_bench.core.lazy import LazyModule
from context_bench.core.measures import dollars

if TYPE_CHECKING:
    from rich import cells as rich_cells

    from context_bench.engine.terminal import Redrawn
else:
    rich_cells = LazyModule("rich.cells")


@dataclass(frozen=True, slots=True)
class Step:
    """One row is durable. `tokens` = (sent, forwarded), `cost` in US dollars, `latency` in seconds."""

    system: str
    failed: bool = False
    tokens: tuple[int, int | None] | None = None
    cost: float = 0.0
    latency: float | None = None


class Progress(Protocol):
    """Somebody who watches a run. Called on the event loop: must return at once and never raise.

    Optional: `setting_up(system, group, begun)`, when the set-up of a group (`None` = it has no name) begins and when
    it is over; `planned(system, total, kept)`, when planning has found out how many rows a system has in all
    (`None` = not yet) and how many of them the store had already.
    """

    def start(self, systems: Sequence[str], total: int | None) -> None:
        """A run begins; `total` rows are owed by each system (`None` = not known)."""

    def advance(self, step: Step) -> None:
        """A row is durable."""

    def note(self, text: str) -> None:
        """Something to be said once."""

    def close(self) -> None:
        """The run is over."""


_PER_E, _LEAST = 40, 1e-6  # bins per factor e (each 2.5 % wide), and the seconds at which they begin
_BINS = 1_300  # up to about 10^8 seconds


class Median:
    """The middle of any number of positive values within 2 %, in the same small memory however many they are."""

    __slots__ = ("_bins", "count")

    def __init__(self) -> None:
        self._bins = [0] * _BINS
        self.count = 0

    def add(self, value: float) -> None:
        """Count a value."""
        at = int(math.log(value / _LEAST) * _PER_E) if value > _LEAST else 0
        self._bins[min(at, _BINS - 1)] += 1
        self.count += 1

    def merge(self, other: Median) -> None:
        """Count all that another one has counted."""
        self._bins = [mine + theirs for mine, theirs in zip(self._bins, other._bins, strict=True)]
        self.count += other.count

    def value(self) -> float | None:
        """The median, `None` if nothing was counted."""
        left = (self.count + 1) // 2
        for at, count in enumerate(self._bins):
            left -= count
            if left <= 0 and self.count:
                return math.exp((at + 0.5) / _PER_E) * _LEAST
        return None


@dataclass(slots=True)
class ProgressRow:
    """One system's state. `done`: rows of this session; `kept`: rows that the store had already."""

    name: str
    total: int | None
    done: int = 0
    failed: int = 0
    sent: int = 0
    forwarded: int = 0
    unseen: int = 0  # rows of which nobody knows how much was forwarded
    cost: float = 0.0
    in_setup: int = 0
    kept: int = 0
    latency: Median = field(default_factory=Median)

    def add(self, failed: bool, tokens: tuple[int, int | None] | None, cost: float, latency: float | None) -> None:
        """Count a row."""
        self.done += 1
        self.failed += failed
        if tokens is not None:
            self.sent += tokens[0]
            self.forwarded += tokens[1] or 0
            self.unseen += tokens[1] is None
        self.cost += cost
        if latency is not None:
            self.latency.add(latency)

    @property
    def here(self) -> int:
        """Rows that are there, never more than are owed (a row scored once more was there already)."""
        there = self.kept + self.done
        return there if self.total is None else min(there, max(self.total, self.done))

    def counted(self) -> str:
        """`12/50`, or `12`."""
        return f"{self.here}" if self.total is None or self.here > self.total else f"{self.here}/{self.total}"

    def left(self, seconds: float) -> str:
        """The time it will take at this rate, if there is one."""
        rate = self.done / seconds if seconds > 0 else 0.0
        return (
            duration((self.total - self.here) / rate)
            if rate and self.total is not None and self.here < self.total
            else ""
        )

    def tokens(self) -> str:
        """`12.3k → 4.5k`, sent and forwarded; `12.3k → ?` where the latter is not known of every row; or nothing."""
        return f"{short(self.sent)} → {'?' if self.unseen else short(self.forwarded)}" if self.sent else ""

    def rest(self, seconds: float) -> str:
        """Rate, time left, failures, latency, tokens and money, as far as there is something to say."""
        said = [f"{self.done / seconds if seconds > 0 else 0.0:.1f}/s"]
        if self.in_setup:
            said.append("setting up a group" if self.in_setup == 1 else f"setting up {self.in_setup} groups")
        if left := self.left(seconds):
            said.append(f"{left} left")
        if self.failed:
            said.append(f"{self.failed} failed")
        if (middle := self.latency.value()) is not None:
            said.append(f"p50 {brief(middle)}")
        if self.sent:
            said.append(f"{self.tokens()} tokens")
        if self.cost:
            said.append(dollars(self.cost))
        return ", ".join(said)

    def cells(self, seconds: float) -> dict[str, str]:
        """Column → what stands in it."""
        middle = self.latency.value()
        return {
            "done": self.counted(),
            "failed": str(self.failed) if self.failed else "",
            "rate": f"{self.done / seconds:.1f}/s" if self.done and seconds > 0 else "",
            "p50": "" if middle is None else brief(middle),
            "sent → on": self.tokens(),
            "money": dollars(self.cost) if self.cost else "",
            "left": "set-up" if self.in_setup and not self.left(seconds) else self.left(seconds),
        }


def together(lines: Sequence[ProgressRow], name: str) -> ProgressRow:
    """Several systems as one."""
    totals = [line.total for line in lines]
    whole = ProgressRow(name, None if None in totals else sum(total or 0 for total in totals))
    for line in lines:
        for what in ("done", "failed", "sent", "forwarded", "unseen", "cost", "in_setup", "kept"):
            setattr(whole, what, getattr(whole, what) + getattr(line, what))
        whole.latency.merge(line.latency)
    return whole


class TerminalProgress:
    """A line per system, redrawn in place on a terminal; elsewhere one plain line for all of them now and then (`every`
    seconds, less often in a long run) and a line each at the end.

    Writes to stderr only. `NO_COLOR` and `TERM=dumb` are respected. `advance` only counts: lines are made when they are
    drawn.
    """

    def __init__(
        self, stream: IO[str] | None = None, *, every: float = 10.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every = every
        self._monotonic = monotonic
        self._lines: dict[str, ProgressRow] = {}
        self._live: Redrawn | None = None
        self._began = self._said = 0.0

    def start(self, systems: Sequence[str], total: int | None) -> None:
        """Begin to show these systems."""
        self._lines = {name: ProgressRow(clean(name), total) for name in systems}
        self._began = self._said = self._monotonic()
        stream = self._out
        if _redrawable(stream):
            from context_bench.engine.terminal import Redrawn

            self._live = Redrawn(stream, self._drawn, color=not os.environ.get("NO_COLOR"))
            self._live.start()

    def planned(self, system: str, total: int | None, kept: int) -> None:
        """Show how many rows a system owes, those that the store had already being done."""
        line = self._line(system)
        line.kept = kept
        if total is not None:
            line.total = total

    def advance(self, step: Step) -> None:
        """Count a row; on something that is not a terminal say so now and then."""
        line = self._lines.get(step.system) or self._line(step.system)
        line.add(step.failed, step.tokens, step.cost, step.latency)
        if self._live is None and self._due():
            self._say()

    def setting_up(self, system: str, group: str | None, begun: bool) -> None:
        """Show that a group is being set up: it may take long, and no row is done meanwhile."""
        line = self._lines.get(system)
        if line is None:
            return
        line.in_setup += 1 if begun else -1
        if begun and self._live is None and (self._due() or not line.done):
            self._said = self._monotonic()
            self._print(f"  {line.name}: setting up {'a group' if group is None else f'group {clean(group)}'}")

    def note(self, text: str) -> None:
        """One line for the reader."""
        line = f"context-bench: {clean(text, 500)}"
        if self._live is not None:
            self._live.above(line)
        else:
            self._print(line)

    def close(self) -> None:
        """Take the lines away from a terminal; elsewhere say how it ended."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
        elif any(line.done for line in self._lines.values()):
            self._say(all_of_them=True)

    @property
    def _out(self) -> IO[str]:
        return sys.stderr if self._stream is None else self._stream

    def _line(self, system: str) -> ProgressRow:
        return self._lines.setdefault(system, ProgressRow(clean(system), None))

    def _seconds(self) -> float:
        return max(1e-9, self._monotonic() - self._began)

    def _due(self) -> bool:
        now = self._monotonic()
        return now - self._said >= max(self._every, (now - self._began) / 20)

    def _drawn(self, width: int, height: int) -> list[list[tuple[str, str]]]:
        return block(list(self._lines.values()), self._seconds(), width, height)

    def _say(self, *, all_of_them: bool = False) -> None:
        self._said = self._monotonic()
        lines = [line for line in self._lines.values() if line.done]
        shown = (
            lines
            if all_of_them or len(self._lines) == 1
            else [together(list(self._lines.values()), f"{len(self._lines)} systems")]
        )
        for line in shown:
            self._print(f"  {line.name}: {line.counted()} ({line.rest(self._seconds())})")

    def _print(self, text: str) -> None:
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError, UnicodeError):
            return  # nobody is reading any more: no reason to end the run


def _redrawable(stream: IO[str]) -> bool:
    """Is it a terminal on which the cursor can be moved?"""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb" and os.name != "nt"
    except ValueError:  # closed
        return False


#: Columns after the name, as they stand, and in the order in which they are given up when there is no room.
_GIVEN_UP = ("sent → on", "money", "p50", "rate", "left", "failed", "done")
_NAME, _LEAST_NAME, _GAP, _BAR = 28, 10, 2, 12
_STYLES = {"failed": "red", "bar": "cyan"}
_DIM = "dim"


def block(lines: Sequence[ProgressRow], seconds: float, width: int, height: int) -> list[list[tuple[str, str]]]:
    """The lines that a terminal of `width` × `height` has room for, each a list of (text, style of rich or ""): a
    heading, then one per system; of too many systems the unfinished ones, and the others together. No line is wider
    than `width`, and there are fewer than `height`.
    """
    chosen = _chosen(lines, max(1, height - 2))
    cells = [line.cells(seconds) for line in chosen]
    sizes, name_width = _columns([line.name for line in chosen], cells, width)
    used = name_width + sum(sizes.values()) + _GAP * len(sizes)
    bar = _BAR if width - used >= _BAR + _GAP and any(line.total for line in chosen) else 0
    titles = "".join(f"{'':{_GAP}}{column:>{size}}" for column, size in sizes.items())
    heading = " " * (name_width + (bar + _GAP if bar else 0)) + titles
    drawn: list[list[tuple[str, str]]] = [[(_cut(heading, width), _DIM)]] if height > 2 and sizes else []
    for line, texts in zip(chosen, cells, strict=True):
        row = [(_cut(line.name, name_width), "")]
        row += [(" " * _GAP, ""), (_bar(line, bar), _STYLES["bar"])] if bar else []
        row += [
            (" " * (_GAP + size - rich_cells.cell_len(texts[column])) + texts[column], _STYLES.get(column, ""))
            for column, size in sizes.items()
        ]
        drawn.append(row)
    return drawn


def _chosen(lines: Sequence[ProgressRow], room: int) -> list[ProgressRow]:
    if len(lines) <= room:
        return list(lines)
    if room == 1:
        return [together(lines, f"{len(lines)} systems")]
    unfinished = [line for line in lines if line.total is None or line.here < line.total] or list(lines)
    kept = unfinished[: room - 1]
    others = [line for line in lines if all(line is not one for one in kept)]
    return [*kept, together(others, f"and {len(others)} more")]


def _columns(names: Sequence[str], cells: Sequence[dict[str, str]], width: int) -> tuple[dict[str, int], int]:
    """The columns that fit beside the names, with their widths, and the width of the names."""
    wide = rich_cells.cell_len
    sizes = {
        column: max(wide(column), *(wide(row[column]) for row in cells))
        for column in (cells[0] if cells else ())
        if any(row[column] for row in cells)
    }
    longest = min(_NAME, max(map(wide, names), default=0))
    for column in _GIVEN_UP:
        if sum(sizes.values()) + _GAP * len(sizes) + min(longest, _LEAST_NAME) <= width:
            break
        sizes.pop(column, None)
    return sizes, max(0, min(longest, width - sum(sizes.values()) - _GAP * len(sizes)))


def _bar(line: ProgressRow, size: int) -> str:
    full = round(size * min(1.0, line.here / line.total)) if line.total else 0
    return "█" * full + "░" * (size - full)


def _cut(text: str, width: int) -> str:
    """`text` in exactly `width` columns."""
    if rich_cells.cell_len(text) <= width or width < 2:
        return rich_cells.set_cell_size(text, width)
    return rich_cells.set_cell_size(text, width - 1) + "…"


def clean(text: str, width: int = 40) -> str:
    """`text` without control, format and surrogate characters (escape sequences, bidi marks …), cut to `width`
    characters.
    """
    plain = "".join(
        " " if character in "\t\n" else character
        for character in text
        if unicodedata.category(character)[0] != "C" or character in "\t\n"
    )
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def brief(seconds: float) -> str:
    """A latency in three figures: `35 ms`, `1.2 s`, `95 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else duration(seconds)


def short(count: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
