"""A few lines at the bottom of a terminal, drawn again in place four times a second by rich."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import IO, Any, cast

from rich.console import Console, ConsoleDimensions, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

Styled = list[tuple[str, str]]  # texts, each with a style of rich or ""


class Redrawn(Live):
    """Draws the lines that `drawn(width, height)` gives until it is stopped, then takes them away.

    A terminal that is gone ends nothing.

    The cursor stays visible and no mode of the terminal is changed: a process that is killed leaves nothing to put
    right.
    """

    def __init__(self, stream: IO[str], drawn: Callable[[int, int], list[Styled]], *, color: bool = True) -> None:
        self._stream, self._drawn = stream, drawn
        self._standing: list[int] = []  # widths of the lines that stand there
        self._coming: list[int] = []
        console = _Console(
            file=cast(IO[str], _Forgiving(stream)),
            force_terminal=True,
            color_system="standard" if color else None,
            emoji=False,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        super().__init__(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def above(self, line: str) -> None:
        """A line that stays, above the others."""
        self.console.print(Text(line))

    def get_renderable(self) -> Text:
        """The lines as they are now. The last column stays free: some terminals wrap when it is written."""
        with contextlib.suppress(
            OSError, ValueError
        ):  # the variable COLUMNS, which rich prefers, does not follow the window
            width, height = os.get_terminal_size(self._stream.fileno())
            self.console.size = ConsoleDimensions(width or 80, height or 24)
        size = self.console.size
        lines = self._drawn(max(1, size.width - 1), size.height)
        self._coming = [sum(len(text) for text, _ in line) for line in lines]
        return Text("\n", no_wrap=True).join(Text.assemble(*line) for line in lines)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """A window that became narrower has broken the lines into more: these are taken away too."""
        width = max(1, self.console.size.width)
        broken = sum(-(-each // width) - 1 for each in self._standing if each > width)
        self._standing = self._coming
        rise: list[Any] = [(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * broken
        return [Control(*rise), *super().process_renderables(renderables)]


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Forgiving:
    """A stream that swallows what fails: that nobody is reading any more is no reason to end the run."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, LookupError):
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
