"""The machine below a command: its clock, its C allocator (one heap for all threads, and what is free given back to the
system), how often Python looks for garbage, how long idle threads of numpy spin, the user's home and cache folders,
files that the user names, which process this is, programs that it starts, and words of a command line as a shell takes
them.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import io
import os
import re
import shlex
import signal
import stat
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from context_bench.core.errors import BadInput
from context_bench.core.lazy import LazyModule

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = LazyModule("asyncio")  # the help of commands needs the folders and no waiting

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of glibc's malloc.h
_ARENAS, _LARGE_BLOCK = 1, 128 * 1024
#: New containers before the youngest generation is looked through, and before that is done for the first time. A short
#: command makes fewer than that (a run of one example 170,000, nearly all of them modules that stay), a row of a run
#: about a hundred; nearly none is in a circle.
YOUNG, FIRST = 10_000, 250_000
#: Logarithm of the processor's ticks for which a thread of OpenBLAS spins before it sleeps; its own is 26, some 30 ms.
_SPINNING = ("OPENBLAS_THREAD_TIMEOUT", "16")


def bound_arenas() -> bool:
    """Let all threads of this process allocate from one heap; returns False where the allocator has no such setting.

    By default glibc gives each thread a heap of its own (up to eight a core), and a hole that a reply left in one is
    never filled by another thread: the memory of a tap or a viewer creeps up for hours although nothing is kept.
    `MALLOC_ARENA_MAX` in the environment is the user's choice and stands.
    """
    return _set(_M_ARENA_MAX, _ARENAS, "MALLOC_ARENA_MAX")


def return_large_blocks() -> bool:
    """Have each block of 128 kB or more given back as soon as it is freed; returns False where the allocator has no
    such setting.

    By default glibc takes the first large block that is freed for a habit of the program, and keeps such blocks (up to
    32 MB) in the heap: a process that reads hostile bodies would hold what it no longer needs just while it needs the
    most, and small blocks settle in the hole that a large one leaves, so that the memory of a run creeps up although
    what it keeps does not. `MALLOC_MMAP_THRESHOLD_` in the environment stands.
    """
    return _set(_M_MMAP_THRESHOLD, _LARGE_BLOCK, "MALLOC_MMAP_THRESHOLD_")


def _set(option: int, value: int, variable: str) -> bool:
    mallopt = None if variable in os.environ else _glibc("mallopt")
    return mallopt is not None and bool(mallopt(option, value))


def give_back() -> bool:
    """Give the heap's free pages back to the system; returns False if there were none, or the allocator has no such
    call.

    By itself glibc gives back only the end of the heap. Requests that fail at all stages leave holes of all sizes
    before it, and the memory of a tap creeps up by 20 MB an hour while what it uses stays the same.
    """
    trim = _glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library that only glibc has."""
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):  # another C library
        return None
    return found


def collect_seldom() -> None:
    """Look for garbage first after `FIRST` new containers, then after `YOUNG`, not after 700, and not again when the
    process ends: a quarter of a short command's CPU. Leaves alone what somebody has turned off or slowed down further.
    """
    if gc.isenabled() and 0 < gc.get_threshold()[0] < YOUNG:
        gc.set_threshold(FIRST, *gc.get_threshold()[1:])
        gc.callbacks.append(_first_look)
        atexit.register(gc.freeze)


def _first_look(*_: Any) -> None:
    gc.callbacks.remove(_first_look)
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def sleep_when_idle() -> None:
    """Have the threads of numpy's library sleep where they would spin; before numpy is loaded, or it has no effect.

    They spin for some 30 ms, each on a core of its own, after numpy is loaded and after every large product. The number
    of threads stays what it is, for systems in this process that compute with them; a value in the environment stands.
    """
    os.environ.setdefault(*_SPINNING)


