"""The programs that make a sandbox: bubblewrap, docker or podman, or, only if asked for, none.

Each runs two things. A *program* is Python that a model wrote: it sees this interpreter and an empty /tmp. A *command*
is an agent's or a verifier's: it sees the programs of this machine, read-only, and the folders that it is given. Around
both stand the same limits: namespaces, refused system calls (`seccomp`), limits of the kernel on all that they hold
together (`groups`).
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from context_bench.core.errors import SandboxFailed
from context_bench.sandbox import seccomp
from context_bench.sandbox.cgroups import Caps, ControlGroups, find_groups
from context_bench.sandbox.supervision import Bounds, Finished, Limits, RunningCommand

#: What Python is started with: no site packages, nothing from the environment but the hash seed, so that runs repeat.
PYTHON_OPTIONS = ("-s", "-S", "-B")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32")
_READABLE = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/nix/store")
#: Shown to agents read-only: the programs of this machine, and of /etc what network and users need. No home, no /var,
#: no /run, no /root.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs"),
    *("pki/ca-trust", "hosts", "resolv.conf", "nsswitch.conf", "protocols", "services", "localtime", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "mime.types"),
)
_OWN = ("--proc", "/proc", "--dev", "/dev")
_SHARED_MEMORY = 256 * 2**20
#: Beyond the limit of a program, for what watches it inside: bytes of memory, processes.
_WATCHER = (32 * 2**20, 8)
_PYTHON_HOME = os.path.realpath(sys.base_prefix)
_PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
#: Python that becomes a user without rights and then the command.
_BECOME = (
    "import os, sys\n"
    "user = int(sys.argv[1])\n"
    "os.setgroups([])\n"
    "os.setresgid(user, user, user)\n"
    "os.setresuid(user, user, user)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
#: Where `python` is found inside if the system has it under another name only.
TOOLS = "/workspace-bin"
_FOLDERS = (f"{_PYTHON_HOME}/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", TOOLS)
PATH = ":".join(dict.fromkeys(_FOLDERS))


@dataclass(slots=True)
class Places:
    """Folders that a command sees besides the system. `binds`: (folder here, place inside, may be written); `cwd`:
    where it starts; `user`: the one that these folders belong to (`Sandbox.user`).
    """

    binds: list[tuple[Path, str, bool]] = field(default_factory=list)
    cwd: str = "/"
    user: int = 0


class Sandbox(ABC):
    """One way to keep what runs apart from this machine. `contained`: it does; without, what runs has all the rights of
    this user.

    `same_python`: programs run under this very interpreter, so that compiled code can be sent. `count_by_user`: the
    number of processes is to be limited inside as well. `groups`: where control groups are made.
    """

    name: str
    contained = True
    same_python = True
    count_by_user = False
    groups: ControlGroups | None = None

    @property
    def counts_memory(self) -> bool:
        """The kernel limits what all processes hold together."""
        return self.groups is not None and self.groups.counts_memory

    @abstractmethod
    def program(self, boot: str, limits: Limits) -> RunningCommand:
        """The process of this machine that runs Python's `boot` in the sandbox."""

    @abstractmethod
    def command(
        self, argv: Sequence[str], environment: Mapping[str, str], places: Places, network: bool, bounds: Bounds
    ) -> RunningCommand:
        """The process of this machine that runs `argv` inside, with nothing in its environment but `environment`."""

    def user(self) -> int:
        """A new user id that what runs inside changes to, and that has to own what it writes; 0 = it does not
        change.
        """
        return 0

    def fault(self, finished: Finished, command: RunningCommand) -> str:
        """The fault of the sandbox itself; "" if the command did start."""
        return ""

    @abstractmethod
    def description(self) -> str:
        """A sentence for the run's notes: the limits of the kernel that stand, and those that do not."""

    def _grouped(
        self, argv: Sequence[str], environment: Mapping[str, str], caps: Caps, handles: Iterable[IO[bytes]] = ()
    ) -> RunningCommand:
        """The command as a member of a new control group, where groups are made.

        Raises `SandboxFailed` where one could be made before and cannot now: the description would be wrong.
        """
        try:
            group = self.groups.make(caps) if self.groups is not None else None
        except OSError as error:
            raise SandboxFailed(f"no control group could be made for the sandbox: {error}") from None
        entered = argv if group is None else group.entering(argv)
        return RunningCommand(entered, environment, handles=list(handles), group=group)

    def _group_limits(self) -> str:
        """The part of the description on memory and processes."""
        roots = self.groups.roots if self.groups is not None else {}
        words = {"memory": "memory", "pids": "processes"}
        limited = " and ".join(word for name, word in words.items() if name in roots)
        watched = " and ".join(word for name, word in words.items() if name not in roots)
        parts = [f"{limited} limited by cgroup v{self.groups.version}"] if self.groups is not None else []
        if watched:
            how = "limited by resource limits and by looking only (no control group may be made here)"
            parts.append(f"{watched} {how}")
        return "; ".join(parts)


