"""Control groups: limits of the kernel on everything that one run holds together, where this system lets us make them.

Memory counted so includes what belongs to no process: files in memory, memfds, buffers of sockets and pipes. A group is
made for each run and removed after it; what a process of ours that was killed left behind is removed by the next one
that looks for groups.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PREFIX = "context-bench"
#: context-bench-(namespace of processes)-(our process)-(when that began)-(anything)
_OURS = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-(\d+)-[0-9a-f]+")
_CONTROLLERS = ("memory", "pids", "cpu")
_ENDING = 10.0
#: The command becomes a member before it is anything else. A thread that moves itself waits for nobody, unlike one that
#: is moved.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of one group. `memory`: bytes; `tasks`: processes and threads; `one_share`: however many processes there
    are, they get no more of a busy processor than one (which costs a short program some time to begin with).
    """

    memory: int
    tasks: int
    one_share: bool = False


class Group:
    """The group of one run. `folders`: controller → its folder; with the second version of control groups they are the
    same one.
    """

    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self.version, self.folders = version, dict(folders)
        self._any = next(iter(self.folders.values()))

    def entering(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` as a member."""
        name = "tasks" if self.version == 1 else "cgroup.procs"
        places = dict.fromkeys(str(folder / name) for folder in self.folders.values())
        return ["/bin/sh", "-c", _ENTER, "sh", *places, "--", *argv]

    def members(self) -> list[int]:
        """Ids of the processes in it."""
        with contextlib.suppress(OSError, ValueError):
            return [int(line) for line in (self._any / "cgroup.procs").read_text().split()]
        return []

    def exceeded(self) -> str:
        """The limit that was reached at any time so far: "memory" (a process was ended for it), "processes" (one was
        not made), or "".
        """
        memory = "memory.oom_control" if self.version == 1 else "memory.events"
        if self._count("memory", memory, "oom_kill"):
            return "memory"
        return "processes" if self._count("pids", "pids.events", "max") else ""

    def _count(self, controller: str, file: str, name: str) -> int:
        if controller in self.folders:
            with contextlib.suppress(OSError, ValueError):
                words = (self.folders[controller] / file).read_text().split()
                return int(words[words.index(name) + 1])
        return 0

    def kill(self, seconds: float = _ENDING) -> bool:
        """End all members; False if some are there still after this time."""
        deadline = time.monotonic() + seconds
        while self.members():
            self._kill_once()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def _kill_once(self) -> None:
        if "pids" in self.folders:  # no member is made from here on, so killing comes to an end
            _write(self.folders["pids"] / "pids.max", "0")
        if self.version == 2 and _write(self._any / "cgroup.kill", "1"):
            return
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def remove(self, seconds: float = _ENDING) -> bool:
        """End all members and take the group away; False if it is there still: the next run tries again."""
        gone = self.kill(seconds)
        for folder in dict.fromkeys(self.folders.values()):
            for pause in (0.001, 0.01, 0.1, 0.0):  # the dead are let go a moment later
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(min(pause, seconds))
                    continue
                break
            else:
                gone = False
        return gone


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """A place where groups can be made. `version`: of control groups, 1 or 2; `roots`: controller → the folder to make
    them in.
    """

    version: int
    roots: Mapping[str, Path]

    @property
    def counts_memory(self) -> bool:
        return "memory" in self.roots

    def make(self, caps: Caps) -> Group:
        """A new, empty group under `caps`. Raises `OSError`."""
        name = _name()
        wanted = {
            controller: root / name
            for controller, root in self.roots.items()
            if caps.one_share or controller in _LIMITS
        }
        group = Group(self.version, wanted)
        try:
            for folder in dict.fromkeys(group.folders.values()):
                folder.mkdir()
            for controller in group.folders.keys() & _LIMITS.keys():
                _LIMITS[controller](group, caps)
        except OSError:
            group.remove(0.0)
            raise
        return group

    def clear(self) -> None:
        """End and remove the groups whose owner is dead."""
        for root in dict.fromkeys(self.roots.values()):
            for folder in root.glob(f"{_PREFIX}-*"):
                seen = _OURS.fullmatch(folder.name)
                if seen and int(seen[1]) == _namespace() and _begun(int(seen[2])) != int(seen[3]):
                    one = {name: place / folder.name for name, place in self.roots.items() if place == root}
                    Group(self.version, one).remove(1.0)


def _name() -> str:
    pid = os.getpid()
    return f"{_PREFIX}-{_namespace()}-{pid}-{_begun(pid)}-{secrets.token_hex(6)}"


def _namespace() -> int:
    """Ids of processes mean something only within it."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def _begun(pid: int) -> int | None:
    """The time at which the process began, in ticks since the machine did; None if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _write(place: Path, value: str) -> bool:
    with contextlib.suppress(OSError):
        _must(place, value)
        return True
    return False


def _must(place: Path, value: str) -> None:
    with place.open("w") as file:  # never made: these files are there or they are not
        file.write(value)


def _limit_memory(group: Group, caps: Caps) -> None:
    folder = group.folders["memory"]
    if group.version == 1:
        _must(folder / "memory.limit_in_bytes", str(caps.memory))
        _write(folder / "memory.memsw.limit_in_bytes", str(caps.memory))  # where swap is counted
        _write(
            folder / "memory.kmem.tcp.limit_in_bytes", str(caps.memory)
        )  # buffers of internet sockets are counted apart, if at all
    else:
        _must(folder / "memory.max", str(caps.memory))
        _write(folder / "memory.swap.max", "0")


def _limit_tasks(group: Group, caps: Caps) -> None:
    _must(group.folders["pids"] / "pids.max", str(caps.tasks))


#: Of the processor a group has its share by being one.
_LIMITS = {"memory": _limit_memory, "pids": _limit_tasks}


@cache
def find_groups() -> ControlGroups | None:
    """The control groups that this system grants us, tried out; None if neither memory nor processes can be limited.
    Removes what the dead left.
    """
    mounts, own = _read("/proc/self/mountinfo"), _read("/proc/self/cgroup")
    for groups in _candidates(mounts, own):
        if _works(groups):
            groups.clear()
            return groups
    return None


def _read(place: str) -> str:
    try:
        return Path(place).read_text("utf-8", "replace")
    except OSError:
        return ""


def _candidates(mounts: str, own: str) -> Iterator[ControlGroups]:
    """The best first: all that the second version has, then all of the first, then single controllers of it."""
    yield from _version_2(mounts, own)
    first = _version_1(mounts, own)
    for names in (_CONTROLLERS, ("memory", "pids"), ("memory",), ("pids",)):
        if roots := {name: first[name] for name in names if name in first}:
            yield ControlGroups(1, roots)


def _version_2(mounts: str, own: str) -> Iterator[ControlGroups]:
    """Our own group's ancestors: only in one whose controllers are passed on, and which may have no processes, groups
    are made.
    """
    path = next((line.split("::", 1)[1] for line in own.splitlines() if line.startswith("0::")), None)
    for kind, root, place, _ in _mounts(mounts):
        if kind == "cgroup2" and path is not None:
            here = _below(place, path, root)
            for folder in [here, *here.parents]:
                if not folder.is_relative_to(place):
                    break
                passed_on = set(_read(str(folder / "cgroup.subtree_control")).split())
                if passed_on & {"memory", "pids"}:
                    yield ControlGroups(2, {name: folder for name in _CONTROLLERS if name in passed_on})


def _version_1(mounts: str, own: str) -> dict[str, Path]:
    """Controller → our own group's folder, with the first version."""
    member = (line.split(":", 2) for line in own.splitlines() if line.count(":") >= 2)
    paths = {name: path for _, names, path in member for name in names.split(",")}
    homes: dict[str, Path] = {}
    for kind, root, place, options in _mounts(mounts):
        if kind == "cgroup":
            for name in options & set(_CONTROLLERS) & paths.keys():
                homes.setdefault(name, _below(place, paths[name], root))
    return {name: homes[name] for name in _CONTROLLERS if name in homes}


def _mounts(text: str) -> Iterator[tuple[str, str, Path, set[str]]]:
    """(kind, the part that is shown, where, options) of all mounts in the text of a mountinfo."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, more = before.split(), after.split()
        if len(words) > 4 and len(more) > 2:
            yield more[0], words[3], Path(words[4]), set(more[2].split(","))


def _below(place: Path, path: str, root: str) -> Path:
    """The folder of the group `path` in a mount at `place` that shows `root`; in a container the mount itself may be
    our group.
    """
    inner = path if root == "/" else path[len(root) :] if path.startswith(root) else ""
    there = place.joinpath(*(part for part in inner.split("/") if part not in ("", "..")))
    return there if there.is_dir() else place


def _works(groups: ControlGroups) -> bool:
    """A process gets into a group there and ends in it."""
    try:
        group = groups.make(Caps(64 * 2**20, 16))
    except OSError:
        return False
    try:
        done = subprocess.run(group.entering(["/bin/sh", "-c", "exit 7"]), capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        group.remove(1.0)
    return done.returncode == 7