def home_folder() -> Path | None:
    """The user's home; `None` for a user without one, such as a container's numbered user where HOME is not set."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def expanded(path: str | Path) -> Path:
    """`path` with its `~` or `~name` as a shell has it: where there is no such user, it stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder() -> Path:
    """Model files and looked-up prices: `$XDG_CACHE_HOME/context-bench`, else `~/.cache/context-bench` or the system's
    own place for caches; `BadInput` without a home.
    """
    from platformdirs import user_cache_path

    try:
        return user_cache_path("context-bench", appauthor=False)
    except RuntimeError as error:
        raise BadInput(
            "there is no home folder to keep a cache in (HOME is not set); set HOME or XDG_CACHE_HOME"
        ) from error


class Clock(Protocol):
    """The source of time and of waiting."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; for durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a value ≤ 0 only yields to other tasks."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.perf_counter()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that only moves when somebody sleeps on it: tests of back-off run in no time and see every wait."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.time = start
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += max(0.0, seconds)
        await asyncio.sleep(0)


SYSTEM_CLOCK = SystemClock()


#: Bytes of the longest line, and of all that is taken from a pipe; of a file that is read whole.
LINE_LIMIT, FILE_LIMIT = 2**28, 2**30
_BUFFER = 2**18  # Python reads a line that goes beyond the buffer byte by byte
_WRITER, _SILENCE = 1.0, 60.0  # seconds that are waited for the other end of a pipe, and for what it writes


def opened(path: str | Path) -> io.BufferedReader | io.BytesIO:
    """A file that the user named, or that lies in a folder of theirs, opened to read its bytes or its lines.

    It never waits for ever and never goes on without end: devices (but the null device) and sockets are refused, a pipe
    is read to its end at once, and a line is at most `LINE_LIMIT` bytes. Raises `OSError` with the reason, there and
    while lines are read.
    """
    if isinstance(path, Path) and type(path).open not in (Path.open, type(Path()).open):
        return path.open("rb")  # what is held in memory under a name
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        about = os.fstat(handle)
        if stat.S_ISFIFO(about.st_mode):
            return io.BytesIO(_piped(handle, str(path)))
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        null = stat.S_ISCHR(about.st_mode) and about.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116
        if not (stat.S_ISREG(about.st_mode) or null):
            raise OSError(errno.EINVAL, "a device, not a file", str(path))
        raw = io.FileIO(os.dup(handle), "rb")
        raw.name = str(path)
        return _Lines(raw, _BUFFER)
    finally:
        os.close(handle)


def file_bytes(path: str | Path, most: int = FILE_LIMIT) -> bytes:
    """All bytes of a file that the user named, as `opened` gives it. Raises `OSError`, also for more than `most`."""
    with opened(path) as file:
        plain = isinstance(file, _Lines)
        size = os.fstat(file.fileno()).st_size if plain else len(data := file.read())
        if size > most:
            raise OSError(errno.EFBIG, f"more than {most >> 20:,} MiB", str(path))
        return file.read(max(size, 2**16)) if plain else data  # what is added meanwhile would have no end


def file_text(path: str | Path, errors: str = "strict", most: int = 2**26) -> str:
    """The text of such a file in UTF-8, its lines ended by line feeds. Raises `OSError`, `UnicodeDecodeError`."""
    return file_bytes(path, most).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


class _Lines(io.BufferedReader):
    """A file whose lines are bounded."""

    def __next__(self) -> bytes:
        if not (line := self.readline(LINE_LIMIT + 1)):
            raise StopIteration
        if len(line) > LINE_LIMIT:
            raise OSError(errno.EFBIG, f"a line of more than {LINE_LIMIT >> 20} MiB", str(self.name))
        return line


def _piped(handle: int, name: str) -> bytes:
    """All that is written into a pipe whose descriptor does not block."""
    import select

    waiting, found, until = select.poll(), bytearray(), time.monotonic() + _WRITER
    waiting.register(handle, select.POLLIN)
    while len(found) <= LINE_LIMIT:
        try:
            data = os.read(handle, 2**20)
        except BlockingIOError:  # somebody has it open who has not written yet
            if not waiting.poll(_SILENCE * 1000):
                raise OSError(errno.EINVAL, f"a pipe that says nothing for {_SILENCE:.0f} s", name) from None
            continue
        found += data
        if data:
            continue
        if found or any(event & select.POLLHUP for _, event in waiting.poll(0)):
            return bytes(found)
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000) and time.monotonic() >= until:
            raise OSError(errno.EINVAL, "a pipe that nobody writes into; it is read once: keep it as a file", name)
    raise OSError(errno.EFBIG, f"a pipe of more than {LINE_LIMIT >> 20} MiB: keep it as a file", name)


def opener(path: str, flags: int) -> int:
    """As `open` takes one, for a file that is written: a pipe that nobody reads is an `OSError`, not waited for."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116
        return os.open(path, flags, 0o600)
    until = time.monotonic() + _WRITER
    while True:
        try:
            handle = os.open(path, flags & ~os.O_RDWR | os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= until:
                raise OSError(errno.ENXIO, "a pipe that nobody reads", path) from None
            time.sleep(0.02)
            continue
        os.set_blocking(handle, True)
        return handle


def process_mark() -> str:
    """Names this process, so that another one can tell whether it still lives."""
    pid = os.getpid()
    return f"{_host()}|{pid}|{_started(pid)}"


def _host() -> str:
    import hashlib  # the help of commands needs neither
    import platform

    try:  # containers of one machine may share its name, not its processes
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _started(pid: int) -> str:
    """The time at which a process began (ticks since boot), so that a process id used again is not taken for the old
    process.
    """
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if facts[0] == "Z" else facts[19]
    except (OSError, IndexError):
        return "?"


def still_alive(owner: str | None, updated: float, clock: Clock) -> bool:
    """Is the process that owns a run still there? On another host: has it written in the last two minutes?"""
    if not owner:
        return False
    host, pid, started = owner.split("|")
    if host != _host():
        return clock.now() - updated < 120
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _started(int(pid)) == started


async def started(*command: str, **settings: Any) -> asyncio.subprocess.Process:
    """Start a program in a session of its own (`settings`: of `asyncio.create_subprocess_exec`). Cancelled meanwhile,
    it kills the program with all that it started: asyncio would kill the program alone, and then wait for the rest.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, start_new_session=True, **settings))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(starting.result().pid, signal.SIGKILL)
            await starting.result().wait()
        raise


#: Shown by no font although they are not control characters: joiners, fillers, variation selectors.
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
MARKS = frozenset({"Mn", "Me"})
MOST_MARKS = 4  # stacked on one letter: enough for every script, too few to paint over the next lines
_SHELL_WORD = re.compile(r"""(?>\$'(?:[^'\\]|\\.)*+'|'[^']*'|"[^"]*"|\\.|\S)++""", re.DOTALL)


