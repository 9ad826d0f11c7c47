"""Write results: to standard output, or into files, which are whole or not there, whatever happens meanwhile; and runs
as lines that fit a terminal.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import select
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from context_bench.core.errors import BadInput
from context_bench.core.lazy import LazyModule
from context_bench.core.machine import opener

if TYPE_CHECKING:
    from rich import cells as rich_cells
else:
    rich_cells = LazyModule("rich.cells")

#: What a disk answers that cannot take more, or nothing at all.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


@contextmanager
def standard_streams() -> Iterator[None]:
    """For as long as a command runs, the three standard streams are there, whatever was closed by who started it.

    A closed standard output cannot be written, and says so; else the next file that is opened would get what is
    printed. Standard output takes every character, whatever the locale: what goes to a file or a pipe is UTF-8, as the
    files of `--out` are; a terminal of another encoding shows what it cannot as escapes.
    """
    if sys.stdout is None or sys.stderr is None or sys.stdin is None:
        _make_streams()
    out = sys.stdout
    # With PYTHONUNBUFFERED, what a full disk does not take would be left out in silence.
    if out is sys.__stdout__ and out is not None and isinstance(raw := out.buffer, io.FileIO):
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), out.encoding, out.errors, line_buffering=True)
    _take_every_character()
    _places[:] = [_place(stream) for stream in (sys.stdout, sys.stderr)]
    yield


def _take_every_character() -> None:
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.encoding.lower().replace("_", "-").startswith("utf"):
        return
    if out.errors in ("strict", "surrogateescape"):  # another way was asked for by `PYTHONIOENCODING`
        out.reconfigure(errors="backslashreplace") if out.isatty() else out.reconfigure(encoding="utf-8")


_places: list[
    tuple[int, int] | None
] = []  # device and number of the files behind output and errors, as they were at the beginning


def _place(stream: IO[Any]) -> tuple[int, int] | None:
    with suppress(OSError, ValueError):
        about = os.fstat(stream.fileno())
        return about.st_dev, about.st_ino
    return None


def _make_streams() -> None:
    for number, how in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, how)  # takes the lowest number that is free: this one
    sys.stdin = sys.stdin if sys.stdin is not None else open(0, closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(
                sys,
                name,
                open(number, "w", buffering=1 if number == 2 else -1, errors="backslashreplace", closefd=False),  # noqa: SIM115
            )


def flush() -> None:
    """Write what is still buffered of the standard streams now, while a failure can be said."""
    sys.stdout.flush()
    sys.stderr.flush()


def unwritable() -> str | None:
    """The standard stream that takes nothing (any more), "output" or "errors"; what is meant for it goes nowhere.
    `None`: both do.
    """
    found = None
    for name, stream, place in zip(("output", "errors"), (sys.stdout, sys.stderr), _places, strict=True):
        if place != _place(stream):  # a library has given it up already
            found = found or name
            continue
        with suppress(ValueError, OSError):  # one that was closed or is no file
            if not _takes(stream.fileno()):
                found = found or name
                _give_up(stream)
    return found


def _takes(number: int) -> bool:
    """Could a byte be written there? Without writing one."""
    waiting = select.poll()
    waiting.register(number, select.POLLOUT)
    if any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in waiting.poll(0)):
        return False  # a pipe that nobody reads
    try:
        os.write(number, b"")  # a device says at once that it is full
    except OSError:
        return False
    about = os.fstat(number)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    at_limit = limit != resource.RLIM_INFINITY and about.st_size >= limit
    return not (stat.S_ISREG(about.st_mode) and (at_limit or os.fstatvfs(number).f_bavail == 0))


def _give_up(stream: IO[Any]) -> None:
    """Send buffered output nowhere: it would be tried again when the process ends, and fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    stream.flush()


def say(text: str) -> None:
    """A line for the person at the terminal; never on standard output, and with nothing in it that steers the
    terminal.
    """
    from context_bench.reports.visible_text import visible

    print(f"context-bench: {visible(text, 4000, lines=True)}", file=sys.stderr)


def harmless(stream: IO[str]) -> IO[str]:
    """Standard output for what is not made for a terminal (CSV, JSON): on one, what would steer it is visible, else
    bytes are exact.
    """
    return cast("IO[str]", _Harmless(stream)) if stream.isatty() else stream


class _Harmless:
    """A stream that writes what can be seen."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, its invisible and steering characters as escapes; line ends stay."""
        from context_bench.reports.visible_text import visible

        self._stream.write(visible(text, 10 * len(text) + 1, lines=True))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._stream.flush()


@contextmanager
def destination(out: Path | None, mode: str = "w", what: str = "") -> Iterator[IO[Any]]:
    """Write a result to standard output, or to a file that is there once it is whole, and report that. `what` it is:
    report, picture.
    """
    if out is None:
        stream: IO[Any] = sys.stdout.buffer if "b" in mode else harmless(sys.stdout)
        yield stream
        stream.flush()
        return
    with replacing(out, mode, **({} if "b" in mode else {"encoding": "utf-8", "newline": ""})) as stream:
        yield stream
    say(f"{what}{' ' if what else ''}written to {out}")


def write_out(text: str, out: Path | None, what: str = "") -> None:
    """A text that is whole already, to its `destination`."""
    with destination(out, what=what) as stream:
        stream.write(text)


