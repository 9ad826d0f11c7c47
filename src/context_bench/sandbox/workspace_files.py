"""Files of a workspace, where a hostile program may have put links: written, read and removed without following any.

A repository is copied with a git history that ends where the task begins.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import itertools
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from context_bench.core.errors import BadInput, CopyUnusable, MissingProgram

try:
    import fcntl
except ImportError:  # not on Windows, where there is no sandbox either
    fcntl = None  # type: ignore[assignment]
_LONGEST = 2048  # bytes of a path; with the folder that it stands in, it has to stay below what systems take
LARGE = 64 * 2**20  # bytes of a file that no patch can hold
_AT_ONCE = 10_000  # names of a folder that are held at a time
_ABANDONED = 600.0  # seconds after which a folder without a lock is nobody's
#: Errors of this machine, whoever's files it works on.
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS)
_MADE = re.compile(r"context-bench-copy-[a-z0-9_]{8}")
_PREFIX, _LOCK = "context-bench-copy-", "in-use"


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a relative path. Raises `BadInput` for one that is absolute or leads up."""
    parts = PurePosixPath(name).parts
    try:
        long = len(os.fsencode(name)) > _LONGEST or any(len(os.fsencode(part)) > 255 for part in parts)
    except UnicodeEncodeError:
        long = True
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or long:
        raise BadInput(f"{name[:200]!r} is no path within the repository; expected a relative one without '..'")
    return parts


