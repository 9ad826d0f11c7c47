"""Find a sandbox that works on this machine, and run a program or an agent's command in it."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from context_bench.core.errors import MissingProgram, SandboxFailed
from context_bench.sandbox.backends import PATH, Bubblewrap, Container, NoSandbox, Places, Sandbox
from context_bench.sandbox.inside import WORD
from context_bench.sandbox.supervision import Bounds, Finished, Limits, RunningCommand, StopRequest, watched
from context_bench.sandbox.workspace_files import give

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
#: Seconds in which a sandbox must be up and gone beyond the program's own time; the inside keeps the time, this is for
#: when it cannot.
_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`passed`: the program ran to its end. `reason`: "passed", or what happened instead (text from inside: of no
    authority).
    """

    passed: bool
    reason: str


class Unit:
    """Source files, run inside one after the other; they may use the standard library only. `main(data)` of the last
    one is the unit.

    `apart`: the unit is two processes, connected by two pipes: `far(data, read, write)`, which does not get what stands
    under these names, and `main(data, read, write)`, whose end is the unit's.
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
        words = " ".join(err.decode("utf-8", "replace").split())[-500:] or ended
        raise SandboxFailed(f"the sandbox ({sandbox.name}) did not start: {words}")
    if out[1 : 1 + WORD] != word:
        return Outcome(False, "the sandbox gave no report of its own")
    return Outcome(out[1 + WORD :][:1] == b"1", out[2 + WORD :].decode("utf-8", "replace"))


def _dumped(value: Any) -> bytes:
    return marshal.dumps(value, 4)  # the newest version that every Python since 3.4 reads


async def _talk(command: RunningCommand, sent: bytes, seconds: float) -> tuple[bytes, bytes, str]:
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
    """Read until the end; at most `_MOST_OUTPUT` bytes are kept."""
    kept = b""
    while chunk := await stream.read(2**16):
        kept += chunk[: max(0, _MOST_OUTPUT - len(kept))]
    return kept


def run_in(
    sandbox: Sandbox, argv: Sequence[str], environment: Mapping[str, str], places: Places, *, network: bool, bounds: Bounds, timeout: float,  # noqa: E501
    stdin: bytes, keep: int, disk: Path, stop: StopRequest,
) -> Finished:  # fmt: skip
    """One command inside. Raises `SandboxFailed` if the sandbox does not come up."""
    command = sandbox.command(
        ["/bin/sh", "-c", _limits(sandbox, bounds), "sh", *argv], environment, places, network, bounds
    )
    command.stdin = stdin
    try:
        finished = watched(command, bounds, timeout, keep=keep, disk=disk, stop=stop)
        fault = sandbox.fault(finished, command)
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
    if sandbox.contained:  # shells call it p or u; without a sandbox, all that this user runs elsewhere would count
        words.append(f"ulimit -p {bounds.tasks} 2>/dev/null || ulimit -u {bounds.tasks} 2>/dev/null")
    if not sandbox.counts_memory:  # what is only set aside and never written to is not counted in this
        words.append(f"ulimit -d {bounds.memory // 1024} 2>/dev/null")
    return "; ".join([*words, 'exec "$@"'])


_PROBE = Unit(Path(__file__).with_name("probe.py"))
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_IMAGES = (
    f"python:{_VERSION}-slim",
    f"python:{_VERSION}",
    f"python:{_VERSION}-alpine",
    "python:3-slim",
    "python:3",
    "python:latest",
)
#: The same for agents. $1: a file outside.
_AGENT_PROBE = """
say() { echo "$1"; exit 9; }
touch /cb-probe 2>/dev/null && say 'its root folder can be written'
touch probe || say 'the copy cannot be written'
test -e "$1" && say 'a file outside can be seen'
git --version >/dev/null || say 'there is no git inside'
exit 0
"""


async def find_sandbox() -> Sandbox:
    """The first kind that runs a program here and shows it no network, no environment and no home; raises
    `MissingProgram`, saying what was tried and what to install.
    """
    faults: list[str] = []
    kinds = _kinds(faults, None)
    while (kind := await asyncio.to_thread(next, kinds, None)) is not None:
        fault = await _fault_with_programs(kind)
        if not fault:
            return kind
        faults.append(fault)
    raise MissingProgram(
        "Code written by a model is run only in a sandbox, and none works here. Install bubblewrap (apt-get install "
        "bubblewrap, "
        f"dnf install bubblewrap), or docker or podman with a Python image (docker pull {_IMAGES[0]}). Tried: "
        f"{_once(faults)}."
    )


def find_agent_sandbox(*, unsafe: bool = False, image: str | None = None) -> Sandbox:
    """The first sandbox that works here for agents: bubblewrap, then docker or podman with `image` (default: a
    Python image that is there).

    `unsafe`: take none where nothing works (a CI machine without user namespaces): whoever reports must say so,
    `contained` is False. Raises `MissingProgram` with what was tried and what to install.
    """
    faults: list[str] = []
    for kind in _kinds(faults, image):
        fault = _fault_with_agents(kind)
        if not fault:
            return kind
        faults.append(_hint(kind, f"{kind.name}: {fault}"))
    if unsafe:
        return NoSandbox()
    raise MissingProgram(
        "An agent is run only in a sandbox, and none works here. Install bubblewrap (apt-get install bubblewrap) and "
        "allow user "
        "namespaces, or docker or podman with an image that holds the agent, git and Python. On a machine that is "
        "thrown away afterwards "
        f"the sandbox can be done without, by choice. Tried: {_once(faults)}."
    )


def _once(faults: list[str]) -> str:
    return "; ".join(dict.fromkeys(faults))


def _kinds(faults: list[str], image: str | None) -> Iterator[Sandbox]:
    """The strongest first: each with refused system calls, then without where no filter can be loaded."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        faults.append("bwrap is not installed")
    else:
        for filtered in (True, False):
            if os.geteuid() == 0:
                yield Bubblewrap(bwrap, as_root=True, filtered=filtered)
            yield Bubblewrap(bwrap, options=("--disable-userns",), filtered=filtered)  # since 0.8
            yield Bubblewrap(bwrap, filtered=filtered)
    wanted = (image,) if image else None
    for program in ("docker", "podman"):
        path = shutil.which(program)
        if path is None:
            faults.append(f"{program} is not installed")
            continue
        there = image_here(path, wanted)
        if there is None:
            faults.append(f"{program} has no daemon that answers, or none of the images {', '.join(wanted or _IMAGES)}")
            continue
        for filtered in (True, False):
            yield Container(path, there, name=program, filtered=filtered)


