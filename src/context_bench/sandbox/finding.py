"""Which sandbox works on this machine, for programs and for agents."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from context_bench.core.errors import MissingProgram, SandboxFailed
from context_bench.sandbox.backends import PATH, Bubblewrap, Container, NoSandbox, Places, Sandbox
from context_bench.sandbox.placing import give
from context_bench.sandbox.running import Unit, run, run_in
from context_bench.sandbox.shapes import Bounds, Limits
from context_bench.sandbox.watched import Stop

_PROBE = Unit(Path(__file__).with_name("probe.py"))
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_IMAGES = (f"python:{_VERSION}-slim", f"python:{_VERSION}", f"python:{_VERSION}-alpine", "python:3-slim", "python:3", "python:latest")
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
    """The first kind that runs a program here and shows it no network, no environment and no home; raises `MissingProgram`, saying what
    was tried and what to install.
    """
    faults: list[str] = []
    kinds = _kinds(faults, None)
    while (kind := await asyncio.to_thread(next, kinds, None)) is not None:
        fault = await _fault_with_programs(kind)
        if not fault:
            return kind
        faults.append(fault)
    raise MissingProgram(
        "Code written by a model is run only in a sandbox, and none works here. Install bubblewrap (apt-get install bubblewrap, "
        f"dnf install bubblewrap), or docker or podman with a Python image (docker pull {_IMAGES[0]}). Tried: {_once(faults)}."
    )


def find_house(*, unsafe: bool = False, image: str | None = None) -> Sandbox:
    """The first kind of walls that works here for agents: bubblewrap, then docker or podman with `image` (default: a Python image that is
    there).

    `unsafe`: take none where nothing works (a CI machine without user namespaces): whoever reports must say so, `contained` is False.
    Raises `MissingProgram` with what was tried and what to install.
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
        "An agent is run only in a sandbox, and none works here. Install bubblewrap (apt-get install bubblewrap) and allow user "
        "namespaces, or docker or podman with an image that holds the agent, git and Python. On a machine that is thrown away afterwards "
        f"the sandbox can be done without, by choice. Tried: {_once(faults)}."
    )


def _once(faults: list[str]) -> str:
    return "; ".join(dict.fromkeys(faults))


def _kinds(faults: list[str], image: str | None) -> Iterator[Sandbox]:
    """The strongest first: each with refused system calls, then without where no filter can be loaded."""
    found = shutil.which("bwrap")
    if found is None:
        faults.append("bwrap is not installed")
    else:
        for filtered in (True, False):
            if os.geteuid() == 0:
                yield Bubblewrap(found, as_root=True, filtered=filtered)
            yield Bubblewrap(found, options=("--disable-userns",), filtered=filtered)  # since 0.8
            yield Bubblewrap(found, filtered=filtered)
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
    """What keeps this kind from being used; "" if it contains."""
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
                kind, argv, environment, places, network=False, bounds=Bounds(), timeout=60.0, stdin=b"", keep=4096, disk=copy, stop=Stop()
            )
        except (SandboxFailed, OSError) as error:  # not every disk knows every user
            return str(error)
        return "" if finished.ok else finished.stdout_tail.strip() or finished.stderr_tail.strip()[-300:] or f"exit status {finished.exit}"


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
