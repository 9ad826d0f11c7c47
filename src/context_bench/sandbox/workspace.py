"""A workspace: a fresh copy of a repository, a home and a /tmp of its own, and commands that see little else.

Files that steer how tests run are remembered as they were before the agent came.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, CopyUnusable, SandboxFailed, SetupFailed
from context_bench.sandbox.backends import PATH, TOOLS, Bubblewrap, Places, Sandbox
from context_bench.sandbox.launch import find_agent_sandbox, run_in
from context_bench.sandbox.supervision import Bounds, Finished, StopRequest, size_of
from context_bench.sandbox.workspace_files import (
    LARGE,
    PLAIN,
    QUIET,
    Left,
    bytes_of,
    copy_of,
    fresh_folder,
    give,
    left_by_agent,
    open_all,
    parts_of,
    put,
    remove_tree,
    take_start,
)

#: Read by Python or by test runners without being asked for.
_NAMES = {
    "conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    ".coveragerc",
    "nose2.cfg",
}
#: `__init__.py` in folders with these names is guarded too: it is run before the tests in it.
_TEST_FOLDERS = {"test", "tests", "testing"}
_RUNNERS = {"pytest", "_pytest", "pluggy", "nose", "nose2", "coverage", "tox"}
_LARGEST = 2**20


class Guarded:
    """Taken when the task begins; `undo` brings that state of the guarded files back.

    Guarded are `conftest.py`, `sitecustomize.py` and their like, `*.pth` files, `__init__.py` of folders called tests,
    and modules that would stand in front of the standard library or of a test runner (`unittest.py`, `pytest/`) in the
    repository's root or in a folder that hidden tests go to. Compiled modules (`__pycache__`) are all removed: one
    could be loaded in the place of a test.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before = {name: _content(root / name) for name in _guarded(root)}
        self._there = {str(path.relative_to(root)) for folder, _, _ in _walk(root) for path in _modules_in(folder)}

    def undo(self, tests: list[str]) -> tuple[str, ...]:
        """Put back and take away; the paths where something had to be done, sorted. `tests`: where the hidden tests
        go.
        """
        undone = set()
        for folder, folders, _ in os.walk(self._root):
            if "__pycache__" in folders:
                shutil.rmtree(Path(folder, "__pycache__"), ignore_errors=True)
                folders.remove("__pycache__")
        now = set(_guarded(self._root))
        for name in now - self._before.keys():
            (self._root / name).unlink()
            undone.add(name)
        for name, data in self._before.items():
            if name not in now or _content(self._root / name) != data:
                if data is not None:  # a link or a very large file stays as the agent left it
                    put(self._root, name, data)
                undone.add(name)
        folders_of_tests = {self._root, *(self._root / parent for test in tests for parent in Path(test).parents)}
        for place in folders_of_tests:
            for path in list(_modules_in(place)):
                name = str(path.relative_to(self._root))
                if name not in self._there:
                    path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path, ignore_errors=True)
                    undone.add(name)
        return tuple(sorted(undone))


def _guarded(root: Path) -> Iterator[str]:
    """Guarded files and links, relative to the root, without what is in .git."""
    for folder, folders, files in _walk(root):
        for name in [*files, *(name for name in folders if (folder / name).is_symlink())]:
            of_tests = name == "__init__.py" and folder.name in _TEST_FOLDERS
            if of_tests or name in _NAMES or name.endswith(".pth"):
                yield str((folder / name).relative_to(root))


def _walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As `os.walk`, without what is in .git."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        yield Path(folder), folders, files


def _content(path: Path) -> bytes | None:
    """The bytes of a file of usual size; None for anything else."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    return path.read_bytes()


def _modules_in(folder: Path) -> Iterator[Path]:
    """Files that a Python started in this folder takes for the standard library's or a test runner's modules."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        stem = path.name.partition(".")[0]
        is_module = path.suffix in (".py", ".pyc", ".so") or path.is_symlink() or path.is_dir()
        if is_module and (stem in sys.stdlib_module_names or stem in _RUNNERS):
            yield path


