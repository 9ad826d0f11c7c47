"""The files of a repository at one commit, without a checkout and without the network.

```python
with open_repo("clone.git@4f2a91c") as repo:       # bare, partial or ordinary clone; a folder; a zip or tar; a JSON snapshot
    repo.blob("src/a.py")                          # its bytes, or None
```

Paths are those of the repository, with `/`. A path with `..`, a symbolic link, a special file and what lies outside the
root are not there.
"""  # noqa: E501

from __future__ import annotations

import base64
import binascii
import bz2
import contextlib
import gzip
import io
import lzma
import os
import stat
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from context_bench.core.errors import BadInput, MissingProgram, archive_faults
from context_bench.core.keys import load_json
from context_bench.core.machine import file_bytes, opened

#: A larger file is no source code, and is not read.
BLOB_LIMIT = 64 * 1024 * 1024
#: A tar that unpacks to more is no repository; what stands in it is looked for by unpacking all of it.
_LARGEST_TAR = 4 * 2**30
_SKIPPED_FOLDERS = {".git", ".hg", ".svn"}


class FilesByPath(Protocol):
    """The files of a repository as of one commit, or as an agent has left them so far. Paths are relative, with `/`.

    One that lies in a folder of this machine may say where, as `folder`.
    """

    def paths(self) -> Collection[str]: ...

    def blob(self, path: str) -> bytes | None:
        """The bytes of a file; `None` if there is no such file, or it is larger than `BLOB_LIMIT`."""


class Repo(FilesByPath, Protocol):
    """A repository that is open: to be closed by who opened it."""

    def close(self) -> None:
        """Let go of files and processes."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Snapshot(Repo):
    """Files given as they are: `{path: bytes}`."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    @classmethod
    def from_json(cls, value: Any) -> Snapshot:
        """`{path: text}`, where a value may also be `{"text": …}` or `{"base64": …}`; raises `BadInput` for anything
        else.
        """
        if not isinstance(value, Mapping):
            raise BadInput('a snapshot of a repository has to be a JSON object {path: text or {"base64": …}}')
        return cls({str(path): _bytes(path, content) for path, content in value.items()})

    def paths(self) -> Collection[str]:
        return self._files.keys()

    def blob(self, path: str) -> bytes | None:
        return self._files.get(path)


class Folder(Repo):
    """A checkout, or any folder. Links are not followed."""

    def __init__(self, root: Path) -> None:
        self.folder = root
        self._paths: dict[str, None] | None = None

    def paths(self) -> Collection[str]:
        if self._paths is None:
            self._paths = dict.fromkeys(sorted(self._walk()))
        return self._paths.keys()

    def blob(self, path: str) -> bytes | None:
        if path not in self.paths():
            return None
        file = self.folder / path
        try:
            return file.read_bytes() if file.stat().st_size <= BLOB_LIMIT else None
        except OSError:
            return None

    def _walk(self) -> list[str]:
        found: list[str] = []
        for folder, folders, files in os.walk(self.folder):
            folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
            inner = Path(folder).relative_to(self.folder)
            for name in files:
                try:
                    regular = stat.S_ISREG((Path(folder) / name).lstat().st_mode)
                except OSError:
                    continue
                if regular:
                    found.append((inner / name).as_posix())
        return found


