"""A few lines at the bottom of a terminal, drawn again in place at most four times a second by a thread of their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import IO

from context_bench.engine.progress_lines import clean

EVERY = 0.25  # seconds between two drawings
Styled = list[tuple[str, str]]


def redrawable(stream: IO[str]) -> bool:
    """Is it a terminal on which the cursor can be moved?"""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb" and os.name != "nt"
    except ValueError:  # closed
        return False


class Redrawn:
    """Draws what `made(width, height)` gives until it is stopped, then takes it away. A terminal that is gone ends the drawing only.

    The cursor stays visible and no mode of the terminal is changed: a process that is killed leaves nothing to put right.
    """

    def __init__(self, stream: IO[str], made: Callable[[int, int], list[Styled]], *, color: bool = True) -> None:
        self._stream, self._made, self._color = stream, made, color
        self._lock = threading.Lock()
        self._widths: list[int] = []  # of the lines that stand there
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="context-bench-progress", daemon=True)
        self._thread.start()

    def above(self, line: str) -> None:
        """A line that stays, above the others."""
        with self._lock:
            self._write(f"{self._back()}\x1b[J{line}\n")
            self._widths = []
            self._draw()

    def stop(self) -> None:
        """Take the lines away."""
        self._over.set()
        self._thread.join(timeout=2)
        with self._lock:
            if self._widths:
                self._write(f"{self._back()}\x1b[J")
            self._widths = []

    def _draw_on(self) -> None:
        while not self._over.wait(EVERY):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        width, height = self._size()
        lines = self._made(max(1, width - 1), height)  # the last column stays free: some terminals wrap when it is written
        text = "".join("".join(self._styled(*part) for part in line) + "\x1b[K\n" for line in lines)
        self._write(f"{self._back()}{text}\x1b[J")
        self._widths = [sum(len(part) for part, _ in line) for line in lines]

    def _styled(self, text: str, style: str) -> str:
        plain = clean(text, 10_000)
        return f"\x1b[{style}m{plain}\x1b[0m" if style and self._color and plain.strip() else plain

    def _back(self) -> str:
        """To the first of the lines that stand there; a window that became narrower has broken them into more."""
        if not self._widths:
            return "\r"
        width, height = self._size()
        rows = sum(max(1, -(-each // width)) for each in self._widths)
        return f"\r\x1b[{min(rows, height - 1) or 1}A"

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _write(self, text: str) -> None:
        try:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError, LookupError):
            self._over.set()  # nobody is reading any more: no reason to end the run
