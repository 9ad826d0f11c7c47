"""One command as a process of this machine: its limits, its end, and the watch until all that it started has ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO

from context_bench.sandbox.cgroups import Group

_PAGE = resource.getpagesize()
_TICK = 0.1  # seconds between two looks at a command
_ROUND = 0.005  # seconds between two rounds of ending what it started
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_AT_ONCE = 15  # names of up to 255 bytes that make a path the system takes
_OWN_MEMBERS = 1  # the process of bwrap itself is a member of the group too


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a program. `timeout`: seconds on the clock. `memory`: bytes, for each process and for all of them with
    their files. `processes`: at one time.
    """

    timeout: float = 10.0
    memory: int = 2**30
    processes: int = 32


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on what the processes of one command take together. `memory`, `disk`: bytes (disk: of the whole
    workspace); `processes`: at a time.

    A command that goes over is killed whole. The kernel keeps memory and `tasks` where the system grants us control
    groups; the number of processes and the disk are looked at several times a second, as is memory elsewhere: it can be
    over for that long.
    """

    memory: int = 4 * 2**30
    disk: int = 4 * 2**30
    processes: int = 512

    @property
    def tasks(self) -> int:
        """Processes and threads that there can be; one more is never made."""
        return 2 * self.processes


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one command.

    `exit`: its status (negative: the signal that ended it), None if it was killed for a limit. `stdout_tail`,
    `stderr_tail`: the last of what it said, at most `keep` bytes each, bad UTF-8 replaced; `dropped`: how many bytes of
    both came before. `seconds`: on the clock. `timed_out`: killed because its time was over. `killed`: "memory",
    "disk", "processes" or "stopped" if it was killed for that, else "". Whatever it started has ended when this is
    there.
    """

    exit: int | None
    stdout_tail: str
    stderr_tail: str
    seconds: float
    timed_out: bool = False
    killed: str = ""
    dropped: int = 0

    @property
    def ok(self) -> bool:
        """It ended by itself with status 0."""
        return self.exit == 0 and not self.timed_out and not self.killed


