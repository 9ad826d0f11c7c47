"""One run in a sandbox: a program, whose job goes in and what became of it comes out, or a command of an agent."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from context_bench.core.errors import SandboxFailed
from context_bench.sandbox.backends import Places, Sandbox
from context_bench.sandbox.inside import WORD
from context_bench.sandbox.shapes import Bounds, Finished, Limits
from context_bench.sandbox.watched import Command, Stop, watched

#: Reads the first piece of stdin and runs it; `inside.begin` reads the rest.
_BOOT = (
    "import os,marshal\n"
    "def read(n):\n"
    " d=b''\n"
    " while len(d)<n:\n"
    "  m=os.read(0,n-len(d))\n"
    "  if not m: os._exit(3)\n"
    "  d+=m\n"
    " return d\n"
    "s={'__name__':'inside'}\n"
    "exec(marshal.loads(read(int.from_bytes(read(8),'big'))),s)\n"
    "s['begin']()\n"
)
_MOST_OUTPUT = 8192
#: Seconds in which a sandbox must be up and gone beyond the program's own time; the inside keeps the time, this is for when it cannot.
_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`passed`: the program ran to its end. `reason`: "passed", or what happened instead (text from inside: of no authority)."""

    passed: bool
    reason: str


class Unit:
    """Source files, run inside one after the other; they may use the standard library only. `main(data)` of the last one is the unit.

    `apart`: the unit is two processes, connected by two pipes: `far(data, read, write)`, which does not get what stands under these names,
    and `main(data, read, write)`, whose end is the unit's.
    """

    def __init__(self, *paths: Path, apart: tuple[str, ...] = ()) -> None:
        self.paths, self.apart = paths, apart

    def code(self, compiled: bool) -> list[CodeType | str]:
        """Ready to be sent: compiled for the same interpreter, else as text."""
        return [_compiled(path) if compiled else path.read_text("utf-8") for path in self.paths]


@cache
def _compiled(path: Path) -> CodeType:
    return compile(path.read_text("utf-8"), path.name, "exec", dont_inherit=True)


_INSIDE = Unit(Path(__file__).with_name("inside.py"))


async def run(sandbox: Sandbox, unit: Unit, data: dict[str, Any], limits: Limits) -> Outcome:
    """Run `unit` on `data` (plain values) in a fresh sandbox. Nothing of it is left when this returns.

    Raises `SandboxFailed` if the sandbox does not come up; whatever happens after that is the program's own outcome.
    """
    word = secrets.token_bytes(WORD)
    same = sandbox.same_python
    command = sandbox.program(_BOOT, limits)
    try:
        counted = command.group is not None and {"memory", "pids"} <= command.group.folders.keys()
        job = {
            "unit": unit.code(same),
            "counted": counted,
            "user": sandbox.user(),
            "count_by_user": sandbox.count_by_user,
            **asdict(limits),
        }
        job["far"] = {name: value for name, value in data.items() if name not in unit.apart} if unit.apart else None
        pieces = map(_dumped, (_INSIDE.code(same)[0], job, data))
        sent = b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)
        out, err, ended = await _talk(command, sent + word, limits.timeout + _GRACE)
        over = command.group.exceeded() if command.group is not None else ""
    finally:
        if not command.over(0.0):
            await asyncio.shield(asyncio.to_thread(command.over))
    if out.startswith(b"S") and over == "memory":
        return Outcome(False, "too much memory")
    if not out.startswith(b"S"):
        said = " ".join(err.decode("utf-8", "replace").split())[-500:] or ended
        raise SandboxFailed(f"the sandbox ({sandbox.name}) did not start: {said}")
    if out[1 : 1 + WORD] != word:
        return Outcome(False, "the sandbox gave no report of its own")
    return Outcome(out[1 + WORD :][:1] == b"1", out[2 + WORD :].decode("utf-8", "replace"))


def _dumped(value: Any) -> bytes:
    return marshal.dumps(value, 4)  # the newest version that every Python since 3.4 reads


async def _talk(command: Command, sent: bytes, seconds: float) -> tuple[bytes, bytes, str]:
    """Start, send, and read at most a little of what comes back until the process has ended."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command.argv, stdin=pipe, stdout=pipe, stderr=pipe, env=command.environment, pass_fds=command.descriptors()
        )
    except OSError as error:
        return b"", str(error).encode(), ""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    try:
        async with asyncio.timeout(seconds):
            _, out, err = await asyncio.gather(_send(stdin, sent), _read(stdout), _read(stderr))
            ended = f"exit status {await process.wait()}"
    except TimeoutError:
        out, err, ended = b"", b"", f"nothing came back within {seconds:g} s"
    finally:
        if process.returncode is None:
            if command.end is not None:
                await asyncio.shield(asyncio.to_thread(command.end))
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    return out, err, ended


async def _send(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended before it had read everything
        stdin.write(data)
        await stdin.drain()


async def _read(stream: asyncio.StreamReader) -> bytes:
    """What comes until the end, at most `_MOST_OUTPUT` bytes of it kept."""
    kept = b""
    while chunk := await stream.read(2**16):
        kept += chunk[: max(0, _MOST_OUTPUT - len(kept))]
    return kept


def run_in(
    sandbox: Sandbox, argv: Sequence[str], environment: Mapping[str, str], places: Places, *, network: bool, bounds: Bounds, timeout: float,
    stdin: bytes, keep: int, disk: Path, stop: Stop,
) -> Finished:  # fmt: skip
    """One command inside. Raises `SandboxFailed` if the walls do not come up."""
    command = sandbox.command(["/bin/sh", "-c", _limits(sandbox, bounds), "sh", *argv], environment, places, network, bounds)
    command.stdin = stdin
    try:
        finished = watched(command, bounds, timeout, keep=keep, disk=disk, stop=stop)
        fault = sandbox.started(finished, command)
    except OSError as error:
        fault = str(error)
    finally:
        command.over()
    if fault:
        raise SandboxFailed(f"the sandbox ({sandbox.name}) did not start: {fault}")
    return finished


def _limits(sandbox: Sandbox, bounds: Bounds) -> str:
    """For `sh`: limits of each process of the command, then the command."""
    # no core file, and no single file beyond what the whole workspace may take
    words = ["ulimit -c 0", f"ulimit -f {max(1, bounds.disk // 512)}"]
    if sandbox.contained:  # shells call it p or u; without walls, all that this user runs elsewhere would count
        words.append(f"ulimit -p {bounds.tasks} 2>/dev/null || ulimit -u {bounds.tasks} 2>/dev/null")
    if not sandbox.counts_memory:  # what is only set aside and never written to is not counted in this
        words.append(f"ulimit -d {bounds.memory // 1024} 2>/dev/null")
    return "; ".join([*words, 'exec "$@"'])