async def _fault_with_programs(kind: Sandbox) -> str:
    """The reason for which this kind cannot be used; "" if it contains."""
    try:
        outcome = await run(kind, _PROBE, {}, Limits(timeout=20.0))
    except SandboxFailed as error:
        return _hint(kind, str(error))
    return "" if outcome.passed else f"{kind.name} starts, but does not contain: {outcome.reason}"


def _fault_with_agents(kind: Sandbox) -> str:
    """The same for agents."""
    with tempfile.TemporaryDirectory(prefix="context-bench-") as name:
        copy, secret = Path(name, "copy"), Path(name, "secret")
        copy.mkdir()
        secret.write_text("x")
        places = Places([(copy, "/workspace/repo", True)], "/workspace/repo", kind.user())
        argv, environment = ["/bin/sh", "-c", _AGENT_PROBE, "sh", str(secret)], {"PATH": PATH, "HOME": "/tmp"}
        try:
            give(copy, places.user)
            finished = run_in(
                kind,
                argv,
                environment,
                places,
                network=False,
                bounds=Bounds(),
                timeout=60.0,
                stdin=b"",
                keep=4096,
                disk=copy,
                stop=StopRequest(),
            )
        except (SandboxFailed, OSError) as error:  # not every disk knows every user
            return str(error)
        return (
            ""
            if finished.ok
            else finished.stdout_tail.strip() or finished.stderr_tail.strip()[-300:] or f"exit status {finished.exit}"
        )


def image_here(program: str, wanted: tuple[str, ...] | None = None) -> str | None:
    """The first of the `wanted` images (default: the known Python ones) that is there already."""
    for image in wanted or _IMAGES:
        try:
            seen = subprocess.run([program, "image", "inspect", image], capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if seen.returncode == 0:
            return image
        if b"daemon" in seen.stderr.lower() or b"connect" in seen.stderr.lower():
            return None
    return None


def _hint(kind: Sandbox, fault: str) -> str:
    if kind.name == "bubblewrap" and ("namespace" in fault or "not permitted" in fault.lower() or "uid map" in fault):
        return (
            f"{fault} (user namespaces are not allowed here: see kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns, or a container's seccomp profile)"
        )
    return fault