@dataclass(slots=True)
class RunningCommand:
    """A command to start: `argv` with exactly this `environment`; `end` is called when it has to go and may do more
    than killing its processes.

    `handles`: files that it gets; `status`: one of them, in which bwrap says whether the command was started (what runs
    inside does not have it); `group`: the control group it is in. Whoever makes one lets it go with `over`.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    stdin: bytes = b""
    handles: list[IO[bytes]] = field(default_factory=list)
    end: Callable[[], None] | None = None
    group: Group | None = None
    status: IO[bytes] = field(default_factory=BytesIO)

    def descriptors(self) -> tuple[int, ...]:
        """Of the files that it gets."""
        return tuple(handle.fileno() for handle in self.handles)

    def over(self, seconds: float = 10.0) -> bool:
        """Let go of what was made for it; False if its processes were not gone within that time."""
        for handle in self.handles:
            handle.close()
        return self.group is None or self.group.remove(seconds)


@dataclass(slots=True)
class StopRequest:
    """Asks from another thread that the command ends."""

    asked: threading.Event = field(default_factory=threading.Event)


def watched(
    command: RunningCommand, bounds: Bounds, timeout: float, *, keep: int, disk: Path, stop: StopRequest
) -> Finished:
    """Run `command` to its end, at most `timeout` seconds; `disk`: the folder whose size counts. `OSError` if it cannot
    start.
    """
    started = time.monotonic()
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        list(command.argv),
        env=dict(command.environment),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        pass_fds=command.descriptors(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _Tail(process.stdout, keep), _Tail(process.stderr, keep)
    feeding = threading.Thread(target=_feed, args=(process.stdin, command.stdin), daemon=True)
    feeding.start()
    try:
        why = _why_over(process, command.group, bounds, started + timeout, disk, stop)
    finally:
        _end(process, command)
    for reader in (out, err):
        reader.join()
    return Finished(
        None if why else process.returncode,
        out.text(),
        err.text(),
        time.monotonic() - started,
        timed_out=why == "time",
        killed="" if why == "time" else why,
        dropped=out.dropped + err.dropped,
    )


def _why_over(
    process: subprocess.Popen[bytes],
    group: Group | None,
    bounds: Bounds,
    deadline: float,
    disk: Path,
    stop: StopRequest,
) -> str:
    """Wait; "" when it ended by itself, else for what it has to be killed."""
    look_at_disk = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TICK)
            return "" if group is None else group.exceeded()
        now = time.monotonic()
        if stop.asked.is_set():
            return "stopped"
        if now > deadline:
            return "time"
        if why := _over(process.pid, group, bounds):
            return why
        if now > look_at_disk:
            if size_of(disk, bounds.disk) > bounds.disk:
                return "disk"
            # a large tree takes long to add up: a tenth of the time at most
            look_at_disk = time.monotonic() + max(0.5, 9 * (time.monotonic() - now))


def _over(pid: int, group: Group | None, bounds: Bounds) -> str:
    """The bound that is exceeded now, or "". What the kernel counts is asked for, the rest added up."""
    if group is not None and (why := group.exceeded()):
        return why
    family = group.members() if group is not None else descendants(pid)
    if len(family) > bounds.processes + (_OWN_MEMBERS if group is not None else 0):
        return "processes"
    counted = group is not None and "memory" in group.folders
    return "memory" if not counted and sum(map(_resident, family)) > bounds.memory else ""


def _end(process: subprocess.Popen[bytes], command: RunningCommand) -> None:
    """Nothing of the command is left after this."""
    if process.poll() is None:
        if command.end is not None:
            command.end()
        if command.group is not None:
            command.group.kill()
        for _ in range(100):  # whoever forks while it is killed is found in the next round
            family = descendants(process.pid)
            for pid in family:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not family:
                break
            time.sleep(_ROUND)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def descendants(root: int) -> list[int]:
    """Ids of all processes that descend from `root`, without itself; those that are dead and not yet fetched do not
    count.
    """
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 (hundreds of names, several times a second)
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(name))
    processes: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        processes += below
        waiting += below
    return processes


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def size_of(folder: Path, enough: int) -> int:
    """Bytes that the tree takes on the disk; adding up ends as soon as there are more than `enough`. Links are not
    followed.
    """
    total, waiting = 0, [os.fspath(folder)]
    while waiting and total <= enough:
        path = waiting.pop()
        try:
            with _opened(path) as handle, os.scandir(handle) as entries:
                for entry in entries:
                    try:
                        total += max(512, entry.stat(follow_symlinks=False).st_blocks * 512)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{path}/{entry.name}")
                    except OSError:
                        continue
        except OSError:
            continue
    return total


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """A folder, opened a part of its path at a time: the system takes no path as long as a tree may be deep."""
    parts = path.split("/")
    handle = os.open("/".join(parts[:_AT_ONCE]) or "/", _FOLDER)
    try:
        for start in range(_AT_ONCE, len(parts), _AT_ONCE):
            inner = os.open("/".join(parts[start : start + _AT_ONCE]), _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        pipe.write(data)
    with contextlib.suppress(OSError, ValueError):
        pipe.close()


class _Tail:
    """Reads a pipe to its end in a thread of its own and keeps the last bytes."""

    def __init__(self, pipe: IO[bytes], keep: int) -> None:
        self._pipe, self._keep, self._kept, self.dropped = pipe, keep, bytearray(), 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        handle = self._pipe.fileno()
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(handle, 2**16):
                self._kept += chunk
                if len(self._kept) > 2 * self._keep + 2**16:
                    self._cut()
        self._cut()

    def _cut(self) -> None:
        over = len(self._kept) - self._keep
        if over > 0:
            self.dropped += over
            del self._kept[:over]

    def join(self) -> None:
        self._thread.join(10.0)  # a process that got away (only without a sandbox) may hold the pipe
        with contextlib.suppress(OSError):
            self._pipe.close()

    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace")
