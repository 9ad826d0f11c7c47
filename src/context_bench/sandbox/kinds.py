"""The programs that make a sandbox, and how each is told what to allow."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: What Python is started with: no site packages, nothing from the environment but the hash seed, so that runs repeat.
PYTHON_OPTIONS = ("-s", "-S", "-B")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32")
_READABLE = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/nix/store")


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout`: seconds on the clock. `memory`: bytes, for each process and for all of them with their files. `processes`: at one time."""

    timeout: float = 10.0
    memory: int = 2**30
    processes: int = 32


class Sandbox(Protocol):
    """One kind of sandbox. `same_python`: it runs this very interpreter, so that compiled code can be sent."""

    name: str
    same_python: bool
    count_by_user: bool

    def command(self, boot: str, limits: Limits) -> list[str]:
        """The command line that runs Python's `boot` in the sandbox, with stdin and stdout connected."""

    def environment(self) -> dict[str, str]:
        """What that command line is started with."""

    def user(self) -> int:
        """The user id the program changes to inside; 0 = none."""


@dataclass(slots=True)
class Bubblewrap:
    """bwrap: new namespaces for everything; of the disk only this interpreter, its standard library and the system's libraries, read-only.

    As root no user namespace is made (root's processes would not be counted in it): the program becomes a user of its own instead.
    `options`: further ones that not every version knows.
    """

    program: str = "bwrap"
    as_root: bool = False
    options: tuple[str, ...] = ()
    name: str = "bubblewrap"
    same_python: bool = True
    count_by_user: bool = True

    def command(self, boot: str, limits: Limits) -> list[str]:
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if self.as_root else ["--unshare-user"]
        if not self.as_root and os.geteuid() == 0:  # bwrap would leave root what it takes from everybody else
            rights += ["--cap-drop", "ALL"]
        apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        places = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--remount-ro", "/dev", "--remount-ro", "/"]
        python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        return [
            *(self.program, *rights, *apart, *self.options, "--die-with-parent", "--new-session", "--as-pid-1"),
            *_libraries(python),
            *(*places, "--chdir", "/tmp", python, *PYTHON_OPTIONS, "-c", boot),
        ]

    def environment(self) -> dict[str, str]:
        return ENVIRONMENT

    def user(self) -> int:
        return 1_900_000_000 + secrets.randbelow(2**24) if self.as_root else 0


def _libraries(python: str) -> list[str]:
    """What has to be readable for this Python to start, read-only and at its own place."""
    places = dict.fromkeys(map(Path, [*_LIBRARIES, *_READABLE, python, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"]))
    bound = [path for path in places if path.exists() and not path.is_symlink()]
    # The folders on the way are made here: bwrap would close them to the program's own user.
    ways = dict.fromkeys(way for path in bound for way in reversed(path.parents[:-1]))
    return [
        *(part for way in ways for part in ("--dir", str(way))),
        *(part for path in places if path.is_symlink() for part in ("--symlink", str(path.readlink()), str(path))),
        *(part for path in bound for part in ("--ro-bind", str(path), str(path))),
    ]


@dataclass(slots=True)
class Container:
    """docker or podman, with a Python image that is already there (nothing is pulled)."""

    program: str
    image: str
    name: str = "container"
    same_python: bool = False
    count_by_user: bool = False  # the container counts its processes itself

    def command(self, boot: str, limits: Limits) -> list[str]:
        memory, half = str(limits.memory), str(limits.memory // 2)
        return [
            *(self.program, "run", "--rm", "--interactive", "--pull", "never", "--network", "none", "--read-only"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534", "--log-driver", "none"),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes + 2), "--cpus", "1"),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,noexec,mode=1777,size={half}", "--workdir", "/tmp"),
            *(part for name, value in ENVIRONMENT.items() if name != "PATH" for part in ("--env", f"{name}={value}")),
            *("--entrypoint", "python3", self.image, *PYTHON_OPTIONS, "-c", boot),
        ]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)  # the client finds its daemon by it; nothing of it gets inside

    def user(self) -> int:
        return 0