_REPO, _HOME = "/workspace/repo", "/home/agent"
_DIFF = "--binary --no-ext-diff --no-textconv --no-color"
_PATCH_SECONDS = 300.0
_MOST_NEW = 200_000  # files and folders that an agent may add; git needs minutes for more
_SETUP_SECONDS = 1800.0


@contextmanager
def workspace(
    repo: Mapping[str, Any],
    *,
    house: Sandbox | None = None,
    unsafe: bool = False,
    bounds: Bounds | None = None,
    readable: Iterable[str | Path] = (),
    setup: str = "",
) -> Iterator[Workspace]:
    """A copy of `repo` for one trial; nothing of it is left afterwards, and the original is never written.

    `repo`: `{"kind": "folder", "path"}`, `{"kind": "files", "files": {path: text or {"base64"}}}` or
    `{"kind": "git", "path", "commit", "depth"?}`; `at`: where commands see the copy (default
    `/workspace/repo`). A folder becomes a git repository of one commit; of a git repository come the commit and its
    past, with no other branch, tag, reflog or object. `house`: the sandbox (default: `find_agent_sandbox`, with
    `unsafe` passed on). `readable`: further paths that commands may read, at their own places (an agent's
    installation). `setup`: shell text that is run in the copy first; what it does is part of the start. Raises
    `BadInput` for a repository that is not there, `MissingProgram` without a sandbox, `SetupFailed`.
    """
    sandbox = house or find_agent_sandbox(unsafe=unsafe)
    extra = [_readable(path) for path in readable]
    if isinstance(sandbox, Bubblewrap) and sandbox.as_root and not all(map(_open_to_others, extra)):
        sandbox = replace(sandbox, as_root=False)
    with fresh_folder() as root:
        copy = Workspace(root, sandbox, bounds or Bounds(), extra, str(repo.get("at") or _REPO))
        copy_of(repo, copy.path)
        if setup:
            done = copy.run(setup, timeout=_SETUP_SECONDS)
            if not done.ok:
                tail = " ".join((done.stderr_tail or done.stdout_tail).split())[-300:]
                raise SetupFailed(
                    f"the task's set-up ended with {done.exit if not done.timed_out else 'its time over'}: {tail}"
                )
        copy.begin()
        yield copy


def _readable(path: str | Path) -> Path:
    there = Path(path).absolute()
    if not there.exists():
        raise BadInput(f"{path} was to be readable in the sandbox; there is no such file or folder")
    return there


def _open_to_others(path: Path) -> bool:
    """Another user may read it; of a folder, only itself is looked at."""
    mode = path.stat().st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