def quoted(text: str) -> str:
    r"""One word of a command that is printed: pasted to bash or zsh, it is `text` again.

    What a terminal or a page would not show as it is stands in `$'…'`, as the bytes of its UTF-8: `\u` would depend on
    the reader's locale. NUL, which no argument can hold, becomes U+FFFD: a name that is not found, never another one.
    """
    if _shown_as_it_is(text):
        return shlex.quote(text)
    return "$'" + "".join(_escaped(before, here) for before, here in zip(" " + text, text, strict=False)) + "'"


def shell_words(command: str) -> list[str]:
    """The words of a command of `quoted` words, each still quoted."""
    return _SHELL_WORD.findall(command)


def _shown_as_it_is(text: str) -> bool:
    if text.isascii():
        return text.isprintable() and "  " not in text
    marks = MOST_MARKS  # none at the beginning: it would stand on the quotation mark
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in MARKS else 0
        if marks > MOST_MARKS:
            return False
    return text.isprintable() and "  " not in text and not BLANK.search(text)


def _escaped(before: str, character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if character == "\0":
        return "\\xef\\xbf\\xbd"
    if character == "!" or (before == character == " "):  # of a shell's history; folded by pages
        return f"\\x{ord(character):02x}"
    if character.isprintable() and not (unicodedata.category(character) in MARKS or BLANK.match(character)):
        return character
    try:
        octets = character.encode("utf-8", "surrogateescape")  # a byte of a path that is not UTF-8, as Python holds it
    except UnicodeEncodeError:
        octets = b"?"  # half a surrogate pair: stored like this too
    return "".join(f"\\x{octet:02x}" for octet in octets)
