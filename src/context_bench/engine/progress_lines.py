"""Progress of each system of a run, as lines that fit: counted when a row is done, worked out when they are shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

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
class Line:
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
            said.append(f"${self.cost:.4f}")
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
            "money": f"${self.cost:.2f}" if self.cost >= 10 else f"${self.cost:.4f}" if self.cost else "",
            "left": "set-up" if self.in_setup and not self.left(seconds) else self.left(seconds),
        }


def together(lines: Sequence[Line], name: str) -> Line:
    """Several systems as one."""
    totals = [line.total for line in lines]
    whole = Line(name, None if None in totals else sum(total or 0 for total in totals))
    for line in lines:
        for what in ("done", "failed", "sent", "forwarded", "unseen", "cost", "in_setup", "kept"):
            setattr(whole, what, getattr(whole, what) + getattr(line, what))
        whole.latency.merge(line.latency)
    return whole


#: Columns after the name, as they stand, and in the order in which they are given up when there is no room.
_GIVEN_UP = ("sent → on", "money", "p50", "rate", "left", "failed", "done")
_NAME, _LEAST_NAME, _GAP, _BAR = 28, 10, 2, 12
_STYLES = {"failed": "red", "bar": "cyan"}
_DIM = "dim"


def block(lines: Sequence[Line], seconds: float, width: int, height: int) -> list[list[tuple[str, str]]]:
    """The lines that a terminal of `width` × `height` has room for, each a list of (text, style of rich or ""): a
    heading, then one per system; of too many systems the unfinished ones, and the others together. No line is wider
    than `width`, and there are fewer than `height`.
    """
    chosen = _chosen(lines, max(1, height - 2))
    cells = [line.cells(seconds) for line in chosen]
    shown, name_width = _columns([line.name for line in chosen], cells, width)
    sizes = {column: max(_wide(column), *(_wide(each[column]) for each in cells)) for column in shown} if cells else {}
    used = name_width + sum(size + _GAP for size in sizes.values())
    bar = _BAR if width - used >= _BAR + _GAP and any(line.total for line in chosen) else 0
    titles = "".join(f"{'':{_GAP}}{column:>{sizes[column]}}" for column in shown)
    heading = " " * (name_width + (bar + _GAP if bar else 0)) + titles
    made: list[list[tuple[str, str]]] = [[(_cut(heading, width), _DIM)]] if height > 2 and shown else []
    for line, found in zip(chosen, cells, strict=True):
        row = [(_cut(line.name, name_width), "")]
        row += [(" " * _GAP, ""), (_bar(line, bar), _STYLES["bar"])] if bar else []
        row += [
            (" " * (_GAP + sizes[column] - _wide(found[column])) + found[column], _STYLES.get(column, ""))
            for column in shown
        ]
        made.append(row)
    return made


def _chosen(lines: Sequence[Line], room: int) -> list[Line]:
    if len(lines) <= room:
        return list(lines)
    if room == 1:
        return [together(lines, f"{len(lines)} systems")]
    unfinished = [line for line in lines if line.total is None or line.here < line.total] or list(lines)
    kept = unfinished[: room - 1]
    others = [line for line in lines if all(line is not one for one in kept)]
    return [*kept, together(others, f"and {len(others)} more")]


def _columns(names: Sequence[str], cells: Sequence[dict[str, str]], width: int) -> tuple[list[str], int]:
    """The columns that fit beside the names, and the width of the names."""
    shown = [column for column in (cells[0] if cells else ()) if any(each[column] for each in cells)]
    longest = min(_NAME, max((_wide(name) for name in names), default=0))
    sizes = {column: max(_wide(column), *(_wide(each[column]) for each in cells)) + _GAP for column in shown}
    for column in _GIVEN_UP:
        if sum(sizes[each] for each in shown) + min(longest, _LEAST_NAME) <= width:
            break
        if column in shown:
            shown.remove(column)
    return shown, max(0, min(longest, width - sum(sizes[each] for each in shown)))


def _bar(line: Line, size: int) -> str:
    full = round(size * min(1.0, line.here / line.total)) if line.total else 0
    return "█" * full + "░" * (size - full)


def _wide(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    """`text` in exactly `width` columns."""
    from rich.cells import set_cell_size

    if _wide(text) <= width or width < 2:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


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
