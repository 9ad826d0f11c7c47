"""The first process of a sandbox: it starts the program in a child, watches it, and says how it ended.

This file is not imported but sent into the sandbox and run there, by whatever Python is found there, with the standard
library only; every import is paid for in each run, so there are few.

The host sends a job, the data, then a word it keeps to itself. The word is read when the child exists but does not run
yet, so that the child's memory never holds it: what the host reads back with the word in front comes from this process.
The child in turn holds a token, which it gives back when `main` has run to its end, so that leaving early by whatever
door, with whatever status, is not an end.

Code that goes looking for the token in its own process would find it. So a unit that runs what it does not trust is two
processes: the one with that code is made before there is a token and before the data is read, and may not look into the
others, which are closed to debuggers and to readers of `/proc`.
"""

# pathlib and contextlib would be imported for each run:
# ruff: noqa: PTH101, PTH123, PTH208, SIM105
from __future__ import annotations

import marshal
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

WORD = 16
_DISK = ("/tmp", "/dev/shm")


def supervise(job: dict[str, Any]) -> None:
    """Run `job["unit"]`'s `main(data)` under its limits; write "S", and in the end the host's word, 1 or 0, and what
    happened.
    """
    os.write(1, b"S")
    os.umask(0o077)
    for folder in _DISK:
        _open_to_all(folder)
    if not job["user"]:  # users of their own are closed to one another, and so is one who was root a moment ago
        _close_to_others()
    pipes: tuple[int, ...] = ()
    if job["far"] is not None:
        job["processes"] += 1
        pipes = _far(job)
    data = marshal.loads(_piece())
    token = os.urandom(WORD)
    report, tell = os.pipe()
    gate, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(report)
        os.close(go)
        os.read(gate, 1)
        os.close(gate)
        _program(job, "main", (data, *pipes), token, tell)
    for handle in (tell, gate, *pipes):
        os.close(handle)
    word = _exactly(0, WORD)
    os.write(go, b"!")
    end, passed = (_wait if job["counted"] else _watch)(child, job), False
    if not end:
        os.set_blocking(report, False)
        passed, end = _report(report, token)
    os.write(1, word + (b"1" if passed else b"0") + end.encode("utf-8", "replace")[:1000])


def _far(job: dict[str, Any]) -> tuple[int, int]:
    """Start the other process of the unit; where its answers are read, and what it is asked is written."""
    theirs, ask = os.pipe()
    answers, tell = os.pipe()
    if os.fork() == 0:
        os.close(ask)
        os.close(answers)
        _program(job, "far", (job["far"], theirs, tell), b"", None)
    os.close(theirs)
    os.close(tell)
    job["user"] = job["user"] and job["user"] + 1
    return answers, ask


def _close_to_others() -> None:
    """Let no process of the same user look into this one, nor into its children, or change them (`PR_SET_DUMPABLE`)."""
    try:
        import _ctypes  # ctypes itself would be paid for in each run

        library: Any = _ctypes
        library.call_function(library.dlsym(library.dlopen(None, 0), "prctl"), (4, 0, 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        pass


def _open_to_all(folder: str) -> None:
    """The program may run as another user than this process, and its private folders belong to this one."""
    try:
        os.chmod(folder, 0o1777)
    except OSError:
        pass


def _exactly(handle: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(handle, count - len(data))
        if not more:
            os._exit(3)
        data += more
    return data


def _wait(child: int, job: dict[str, Any]) -> str:
    """Wait for the child; "" when it ended by itself, else why it was given up. Whoever is left dies with this process.

    The kernel keeps the limits but that of time.
    """
    import _signal  # type: ignore[import-not-found]  # signal itself would be paid for in each run

    def over(*_: object) -> None:
        raise TimeoutError

    try:
        _signal.signal(_signal.SIGALRM, over)  # only here: no child has it
        _signal.setitimer(_signal.ITIMER_REAL, min(job["timeout"], 1e7))  # what is more it does not take
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == child:
                _signal.setitimer(_signal.ITIMER_REAL, 0)
                return _ending(status)
    except ChildProcessError:
        return "gone"
    except TimeoutError:
        return "timed out"


def _watch(child: int, job: dict[str, Any]) -> str:
    """As `_wait`, where this process has to keep the other limits too."""
    deadline, pause = time.monotonic() + job["timeout"], 0.0005
    while True:
        time.sleep(pause)
        pause = min(0.01, pause * 1.25)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return "gone"
            if pid == child:
                return _ending(status)
            if pid == 0:
                break
        if time.monotonic() > deadline:
            return "timed out"
        others, held = _held()
        if others > job["processes"]:
            return "too many processes"
        if held > job["memory"]:
            return "too much memory"


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    return "" if status == 0 else f"exit status {os.WEXITSTATUS(status)}"


def _held() -> tuple[int, int]:
    """Count the other processes, and the bytes that they and the files in memory occupy."""
    own, others, held = str(os.getpid()), 0, 0
    page = resource.getpagesize()
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    for name in names:
        if name.isdigit() and name != own:
            others += 1
            try:
                with open(f"/proc/{name}/statm", "rb") as file:
                    held += int(file.read().split()[1]) * page
            except (OSError, IndexError):
                continue
    for folder in _DISK:
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        # an empty file takes about a kilobyte too
        held += (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * 1024
    return others, held


def _report(handle: int, token: bytes) -> tuple[bool, str]:
    try:
        report = os.read(handle, 4096)
    except BlockingIOError:
        report = b""
    if report == token:
        return True, "passed"
    return False, report.decode("utf-8", "replace") or "left before its end"


def _program(job: dict[str, Any], entry: str, given: tuple[Any, ...], token: bytes, tell: int | None) -> NoReturn:
    """A child: take the limits on, run, tell. Never returns."""
    # Kept here, where a program that replaces the module's functions does not reach them.
    write, leave, pid = os.write, os._exit, os.getpid
    mine = pid()
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        _limit(job)
        space: dict[str, Any] = {"__name__": "unit"}
        for code in job["unit"]:
            exec(code, space)
        sys.path[:] = [place for place in sys.path if place]  # nothing is imported that was written here
        space[entry](*given)
        word = token
    except BaseException as error:
        try:
            word = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:500]
        except BaseException:
            word = b"failed"
    if tell is not None and pid() == mine:  # a fork of the program that ran to the end is not the program
        write(tell, word)
    leave(0)


def _limit(job: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(job["timeout"]) + 2,
        resource.RLIMIT_AS: job["memory"],
        resource.RLIMIT_FSIZE: min(job["memory"], 64 * 2**20),
        resource.RLIMIT_NOFILE: 256,
    }
    if job["count_by_user"]:
        limits[resource.RLIMIT_NPROC] = job["processes"]
    for limit, value in limits.items():
        _, most = resource.getrlimit(limit)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))
    user = job["user"]
    if user:  # root's processes are not counted, and root may do too much: become somebody who owns nothing
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def begin() -> None:
    """Read the job that the host sends and do it."""
    supervise(marshal.loads(_piece()))


def _piece() -> bytes:
    """The next thing that the host sends."""
    return _exactly(0, int.from_bytes(_exactly(0, 8), "big"))