def put(base: Path, name: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file below `base` without following any link that is there."""
    parts = parts_of(name)
    place = base
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
        _open_up(place)
    place = place / parts[-1]
    if place.is_dir() and not place.is_symlink():
        remove_tree(place)
    else:
        place.unlink(missing_ok=True)
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if executable else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


@dataclass(frozen=True, slots=True)
class Left:
    """Content of a tree: the number of files and folders, and by path the size and change time (ns) of large files."""

    entries: int
    large: dict[str, tuple[int, int]]


def open_all(root: Path, *, most: int | None = None) -> Left:
    """Give this user back the rights on files and folders below that an agent took away from itself, and say what is
    there.

    Raises `CopyUnusable` for folders so deep that their names are longer than programs take, and for more than `most`
    files and folders.
    """
    _open_up(root)
    entries, large, waiting = 0, {}, [os.fspath(root)]
    base = len(waiting[0]) + 1
    while waiting:
        with os.scandir(waiting.pop()) as listed:
            for entry in listed:
                entries += 1
                if most is not None and entries > most:
                    raise CopyUnusable(f"there are more than {most:,} files and folders in it")
                if len(os.fsencode(entry.path)) - base > _LONGEST:
                    depth = entry.path.count("/", base) + 1
                    raise CopyUnusable(
                        f"its folders are nested more than {depth} deep, which makes paths of over {_LONGEST:,} bytes"
                    )
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode):
                    waiting.append(entry.path)
                elif stat.S_ISREG(about.st_mode) and about.st_size > LARGE:
                    large[entry.path[base:]] = (about.st_size, about.st_mtime_ns)
                _give_back(entry.path, about.st_mode)
    return Left(entries, large)


def _give_back(place: str, mode: int) -> None:
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o400
    if not stat.S_ISLNK(mode) and mode & wanted != wanted:
        with contextlib.suppress(OSError):
            os.chmod(place, stat.S_IMODE(mode) | wanted)  # noqa: PTH101 (for each of many files)


@contextmanager
def left_by_agent(doing: str) -> Iterator[None]:
    """Raise `CopyUnusable` for what goes wrong with files that an agent left, unless this machine has no room or is
    broken.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _OURS:
            raise
        raise CopyUnusable(f"{doing}: {error.strerror or error}: {str(error.filename)[-200:]!a}") from error
    except (RecursionError, UnicodeError) as error:
        raise CopyUnusable(f"{doing}: {type(error).__name__}: {str(error)[:200]}") from error


def give(root: Path, user: int) -> None:
    """Make a tree belong to `user`, if that is not 0; links are not followed. Only root can, and only while nothing
    runs in it.
    """
    if user and root.exists():
        os.chown(root, user, user, follow_symlinks=False)
        for folder, folders, files in os.walk(root):
            for name in [*folders, *files]:
                place = os.path.join(folder, name)  # noqa: PTH118 (as many as a repository has)
                with contextlib.suppress(OSError):
                    if os.lstat(place).st_uid != user:
                        os.chown(place, user, user, follow_symlinks=False)


def _open_up(folder: Path) -> None:
    """A folder that the agent has closed to itself belongs to this user still."""
    with contextlib.suppress(OSError):
        folder.chmod(0o755)


def bytes_of(place: Path, limit: int) -> bytes | None:
    """The bytes of a regular file that is not too large; a link, a pipe or a device is None."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= limit else None


def remove_tree(folder: Path) -> None:
    """Remove a tree however deep, folders without rights included; links are removed, not followed. What cannot be
    removed stays.
    """
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            _open_up(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _empty(handle)
        finally:
            os.close(handle)
        folder.rmdir()


def _empty(top: int) -> None:
    """Remove all that is in a folder. What folders in it hold is moved up into it, so that no path ever gets long."""
    prefix, moved, stuck = f"{secrets.token_hex(8)}-", 0, set[str]()
    while names := _some_names(top, stuck):
        for name in names:
            if _removed(name, top):
                continue
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            except OSError:
                stuck.add(name)
                continue
            held: set[str] = set()
            while below := _some_names(inner, held):
                for inner_name in below:
                    if not _removed(inner_name, inner):
                        moved += 1
                        try:
                            os.rename(inner_name, f"{prefix}{moved}", src_dir_fd=inner, dst_dir_fd=top)
                        except OSError:
                            held.add(inner_name)
            os.close(inner)
            if not _removed(name, top):
                stuck.add(name)


def _some_names(folder: int, stuck: set[str]) -> list[str]:
    """Some of what is in a folder, which may hold millions, without what could not be removed."""
    with os.scandir(folder) as entries:
        return list(itertools.islice((entry.name for entry in entries if entry.name not in stuck), _AT_ONCE))


def _removed(name: str, folder: int) -> bool:
    """Remove a file, link or empty folder, and say whether it is gone. A folder that stays is opened to its owner."""
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            os.unlink(name, dir_fd=folder)
            return True
    except OSError:
        return False
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=folder)
        return False
    return True


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """An empty temporary folder, removed at the end; what processes that were killed left behind is removed first.

    A folder is in use as long as somebody holds the lock in it, and the kernel lets go of the locks of the dead.
    """
    _clear_dead(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with _locked(root):
        try:
            yield root
        finally:
            remove_tree(root)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / f"{_LOCK}.new").open("wb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        (root / f"{_LOCK}.new").rename(root / _LOCK)  # only now may others look whether it is held
        yield


def _clear_dead(folder: Path) -> None:
    """Remove folders of ours that nobody holds any more."""
    if fcntl is None:
        return
    for root in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = root.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            try:
                handle = os.open(root / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:  # it is being made or removed; or who did so was killed
                if _MADE.fullmatch(root.name) and time.time() - about.st_mtime > _ABANDONED:
                    remove_tree(root)
                continue
            with os.fdopen(handle, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(root)


def decoded(name: str, data: object) -> bytes:
    """The bytes of a file that came as base64. Raises `BadInput`."""
    if isinstance(data, bytes):
        return data
    try:
        return base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(f"the file {name} is not base64: {str(data)[:40]!r}") from None


#: git with nobody's configuration; every date and name is the same, so that equal copies have equal commits.
QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "context-bench",
    "GIT_AUTHOR_EMAIL": "context-bench@localhost",
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "context-bench",
    "GIT_COMMITTER_EMAIL": "context-bench@localhost",
    "GIT_COMMITTER_DATE": "2020-01-01T00:00:00+0000",
    "LC_ALL": "C.UTF-8",
}
PLAIN = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.autocrlf=false", "-c", "gc.auto=0"),
    *(
        "-c",
        "safe.directory=*",
        "-c",
        "core.logAllRefUpdates=false",
        "-c",
        "advice.detachedHead=false",
        "-c",
        "protocol.file.allow=always",
    ),
)
#: What running a program leaves and nobody counts as a change.
_LEFT_BY_RUNNING = "__pycache__/\n*.py[co]\n.pytest_cache/\n"


def git(argv: Sequence[str], *, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    """The output of git. Raises `BadInput` with its own words where it fails, `MissingProgram` where there is none."""
    program = shutil.which("git")
    if program is None:
        raise MissingProgram("Copies of repositories need git (apt-get install git).")
    environment = {**QUIET, "PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **(env or {})}
    done = subprocess.run(
        [program, *PLAIN, *argv], cwd=cwd, input=stdin, env=environment, capture_output=True, check=False
    )
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[-500:]
        raise BadInput(f"git {argv[0]} in {cwd} failed (status {done.returncode}): {words}")
    return done.stdout


def copy_of(repo: Mapping[str, Any], place: Path) -> None:
    """Make `place` (not there yet) the copy. Raises `BadInput` where the source is not what `repo` says."""
    kind, source = repo.get("kind"), Path(str(repo.get("path", "")))
    if kind == "files":
        _write_files(repo.get("files") or {}, place)
    elif kind == "folder":
        _copy_folder(source, place)
    elif kind == "git":
        _copy_commit(source, str(repo.get("commit", "")), place, repo.get("depth"))
    else:
        raise BadInput(f"the repository of a task is of kind {kind!r}; expected 'files', 'folder' or 'git'")
    git(["config", "user.name", "agent"], cwd=place)
    git(["config", "user.email", "agent@localhost"], cwd=place)


def _write_files(files: Mapping[str, Any], place: Path) -> None:
    """`files`: path → text, or {"base64": …}."""
    place.mkdir()
    for name, content in files.items():
        data = decoded(name, content["base64"]) if isinstance(content, Mapping) else str(content).encode()
        put(place, name, data, executable=data.startswith(b"#!"))
    _first_commit(place)


def _first_commit(place: Path) -> None:
    git(["init", "-q", "-b", "main"], cwd=place)
    git(["add", "-A", "-f"], cwd=place)
    git(["commit", "-q", "--allow-empty", "-m", "Start"], cwd=place)


def _copy_folder(source: Path, place: Path) -> None:
    if not source.is_dir():
        raise BadInput(f"{source} is no folder; expected the files that the task begins with")
    try:
        shutil.copytree(source, place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    except (OSError, shutil.Error) as error:
        raise BadInput(f"{source} cannot be copied: {error}") from None
    _first_commit(place)


def _copy_commit(source: Path, commit: str, place: Path, depth: object) -> None:
    """The commit and what came before it, by a fetch of exactly that: no other branch, tag, reflog or object comes
    along.
    """
    if not source.is_dir():
        raise BadInput(f"{source} is no folder; expected a git repository, bare or with its files")
    if not commit or commit.startswith("-"):
        raise BadInput(f"the commit of {source} is {commit!r}; expected the name of one")
    exact = (
        git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"], cwd=source)
        .decode()
        .strip()
    )
    place.mkdir()
    git(["init", "-q", "-b", "main"], cwd=place)
    shallow = ["--depth", str(int(depth))] if isinstance(depth, int) and depth > 0 else []
    serve = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
    git(["fetch", "-q", "--no-tags", *shallow, "--upload-pack", serve, source.resolve().as_uri(), exact], cwd=place)
    git(["reset", "-q", "--hard", exact], cwd=place)
    for name in ("FETCH_HEAD", "ORIG_HEAD"):
        (place / ".git" / name).unlink(missing_ok=True)


def take_start(copy: Path, start: Path) -> None:
    """Keep in `start`, a git folder that no agent sees, how the copy is now."""
    git(["init", "-q", "--bare", "-b", "main", str(start)], cwd=copy)
    (start / "info").mkdir(exist_ok=True)
    (start / "info" / "exclude").write_text(_LEFT_BY_RUNNING)
    there = [f"--git-dir={start}", f"--work-tree={copy}"]
    git([*there, "add", "-A", "-f"], cwd=copy)
    git([*there, "commit", "-q", "--allow-empty", "-m", "Start"], cwd=copy)
