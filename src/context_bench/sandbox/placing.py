"""Files where a hostile program may have put links: written, read and removed without following any."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from context_bench.core.errors import BadInput

try:
    import fcntl
except ImportError:  # not on Windows, where there are no walls either
    fcntl = None  # type: ignore[assignment]

_LONGEST = 2048  # bytes of a path; with the folder that it stands in, it has to stay below what systems take
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


def open_all(root: Path) -> None:
    """Give this user back the rights on files and folders below that an agent took away from itself."""
    for folder, folders, files in os.walk(root):
        for name, wanted in [*((name, 0o700) for name in folders), *((name, 0o400) for name in files)]:
            place = Path(folder, name)
            mode = place.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                with contextlib.suppress(OSError):
                    place.chmod(stat.S_IMODE(mode) | wanted)


def give(root: Path, user: int) -> None:
    """Make a tree belong to `user`, if that is not 0; links are not followed. Only root can, and only while nothing runs in it."""
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
    """Remove a tree, folders without rights included; links are removed, not followed."""
    for below, folders, _ in os.walk(folder):
        for name in folders:
            there = Path(below, name)
            if not there.is_symlink():
                _open_up(there)
    shutil.rmtree(folder, ignore_errors=True)


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
        if root.is_symlink():
            continue
        try:
            handle = os.open(root / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # not there (yet), or not ours
            continue
        with os.fdopen(handle, "rb") as file, contextlib.suppress(OSError):
            if os.fstat(handle).st_uid == os.getuid():
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
