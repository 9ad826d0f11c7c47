"""Write results: to standard output, or into files, which are whole or not there, whatever happens meanwhile."""

from __future__ import annotations

import errno
import io
import os
import resource
import select
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from context_bench.core.errors import BadInput

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
        with _explained(path), path.open(mode, **how) as stream:
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