class Archive(Repo):
    """A zip or tar; the one folder that everything lies in, as in downloads of a commit, is taken off."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        self._stream: IO[bytes] | None = None
        names: dict[str, Any] = {}
        try:
            if zipfile.is_zipfile(path):
                self._zip = zipfile.ZipFile(path)
                names = {
                    info.filename: info
                    for info in self._zip.infolist()
                    if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)
                }
            else:
                self._stream = _unpacked(path)
                self._tar = tarfile.TarFile(fileobj=self._stream)
                names = {member.name: member for member in self._tar.getmembers() if member.isfile()}
        except archive_faults() as error:
            self.close()
            raise BadInput(f"{path} cannot be read as an archive: {error}") from None
        plain = {name.removeprefix("./"): member for name, member in names.items()}
        safe = {
            name: member for name, member in plain.items() if not name.startswith("/") and ".." not in name.split("/")
        }
        tops = {name.split("/", 1)[0] if "/" in name else "" for name in safe}
        cut = len(next(iter(tops))) + 1 if len(tops) == 1 and "" not in tops else 0
        self._members = {name[cut:]: member for name, member in safe.items()}

    def paths(self) -> Collection[str]:
        return self._members.keys()

    def blob(self, path: str) -> bytes | None:
        member = self._members.get(path)
        if member is None:
            return None
        with self._lock:
            try:
                if self._zip is not None:
                    return self._zip.read(member) if member.file_size <= BLOB_LIMIT else None
                file = self._tar.extractfile(member) if self._tar is not None and member.size <= BLOB_LIMIT else None
                return file.read() if file else None
            except archive_faults():
                return None

    def close(self) -> None:
        """Close the archive."""
        for archive in (self._zip, self._tar, self._stream):
            if archive is not None:
                archive.close()


class _Bounded(io.RawIOBase):
    """Content of a packed tar: no more of it at once than a file may be large, and not without end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= BLOB_LIMIT or self._stream.tell() > _LARGEST_TAR:
            raise tarfile.ReadError("it unpacks to more than a repository")
        return self._stream.read(size)

    def seek(self, at: int, whence: int = 0) -> int:
        if whence == 0 and at > _LARGEST_TAR:
            raise tarfile.ReadError("it unpacks to more than a repository")
        return self._stream.seek(at, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()


def _unpacked(path: Path) -> Any:
    """A tar as it is inside of gzip, bzip2 or xz."""
    with opened(path) as file:
        start = file.read(6)
    readers: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
    for magic, opening in readers.items():
        if start.startswith(magic):
            return _Bounded(opening(path))
    return _Bounded(opened(path))


def _packed(path: Path) -> bool:
    """True if a file begins as a zip or a tar does; a tar that is broken further on is one."""
    if zipfile.is_zipfile(path):
        return True
    try:
        with _unpacked(path) as stream, tarfile.TarFile(fileobj=stream):
            return True
    except archive_faults():
        return False


class GitClone(Repo):
    """A clone at a commit, through one `git cat-file --batch`. What a partial clone lacks is not fetched: such a file
    is not there.
    """

    def __init__(self, folder: Path, commit: str = "HEAD") -> None:
        if commit.startswith("-") or not commit.strip() or "\n" in commit:
            raise BadInput(f"commit is {commit!r}, expected a name or number of a commit")
        self.folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.commit = self._git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
        if not self.commit:
            raise BadInput(f"{folder} has no commit {commit!r}: fetch it first, nothing is fetched here")
        self._blobs = self._tree()

    def paths(self) -> Collection[str]:
        return self._blobs.keys()

    def blob(self, path: str) -> bytes | None:
        number = self._blobs.get(path)
        if number is None:
            return None
        with self._lock:
            return self._content(number)

    def close(self) -> None:
        """End the git process."""
        if self._process is not None:
            process, self._process = self._process, None
            if process.stdin:
                with contextlib.suppress(OSError):  # git has ended, and never read the last name
                    process.stdin.close()
            process.wait(timeout=10)
            if process.stdout:
                process.stdout.close()

    def _tree(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for entry in self._git("ls-tree", "-r", "-z", self.commit).split(b"\0"):
            head, _, path = entry.partition(b"\t")
            parts = head.split()
            if len(parts) == 3 and parts[0] in (b"100644", b"100755", b"100664"):
                out[path.decode("utf-8", "surrogateescape")] = parts[2].decode()
        return out

    def _content(self, number: str) -> bytes | None:
        process = self._reader()
        if process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(number.encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                if not head:  # git has ended: it does so where a partial clone lacks the file
                    self.close()
                return None
            length = int(head[2])
            data = process.stdout.read(length)
            process.stdout.read(1)
        except OSError:
            self.close()
            return None
        return data if length <= BLOB_LIMIT else None

    def _reader(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command("cat-file", "--batch"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        return self._process

    def _git(self, *words: str) -> bytes:
        try:
            done = subprocess.run(self._command(*words), capture_output=True, env=_environment(), check=False)
        except FileNotFoundError:
            raise MissingProgram(
                "reading a git repository needs git: install it, or give a folder, an archive or a snapshot"
            ) from None
        if b"dubious ownership" in done.stderr:
            raise BadInput(
                f"git refuses {self.folder}: it belongs to somebody else (git config --global --add safe.directory …)"
            )
        return done.stdout

    def _command(self, *words: str) -> list[str]:
        # Settings of the clone must run no program of its own, and a lazy fetch would go to the network.
        return ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(self.folder), *words]


def no_repository(path: Path) -> str:
    """Reason why a file cannot be a repository, seen without reading all of it; "" if it can be one."""
    with opened(path) as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{") or _packed(path):
        return ""
    return f"{path} is neither a zip, a tar nor a JSON snapshot of a repository"


def open_repo(spec: str | Path | Mapping[str, Any], commit: str | None = None) -> Repo:
    """The repository a path names: a folder, a git clone (`PATH@COMMIT`, or `commit`), a zip or tar, a JSON snapshot
    (also as an object).

    A folder with `.git` is read at the commit if one is given, else as it lies there. Raises `BadInput` for what is
    none of these.
    """
    if isinstance(spec, Mapping):
        return Snapshot.from_json(spec)
    path = Path(spec)
    if not path.exists() and "@" in str(spec):
        head, _, tail = str(spec).rpartition("@")
        path, commit = Path(head), commit or tail
    if path.is_dir():
        bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
        if bare or (commit is not None and (path / ".git").exists()):
            return GitClone(path, commit or "HEAD")
        if commit is not None:
            raise BadInput(f"{path} is no git clone, so it has no commit {commit!r}")
        return Folder(path)
    if not path.is_file():
        raise BadInput(f"{spec}: no such repository (expected a folder, a git clone, a zip or tar, or a JSON snapshot)")
    if _packed(path):
        return Archive(path)
    try:
        return Snapshot.from_json(load_json(file_bytes(path)))
    except ValueError:
        raise BadInput(f"{path} is neither a zip, a tar nor a JSON snapshot of a repository") from None


def _environment() -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _bytes(path: Any, content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    if isinstance(content, Mapping) and isinstance(content.get("text"), str):
        return _bytes(path, content["text"])
    if isinstance(content, Mapping) and isinstance(content.get("base64"), str):
        try:
            return base64.b64decode(content["base64"], validate=True)
        except binascii.Error:
            pass
    raise BadInput(f'snapshot: content of {path!r} is neither text nor {{"base64": …}}')
