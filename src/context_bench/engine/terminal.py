"""Progress of each system as a line at the bottom of a terminal, drawn again in place four times a second by rich.

Lines fit the window: columns are given up where there is no room, and systems are counted together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleDimensions, ConsoleRenderable
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from context_bench.engine.progress import ProgressRow, together

Styled = list[tuple[str, str]]  # texts, each with a style of rich or ""


class Redrawn(Live):
    """Draws a line for each of the rows that `rows()` gives beside the seconds so far, and takes them away at the end.

    A terminal that is gone ends nothing.

    The cursor stays visible and no mode of the terminal is changed: a process that is killed leaves nothing to put
    right.
    """

    def __init__(
        self, stream: IO[str], rows: Callable[[], tuple[list[ProgressRow], float]], *, color: bool = True
    ) -> None:
        self._stream, self._rows = stream, rows
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
        lines = block(*self._rows(), max(1, size.width - 1), size.height)
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
    shown, name_width = _columns([line.name for line in chosen], cells, width)
    sizes = (
        {column: max(cell_len(column), *(cell_len(each[column]) for each in cells)) for column in shown}
        if cells
        else {}
    )
    used = name_width + sum(size + _GAP for size in sizes.values())
    bar = _BAR if width - used >= _BAR + _GAP and any(line.total for line in chosen) else 0
    titles = "".join(f"{'':{_GAP}}{column:>{sizes[column]}}" for column in shown)
    heading = " " * (name_width + (bar + _GAP if bar else 0)) + titles
    made: list[list[tuple[str, str]]] = [[(_cut(heading, width), _DIM)]] if height > 2 and shown else []
    for line, found in zip(chosen, cells, strict=True):
        row = [(_cut(line.name, name_width), "")]
        row += [(" " * _GAP, ""), (_bar(line, bar), _STYLES["bar"])] if bar else []
        row += [
            (" " * (_GAP + sizes[column] - cell_len(found[column])) + found[column], _STYLES.get(column, ""))
            for column in shown
        ]
        made.append(row)
    return made


def _chosen(lines: Sequence[ProgressRow], room: int) -> list[ProgressRow]:
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
    longest = min(_NAME, max((cell_len(name) for name in names), default=0))
    sizes = {column: max(cell_len(column), *(cell_len(each[column]) for each in cells)) + _GAP for column in shown}
    for column in _GIVEN_UP:
        if sum(sizes[each] for each in shown) + min(longest, _LEAST_NAME) <= width:
            break
        if column in shown:
            shown.remove(column)
    return shown, max(0, min(longest, width - sum(sizes[each] for each in shown)))


def _bar(line: ProgressRow, size: int) -> str:
    full = round(size * min(1.0, line.here / line.total)) if line.total else 0
    return "█" * full + "░" * (size - full)


def _cut(text: str, width: int) -> str:
    """`text` in exactly `width` columns."""
    if cell_len(text) <= width or width < 2:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"