@dataclass
class Bubblewrap(Sandbox):
    """bwrap: namespaces of its own for everything; no capability, no set-uid program works.

    `as_root`: no user namespace is made (root's processes would not be counted in it): what runs becomes a user of its
    own instead. `options`: further ones that not every version knows. `filtered`: system calls are refused; `groups`:
    where control groups are made.
    """

    path: str = "bwrap"
    as_root: bool = False
    options: tuple[str, ...] = ()
    filtered: bool = True
    groups: ControlGroups | None = field(default_factory=find_groups)
    name: str = "bubblewrap"
    count_by_user = True

    def program(self, boot: str, limits: Limits) -> RunningCommand:
        size = str(limits.memory + 2 * _WATCHER[0])  # what is over the limit is ended for that, whatever holds it
        own = [*_OWN, "--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp"]
        order = [
            *("--unshare-net", "--as-pid-1", *_libraries(_PYTHON), *own, "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", "/tmp", "--", _PYTHON, *PYTHON_OPTIONS, "-c", boot),
        ]
        more_memory, more_tasks = _WATCHER
        caps = Caps(limits.memory + more_memory, 2 * limits.processes + more_tasks)
        return self._command(self._rights(), order, ENVIRONMENT, caps, tracing=False)

    def _rights(self) -> list[str]:
        if self.as_root:  # to become somebody else, and nothing more
            return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        # bwrap would leave root what it takes from everybody else
        return ["--unshare-user", *(("--cap-drop", "ALL") if os.geteuid() == 0 else ())]

    def user(self) -> int:
        return 1_900_000_000 + secrets.randbelow(2**24) if self.as_root else 0

    def command(
        self, argv: Sequence[str], environment: Mapping[str, str], places: Places, network: bool, bounds: Bounds
    ) -> RunningCommand:
        own = [*_OWN, "--perms", "1777", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm"]
        own += ["--size", str(2**20), "--tmpfs", "/run"]
        status = _as_file()
        order = [
            *(() if network else ("--unshare-net",)),
            *("--hostname", "sandbox", "--json-status-fd", str(status.fileno())),
            *_system(),
            *own,
            *(part for bind in places.binds for part in _bound(*bind)),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", places.cwd, "--"),
            *((_PYTHON, "-I", "-S", "-c", _BECOME, str(places.user)) if places.user else ()),
            *argv,
        ]
        rights = self._rights() if places.user else ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        command = self._command(
            rights, order, environment, Caps(bounds.memory, bounds.tasks, one_share=True), tracing=True
        )
        command.status = status
        command.handles.append(status)
        return command

    def _command(
        self, rights: list[str], order: list[str], environment: Mapping[str, str], caps: Caps, *, tracing: bool
    ) -> RunningCommand:
        """`order` behind what stands around every sandbox."""
        apart = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        handles: list[IO[bytes]] = []
        if (code := self._filter(tracing)) is not None:
            handles.append(_as_file(code))
            apart += ["--seccomp", str(handles[0].fileno())]
        if "--unshare-user" in rights:
            apart += self.options
        whole = [self.path, *rights, *apart, "--die-with-parent", "--new-session", *order]
        return self._grouped(whole, environment, caps, handles)

    def _filter(self, tracing: bool) -> bytes | None:
        return seccomp.program(self.counts_memory, tracing) if self.filtered else None

    def fault(self, finished: Finished, command: RunningCommand) -> str:
        command.status.seek(0)
        begun = b'"exit-code"' in command.status.read()
        if begun or finished.timed_out or finished.killed or finished.exit is None or finished.exit < 0:
            return ""
        return " ".join(finished.stderr_tail.split())[-500:] or f"exit status {finished.exit}"

    def description(self) -> str:
        filtered = self._filter(True) is not None
        calls = (
            "system calls filtered by seccomp"
            if filtered
            else "system calls NOT filtered (no seccomp filter could be loaded here)"
        )
        nested = (
            "no nested user namespaces"
            if filtered or "--disable-userns" in self.options
            else "nested user namespaces possible"
        )
        who = "; as root without capabilities" if os.geteuid() == 0 and not self.as_root else ""
        return f"Sandbox: {self.name}; {calls}; {nested}{who}; {self._group_limits()}."


def _bound(host: Path, inside: str, write: bool) -> list[str]:
    """With the folders on the way, which bwrap would close to another user."""
    ways = [part for way in reversed(Path(inside).parents[:-1]) for part in ("--dir", str(way))]
    return [*ways, "--bind" if write else "--ro-bind", str(host), inside]


def _as_file(data: bytes = b"") -> IO[bytes]:
    """A file of no name with `data`, in memory where the system can, for a child; closed with the command."""
    file: IO[bytes]
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("context-bench"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def _libraries(python: str) -> list[str]:
    """The folders that this Python needs to start, read-only and at their own places."""
    places = dict.fromkeys(
        map(Path, [*_LIBRARIES, *_READABLE, python, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"])
    )
    bound = [path for path in places if path.exists() and not path.is_symlink()]
    # The folders on the way are made here: bwrap would close them to the program's own user.
    ways = dict.fromkeys(way for path in bound for way in reversed(path.parents[:-1]))
    return [
        *(part for way in ways for part in ("--dir", str(way))),
        *(part for path in places if path.is_symlink() for part in ("--symlink", str(path.readlink()), str(path))),
        *(part for path in bound for part in ("--ro-bind", str(path), str(path))),
    ]


def _system() -> list[str]:
    """Shows what every command may read, read-only and at its own place."""
    places = [*map(Path, _SYSTEM), *(Path("/etc", name) for name in _ETC)]
    if not _PYTHON_HOME.startswith("/usr"):
        places.append(Path(_PYTHON_HOME))
    order: list[str] = []
    for place in filter(Path.exists, places):
        if place.is_symlink() and place.parent == Path("/"):
            order += ["--symlink", str(place.readlink()), str(place)]
        else:
            order += _bound(place.resolve(), str(place), False)
    return order


@dataclass
class Container(Sandbox):
    """docker or podman with an image that is there already (nothing is pulled); what agents need must be in the image.

    `filtered`: our own list of refused system calls, which stands in for the program's own; without, that one stands.
    """

    path: str
    image: str
    name: str = "docker"
    filtered: bool = True
    same_python = False

    @property
    def counts_memory(self) -> bool:
        return True

    def program(self, boot: str, limits: Limits) -> RunningCommand:
        half = limits.memory // 2
        order = [
            *("--network", "none", "--user", "65534:65534", "--cpus", "1"),
            *("--tmpfs", f"/tmp:rw,nosuid,nodev,noexec,mode=1777,size={half}", "--workdir", "/tmp"),
            *(part for name, value in ENVIRONMENT.items() if name != "PATH" for part in ("--env", f"{name}={value}")),
            *("--entrypoint", "python3", self.image, *PYTHON_OPTIONS, "-c", boot),
        ]
        # the client finds its daemon by its environment; nothing of it gets inside
        return self._command(order, os.environ, limits.memory, limits.processes + 2, tracing=False)

    def command(
        self, argv: Sequence[str], environment: Mapping[str, str], places: Places, network: bool, bounds: Bounds
    ) -> RunningCommand:
        # values stay off the command line, where every user of the machine could read them; what steers the client
        # itself goes by value
        steering = {"PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "TMPDIR", "XDG_RUNTIME_DIR", "LANG"}
        named = [
            part
            for name in environment
            for part in ("--env", f"{name}={environment[name]}" if name in steering else name)
        ]
        order = [
            *("--init", "--network", "host" if network else "none", "--user", f"{os.getuid()}:{os.getgid()}"),
            *("--shm-size", str(_SHARED_MEMORY)),
            *(
                part
                for host, inside, write in places.binds
                for part in ("--volume", f"{host}:{inside}:{'rw' if write else 'ro'}")
            ),
            *("--workdir", places.cwd, *named, "--entrypoint", argv[0], self.image, *argv[1:]),
        ]
        client = {**os.environ, **{name: value for name, value in environment.items() if name not in steering}}
        return self._command(order, client, bounds.memory, bounds.tasks, tracing=True)

    def _command(
        self, order: list[str], environment: Mapping[str, str], memory: int, tasks: int, *, tracing: bool
    ) -> RunningCommand:
        """`order` behind what stands around every container."""
        label = f"context-bench-{secrets.token_hex(8)}"
        handles: list[IO[bytes]] = []
        whole = [
            *(self.path, "run", "--rm", "--interactive", "--pull", "never", "--name", label),
            *("--read-only", "--log-driver", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--memory", str(memory), "--memory-swap", str(memory), "--pids-limit", str(tasks)),
        ]
        if self.filtered:
            handles.append(_as_file(seccomp.profile(True, tracing).encode()))
            whole += ["--security-opt", f"seccomp=/dev/fd/{handles[0].fileno()}"]
        return RunningCommand([*whole, *order], environment, handles=handles, end=lambda: self._kill(label))

    def _kill(self, label: str) -> None:
        subprocess.run([self.path, "kill", label], capture_output=True, timeout=60, check=False)

    def fault(self, finished: Finished, command: RunningCommand) -> str:
        if finished.exit == 125:  # the client's own failure
            return " ".join(finished.stderr_tail.split())[-500:] or "exit status 125"
        return ""

    def description(self) -> str:
        calls = (
            "filtered by seccomp with our own list" if self.filtered else f"filtered as {self.name} does it of itself"
        )
        return f"Sandbox: {self.name}; system calls {calls}; memory and processes limited by the container."


@dataclass
class NoSandbox(Sandbox):
    """No sandbox, for throw-away machines: a command can do whatever this user can, and reach any network."""

    groups: ControlGroups | None = field(default_factory=find_groups)
    name: str = "none"
    contained = False

    def program(self, boot: str, limits: Limits) -> RunningCommand:
        raise SandboxFailed("a program written by a model is never run without a sandbox")

    def command(
        self, argv: Sequence[str], environment: Mapping[str, str], places: Places, network: bool, bounds: Bounds
    ) -> RunningCommand:
        reaper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py"))]
        enter = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", places.cwd]
        caps = Caps(bounds.memory, bounds.tasks, one_share=True)
        return self._grouped([*reaper, *enter, *argv], dict(environment), caps)

    def description(self) -> str:
        return f"Sandbox: NONE; {self._group_limits()}."
