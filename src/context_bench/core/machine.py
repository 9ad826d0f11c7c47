"""The machine below a command: its clock, its C allocator (one heap for all threads, and what is free given back to the
system), how often Python looks for garbage, how long idle threads of numpy spin, the user's home and cache folders,
which process this is, and programs that it starts.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import time
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
_ARENAS, _LARGE_BLOCK = 1, 512 * 1024
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
    """Have each block of half a megabyte or more given back as soon as it is freed; returns False where the allocator
    has no such setting.

    By default glibc takes the first large block that is freed for a habit of the program, and keeps such blocks (up to
    32 MB): a process that reads hostile bodies would hold what it no longer needs just while it needs the most.
    `MALLOC_MMAP_THRESHOLD_` in the environment stands.
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


def process_mark() -> str:
    """Names this process, so that another one can tell whether it still lives."""
    pid = os.getpid()
    return f"{_host()}|{pid}|{_started(pid)}"


def _host() -> str:
    import platform

    from context_bench.core.keys import hash_text  # the help of commands needs none

    try:  # containers of one machine may share its name, not its processes
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return hash_text(f"{platform.node()} {space}", 12)


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
