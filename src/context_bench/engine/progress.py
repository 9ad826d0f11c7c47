"""Progress of a run at the terminal: on stderr only, with nothing of the text shown able to steer the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from context_bench.engine.progress_lines import Line, block, clean, together

if TYPE_CHECKING:
    from context_bench.engine.redrawn import Redrawn


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
    it is over; `owing(system, owed, kept)`, when it is known better how many rows a system owes in all (`None` = not
    yet) and how many of them the store had already.
    """

    def start(self, systems: Sequence[str], total: int | None) -> None:
        """A run begins; `total` rows are owed by each system (`None` = not known)."""

    def advance(self, step: Step) -> None:
        """A row is durable."""

    def note(self, text: str) -> None:
        """Something to be said once."""

    def close(self) -> None:
        """The run is over."""


#: So many systems have a line each where lines are not redrawn; more are told as one.
_FEW = 8


class RichProgress:
    """A line per system, redrawn in place on a terminal; elsewhere a plain line now and then (`every` seconds, less
    often in a long run) and one at the end.

    Writes to stderr only. `NO_COLOR` and `TERM=dumb` are respected. `advance` only counts: lines are made when they are
    drawn.
    """

    def __init__(
        self, stream: IO[str] | None = None, *, every: float = 10.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every = every
        self._monotonic = monotonic
        self._lines: dict[str, Line] = {}
        self._live: Redrawn | None = None
        self._began = self._said = 0.0

    def start(self, systems: Sequence[str], total: int | None) -> None:
        """Begin to show these systems."""
        self._lines = {name: Line(clean(name), total) for name in systems}
        self._began = self._said = self._monotonic()
        stream = self._out
        if _redrawable(stream):
            from context_bench.engine.redrawn import Redrawn

            self._live = Redrawn(stream, self._drawn, color=not os.environ.get("NO_COLOR"))
            self._live.start()

    def owing(self, system: str, owed: int | None, kept: int) -> None:
        """Show how many rows a system owes, those that the store had already being done."""
        line = self._line(system)
        line.kept = kept
        if owed is not None:
            line.total = owed

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

    def _line(self, system: str) -> Line:
        return self._lines.setdefault(system, Line(clean(system), None))

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
            if all_of_them or len(lines) <= _FEW
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