class Workspace:
    """One trial's copy. `path`: the folder on this machine; `inside`: the same as commands see it; `home`,
    `home_inside` likewise.

    `sandbox`: "bubblewrap", "docker", "podman" or "none"; `contained`: False without one (say so then); `description`:
    a sentence on the limits that stand.
    """

    def __init__(self, root: Path, sandbox: Sandbox, bounds: Bounds, readable: Sequence[Path], at: str) -> None:
        self._root, self._sandbox, self._bounds, self._readable = root, sandbox, bounds, list(readable)
        self.sandbox, self.contained, self.description = sandbox.name, sandbox.contained, sandbox.description()
        self._user = sandbox.user()
        self.path, self.home, self._tmp, self._start = root / "repo", root / "home", root / "tmp", root / "start.git"
        self.inside = at if self.contained else str(self.path)
        self.home_inside = _HOME if self.contained else str(self.home)
        for folder in (self.home, self._tmp, root / "etc", root / "bin"):
            folder.mkdir()
        (root / "bin" / "python").symlink_to(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
        user = self._user or 1000
        (root / "etc" / "passwd").write_text(f"root:x:0:0::/:/bin/sh\nagent:x:{user}:{user}::{_HOME}:/bin/sh\n")
        (root / "etc" / "group").write_text(f"root:x:0:\nagent:x:{user}:\n")
        self._written = {self.path, self.home, self._tmp, root / "etc", root / "bin"}
        self._stop = StopRequest()
        self._guarded: Guarded | None = None
        self._left = Left(0, {})

    def begin(self) -> None:
        """From here on changes are the agent's."""
        self._left = open_all(self.path)
        take_start(self.path, self._start)
        self._written |= {self.path, self._start}
        self._guarded = Guarded(self.path)

    def run(
        self,
        argv: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        network: bool = False,
        stdin: bytes = b"",
        keep: int = 2**16,
        binds: Iterable[tuple[Path, str, bool]] = (),
    ) -> Finished:
        """Run a command (a list, or text for `sh -c`) in the copy; nothing it started is left when this returns.

        `env`: all of its environment besides PATH, HOME, TMPDIR, USER and LANG (which may be replaced): nothing of this
        process's. `network`: this machine's network with all that listens on its loopback address; else none. `keep`:
        bytes kept of each output. `binds`: (folder here, place inside, may be written) for this command only; without
        a sandbox they are not put anywhere. Raises `SandboxFailed` if it does not come up; whatever the command does
        is its own end.
        """
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
        if not words:
            raise BadInput("there is no command to run; expected at least the name of a program")
        if self._stop.asked.is_set():
            return Finished(None, "", "", 0.0, killed="stopped")
        mine: list[tuple[Path, str, bool]] = [
            (self._tmp, "/tmp", True),
            (self._root / "bin", TOOLS, False),
            (self._root / "etc" / "passwd", "/etc/passwd", False),
            (self._root / "etc" / "group", "/etc/group", False),
            *((path, str(path), False) for path in self._readable),
            (self.home, _HOME, True),
            (self.path, self.inside, True),
            *binds,
        ]
        while self._written:  # since the last command; it belongs to whoever runs this one
            give(self._written.pop(), self._user)
        return run_in(
            self._sandbox,
            words,
            {**self._environment(), **(env or {})},
            Places(mine, self.inside, self._user),
            network=network,
            bounds=self._bounds,
            timeout=timeout,
            stdin=stdin,
            keep=keep,
            disk=self._root,
            stop=self._stop,
        )

    def _environment(self) -> dict[str, str]:
        tmp = "/tmp" if self.contained else str(self._tmp)
        path = PATH if self.contained else PATH.replace(TOOLS, str(self._root / "bin"))
        return {
            "PATH": path,
            "HOME": self.home_inside,
            "TMPDIR": tmp,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def patch(self) -> str:
        """The changes since the start, as `git apply` takes them: new files (but those that `.gitignore` names) and
        binary ones too.

        Compared with a git folder that the agent has never seen, whatever became of the copy's own; git runs inside the
        sandbox, since the files may name programs to it. Raises `CopyUnusable` where the agent left what no patch can
        be made of (folders without end, files beyond number, more than 64 MiB of changes), `SandboxFailed` where this
        machine is at fault.
        """
        out = self.folder("out")
        try:
            with left_by_agent("what the agent changed cannot be read"):
                left = open_all(self.path, most=self._left.entries + _MOST_NEW)
                with self._without_inner_repositories():
                    self._require_small(left, out)
                    script = (
                        f"{self._git} add -A && {self._git} diff --cached {_DIFF} "
                        f"--output={self._shown(out)}/patch HEAD"
                    )
                    done = self._git_run(script, out, _PATCH_SECONDS)
            data = bytes_of(out / "patch", LARGE) if done.ok else None
        finally:
            remove_tree(out)
        if data is None:
            raise self._no_patch(done, "more than 64 MiB were changed")
        return data.decode("utf-8", "replace")

    @property
    def _git(self) -> str:
        start = "/start.git" if self.contained else str(self._start)
        return f"git {' '.join(PLAIN)} --git-dir={start} --work-tree=."

    def _shown(self, out: Path) -> str:
        return "/out" if self.contained else str(out)

    def _git_run(self, script: str, out: Path, seconds: float) -> Finished:
        return self.run(
            script, env=QUIET, timeout=seconds, binds=[(self._start, "/start.git", True), (out, "/out", True)]
        )

    def _require_small(self, left: Left, out: Path) -> None:
        """That no file that would be part of the patch is too large for it; git would read all of it first, were it a
        hole of 1 TB.
        """
        grown = [name for name, about in left.large.items() if self._left.large.get(name) != about]
        if not grown:
            return
        done = self._git_run(
            f"{self._git} ls-files -z --modified --others --exclude-standard > {self._shown(out)}/names", out, 60.0
        )
        names = bytes_of(out / "names", LARGE) if done.ok else None
        if names is None:
            raise self._no_patch(done, "its files cannot be listed")
        changed = set(names.split(b"\0"))
        if too_large := next((name for name in sorted(grown) if os.fsencode(name) in changed), None):
            raise CopyUnusable(
                f"the file {too_large[-200:]!a} has {left.large[too_large][0]:,} bytes; a patch holds at most {LARGE:,}"
            )

    def _no_patch(self, done: Finished, otherwise: str) -> SandboxFailed:
        """The error for a patch that git could not make. Git did run, so what is wrong is what the agent left; unless
        there is no room.
        """
        why = (
            done.killed
            or ("its time was over" if done.timed_out else " ".join(done.stderr_tail.split())[-300:])
            or otherwise
        )
        message = f"the patch of what the agent changed could not be made: {why}"
        if done.killed == "stopped" or done.exit == 127:
            return SandboxFailed(message)
        if (
            shutil.disk_usage(self._root).free < LARGE
            and size_of(self._root, self._bounds.disk) < self._bounds.disk // 2
        ):
            return SandboxFailed(message)  # others filled it
        return CopyUnusable(message)

    @contextmanager
    def _without_inner_repositories(self) -> Iterator[None]:
        """Repositories that the agent made within the copy, made plain folders for a moment: git would not look into
        them.
        """
        aside = self.folder("aside")
        moved: list[tuple[Path, Path]] = []
        for folder, folders, files in os.walk(self.path):
            if ".git" in folders or ".git" in files:
                folders[:] = [name for name in folders if name != ".git"]
                if Path(folder) != self.path:
                    moved.append((Path(folder, ".git"), aside / str(len(moved))))
        for place, kept in moved:
            place.rename(kept)
        try:
            yield
        finally:
            for place, kept in moved:
                kept.rename(place)

    def stop(self) -> None:
        """From another thread: end the command that runs (its `killed` is "stopped") and start no further one."""
        self._stop.asked.set()

    def read(self, name: str, *, home: bool = False, limit: int = 64 * 2**20) -> bytes | None:
        """A regular file of the copy (or of HOME), at most `limit` bytes; None where there is none. No link is
        followed, so that nothing outside is ever read.
        """
        base = self.home if home else self.path
        place = base.joinpath(*parts_of(name))
        for part in [place, *place.parents]:
            if part == base:
                break
            if part.is_symlink():
                return None
        return bytes_of(place, limit)

    def write(self, name: str, data: bytes, *, home: bool = False, executable: bool = False) -> None:
        """Put a file into the copy (or into HOME). What is in the way (a link, a folder, a file where a folder has to
        be) is removed; no link is followed. Only while no command runs.
        """
        base = self.home if home else self.path
        put(base, name, data, executable=executable)
        self._written.add(base)

    def remove(self, name: str) -> None:
        """Take a file or folder out of the copy; no link is followed."""
        place = self.path.joinpath(*parts_of(name))
        if any(part.is_symlink() for part in place.parents if part.is_relative_to(self.path)):
            return
        if place.is_dir() and not place.is_symlink():
            remove_tree(place)
        else:
            place.unlink(missing_ok=True)

    def folder(self, name: str) -> Path:
        """A folder beside the copy, to be shown to a command with `binds`; made if it is not there."""
        place = self._root / name
        place.mkdir(exist_ok=True)
        self._written.add(place)
        return place

    def undo_power_over_tests(self, tests: Iterable[str]) -> tuple[str, ...]:
        """Put back what steers how tests run; the names of what had been changed. See `guarded`."""
        self._written.add(self.path)
        return self._guarded.undo(list(tests)) if self._guarded is not None else ()

    def leave_agent(self) -> None:
        """A new, empty HOME and /tmp: nothing that the agent put there steers what is run afterwards. Closed files are
        opened again.
        """
        open_all(self.path, most=self._left.entries + _MOST_NEW)
        for folder in (self.home, self._tmp):
            remove_tree(folder)
            folder.mkdir()
            self._written.add(folder)
