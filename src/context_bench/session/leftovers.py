"""Programs that something in a command started and did not end.

One that still writes to the command's own output keeps it open: a pipeline would wait for it, and what it says would land in a prompt. So
it is ended with the command, which says so. One in a session of its own (`start_new_session=True`), or with an output of its own, was meant
to stay, and does; so does what such a program started in turn.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from context_bench.session import interrupts
from context_bench.session.files import say

_PATIENCE = 1.0  # seconds from SIGTERM to SIGKILL
_PYTHONS_OWN = "multiprocessing.resource_tracker"  # ends when this process does


@contextmanager
def ended() -> Iterator[None]:
    """What begins within the block and writes where this command writes does not outlive it. Where there is no /proc nothing is done."""
    before = set(interrupts.children())
    try:
        yield
    finally:
        for pid in set(interrupts.children()) - before:
            with suppress(OSError):
                if os.getsid(pid) == os.getsid(0) and _writes_here(pid) and _PYTHONS_OWN not in (line := _command_line(pid)):
                    _end(pid, line)


def _writes_here(pid: int) -> bool:
    """Has the process a standard stream that is one of ours? A place that everybody may write to, such as /dev/null, is nobody's."""
    ours = {_output(os.getpid(), number) for number in (1, 2)} - {None, os.devnull}
    return any(_output(pid, number) in ours for number in (1, 2))


def _output(pid: int, number: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/fd/{number}").readlink())
    except OSError:
        return None


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _end(pid: int, line: str) -> None:
    from context_bench.llm.redact import redact

    handle = os.pidfd_open(pid)
    try:
        _signal(pid, signal.SIGTERM)
        ending = select.poll()  # `select.select` takes no descriptor above 1,023
        ending.register(handle, select.POLLIN)
        if not ending.poll(_PATIENCE * 1000):
            _signal(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    say(f"ended a program that was left running: {redact(line)[:200]} (process {pid})")


def _signal(pid: int, number: int) -> None:
    """To the process, and to its group if it leads one."""
    (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, number)