@contextmanager
def replacing(path: Path, mode: str, **how: Any) -> Iterator[IO[Any]]:
    """A new file that takes the place of `path`, whose folder is made, when the block ends well; until then the old one
    stays as it is.

    What is no plain file (a pipe, a device) is written as it is. Raises `BadInput` where it cannot be written.
    """
    if path.exists() and not path.is_file():
        with _explained(path), open(path, mode, opener=opener, **how) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _explained(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        stream = part.open(mode, **how)
    try:
        with _explained(path, NO_ROOM), stream:
            yield stream
        with _explained(path):
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def _explained(path: Path, only: tuple[int, ...] | None = None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error


# --- runs as lines

_RUN_GAP, _LABEL_INDENT = 2, 4
_NUMBERS = ("rows", "failed")
_GIVEN_UP = ("started (UTC)", "failed", "systems", "status", "rows")  # in this order, where there is no room
_LEAST_SYSTEMS = 16
_STATUS_STYLES = {"done": "32", "interrupted": "33", "stopped": "33", "running": "36"}


def run_list(runs: Sequence[Mapping[str, Any]], *, width: int | None = None, color: bool = False) -> str:
    """Runs and watches, as their records describe them, in lines of at most `width` columns (80 if not given).

    A name stays whole, however long, since it is what other commands are given: one that fills the line has the rest on
    the next. Title and tags stand below it.
    """
    from context_bench.reports.visible_text import visible

    width = max(20, width or 80)
    lines = [_cells(run) for run in runs]
    widest = max((rich_cells.cell_len(line["run"]) for line in lines), default=0)
    titles = [title for title in lines[0] if title != "run"]
    sizes = {
        title: max(rich_cells.cell_len(title), *(rich_cells.cell_len(line[title]) for line in lines))
        for title in titles
    }
    first = max(3, min(widest, width // 3 if width >= 60 else 20))
    shown = [*sizes, "systems"]
    for title in _GIVEN_UP:
        if _spare_width(first, sizes, shown, width) >= 0:
            break
        shown.remove(title)
    systems = _spare_width(first, sizes, shown, width) + _LEAST_SYSTEMS
    made = [_row({title: title for title in ("run", *shown)}, shown, sizes, first, 0, False)]
    for run, line in zip(runs, lines, strict=True):
        names = [visible(name) for name in run["systems"]] or (["live traffic"] if run.get("kind") == "watch" else [])
        line["systems"] = _some(names, systems)
        made.append(_row(line, shown, sizes, first, width, color))
        made += [label] if (label := _label(run, width)) else []
    return "\n".join(made)


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    from context_bench.reports.visible_text import visible

    started = str(run["started"])[:16].replace("T", " ")
    told = {"run": run["name"], "started (UTC)": started, "status": run["status"]}
    told |= {name: "" if run[name] is None else f"{run[name]:,}" for name in _NUMBERS}
    return {title: visible(cell, 300) for title, cell in told.items()}


def _label(run: Mapping[str, Any], width: int) -> str:
    """Title and tags as people gave them, cut where they do not fit; empty where there are none."""
    from context_bench.reports.visible_text import visible

    tags = ", ".join(visible(tag, 60) for tag in run.get("tags") or ())
    found = "  ".join(part for part in (visible(run.get("title") or "", 300), f"[{tags}]" if tags else "") if part)
    if rich_cells.cell_len(found) > width - _LABEL_INDENT:
        found = rich_cells.set_cell_size(found, width - _LABEL_INDENT - 1).rstrip() + "…"
    return " " * _LABEL_INDENT + found if found else ""


def _spare_width(first: int, sizes: Mapping[str, int], shown: Sequence[str], width: int) -> int:
    """Columns that are left over when the systems have the least that makes sense."""
    least = {**sizes, "systems": _LEAST_SYSTEMS}
    return width - first - sum(least[title] + _RUN_GAP for title in shown)


def _row(
    line: Mapping[str, str], shown: Sequence[str], sizes: Mapping[str, int], first: int, width: int, color: bool
) -> str:
    name = line["run"]
    cells = []
    for title in shown:
        cell = line[title]
        if title in sizes:
            space = " " * (sizes[title] - rich_cells.cell_len(cell))
            styled = (
                f"\x1b[{_STATUS_STYLES[cell]}m{cell}\x1b[0m"
                if color and title == "status" and cell in _STATUS_STYLES
                else cell
            )
            cell = space + styled if title in _NUMBERS else styled + space
        cells.append(" " * _RUN_GAP + cell)
    rest = "".join(cells).rstrip()
    if rich_cells.cell_len(name) <= first:
        return rich_cells.set_cell_size(name, first) + rest
    return f"{name}\n{' ' * first}{rest}"


def _some(names: Sequence[str], width: int) -> str:
    """`a, b`, or `6 systems: a, b, …`: no name is torn unless even the first does not fit."""
    whole = ", ".join(names)
    if rich_cells.cell_len(whole) <= width or not names:
        return whole
    said = f"{len(names)} systems: " if len(names) > 1 else ""
    for count in range(len(names) - 1, 0, -1):
        part = f"{said}{', '.join(names[:count])}, …"
        if rich_cells.cell_len(part) <= width:
            return part
    return f"{len(names)} systems" if said else rich_cells.set_cell_size(names[0], width - 1).rstrip() + "…"
