"""Limits and results of a command that runs in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a program. `timeout`: seconds on the clock. `memory`: bytes, for each process and for all of them with their
    files. `processes`: at one time.
    """

    timeout: float = 10.0
    memory: int = 2**30
    processes: int = 32


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the processes of one command may take together. `memory`, `disk`: bytes (disk: of the whole workspace);
    `processes`: at a time.

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the hidden tests. `solved`: the verifier's own condition holds (see `verify`).

    `passed`, `failed`: of the tests that were named beforehand; those that were not seen in the output are in `failed`
    too. `reward`: the number that a Harbor verifier wrote. `undone`: files with power over tests that the agent had
    changed and that were put back or taken away (`conftest.py`, a planted `unittest.py` …). `reason`: why it is not
    solved, in words; "" if it is.
    """

    solved: bool
    finished: Finished
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    reward: float | None = None
    undone: tuple[str, ...] = ()
    reason: str = ""
