"""Files and directories of a repository as a shell sees them: resolving, globbing, reading, overwriting.

Also the complaints of programs about files that they could not read.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from copy import copy
from weakref import WeakKeyDictionary

from context_bench.shell.model import UNKNOWN, Budget, Change, FileLine, LineStream, UnknownLines
from context_bench.shell.repo import FilesByPath

_WHY = r"(?:No such file or directory|Is a directory|Not a directory|Permission denied)"
_COMPLAINT = re.compile(
    r"^(?:\[bat error\]|[\w./+-]{1,100}): (?:line \d{1,6}: )?(?:fatal: )?(?P<by>\S{0,100}: )?"
    r"(?:can(?:not|'t) (?:open|access|read|stat) (?:file (?=`))?|IO error for operation on )?"
    r"['\"`\u2018]?(?P<name>[^\n:]{1,1000}?)['\"\u2019]?(?: for reading)?(?:: | \()"
    + _WHY
    # less names no program, zsh the file last
    + r"|^(?P<alone>[^\s:]{1,1000}): No such file or directory$"
    + r"|^\w{1,20}: (?:(?P<shell>cd|pushd): )?no such file or directory: (?P<last>[^\n]{1,1000})$",
    re.M,
)
_PHRASES = ("No such file", "no such file", "s a directory", "Not a directory", "ermission denied")


def complaints(text: str) -> tuple[list[str], list[str]]:
    """Files that programs say they could not read, and folders that the shell could not go to, as printed."""
    files: dict[str, None] = {}
    dirs: dict[str, None] = {}
    for hit in _COMPLAINT.finditer(text) if any(phrase in text for phrase in _PHRASES) else ():
        moving = (hit["by"] or "").rstrip(": ") in ("cd", "pushd") or hit["shell"]
        (dirs if moving else files)[hit["name"] or hit["alone"] or hit["last"]] = None
    return list(files), list(dirs)


_CONTAINER_ROOTS = re.compile(
    r"/(?:testbed|repo|app|code|project|workspace/[^/]+|workspace|workspaces/[^/]+|home/[^/]+/[^/]+|root/[^/]+)/"
)
_SYSTEM = re.compile(r"/(?:usr|etc|proc|sys|dev|opt|tmp|var|lib|lib64|bin|sbin|run|mnt|nix)(?:/|$)")
_LARGE = 16 << 20
_KEPT = 256
_LONGEST = 10_000
_DRIVE, _ON_DRIVE = re.compile(r"([A-Za-z]):/"), re.compile(r"[A-Za-z]:[\\/]")
#: Where the repository lies when its real place is not known.
ROOT = "/\x01"


class Tree:
    """The paths of a repository, and the lines of its files, kept between commands."""

    def __init__(self, repo: FilesByPath) -> None:
        self.repo = repo
        self.source: Collection[str] = repo.paths()
        self.paths = frozenset(self.source)
        self.order = sorted(self.paths)
        self.dirs = {""}
        for path in self.paths:
            while "/" in path:
                path = path.rpartition("/")[0]
                if path in self.dirs:
                    break
                self.dirs.add(path)
        self._lines: dict[str, list[FileLine] | None] = {}
        #: Of files that outputs were compared with: their lines, these as they are compared, and the numbers of each
        #: such text.
        self.compared: dict[str, tuple[list[FileLine], list[str], dict[str, list[int]]]] = {}
        self.tails: dict[str, list[str]] | None = None
        #: Names of the files, without their folders.
        self.names = frozenset(path.rpartition("/")[2] for path in self.paths)
        self.letters = _last_letters(self.names)

    def with_files_of(self, repo: FilesByPath) -> Tree:
        """The same paths with the files of another repository."""
        other = copy(self)
        other.repo, other._lines, other.compared = repo, {}, {}
        return other

    def lines(self, path: str) -> list[FileLine] | None:
        """The lines of a file; `None` for one that cannot be had or is too large to look at."""
        if path not in self._lines:
            if len(self._lines) >= _KEPT:
                self._lines.clear()
                self.compared.clear()
            blob = self.repo.blob(path)
            self._lines[path] = None if blob is None or len(blob) > _LARGE else split(path, blob)
        return self._lines[path]

    def by_suffix(self, path: str) -> str | None:
        """The one file or directory the end of `path` (two components at least) stands for."""
        if self.tails is None:
            self.tails = {}
            for known in (*self.order, *sorted(self.dirs)):
                if "/" in known:
                    self.tails.setdefault("/".join(known.rsplit("/", 2)[-2:]), []).append(known)
        ends = self.tails.get("/".join(path.rsplit("/", 2)[-2:]), [])
        fits = [known for known in ends if ("/" + path).endswith("/" + known)]
        return fits[0] if len(ends) == 1 and len(fits) == 1 else None


def _last_letters(names: Collection[str]) -> frozenset[str]:
    """The last letters of lines that can name one of these files, or a folder."""
    return frozenset(name[-1:] for name in names) | frozenset("./\\")


_TREES: WeakKeyDictionary[FilesByPath, Tree] = WeakKeyDictionary()


def tree_of(repo: FilesByPath) -> Tree:
    """The tree of a repository, made once for each; one whose files alone differ from those of another (`like`) shares
    its paths.
    """
    like = getattr(repo, "like", None)
    if like is not None:
        return tree_of(like).with_files_of(repo)
    try:
        tree = _TREES.get(repo)
    except TypeError:
        return Tree(repo)
    if tree is None:
        # the tree must not keep its own key alive
        tree = Tree(_Weak(repo))
        _TREES[repo] = tree
    return tree


class _Weak:
    """A repository held weakly."""

    def __init__(self, repo: FilesByPath) -> None:
        from weakref import ref

        self._ref = ref(repo)

    def blob(self, path: str) -> bytes | None:
        repo = self._ref()
        return repo.blob(path) if repo is not None else None

    def paths(self) -> Collection[str]:
        repo = self._ref()
        return repo.paths() if repo is not None else ()


def split(path: str, blob: bytes) -> list[FileLine]:
    """The lines of a file; only LF ends one."""
    texts = blob.decode("utf-8", "surrogateescape").split("\n")
    whole = texts[-1] == ""
    if whole:
        texts.pop()
    lines = [FileLine(path, at, text) for at, text in enumerate(texts, 1)]
    if lines and not whole:
        lines[-1] = lines[-1]._replace(eol=False)
    return lines


class Files:
    """The file system one command works on: the repository, what the command itself changed, and its pipes."""

    def __init__(
        self, repo: FilesByPath | None, cwd: str, root: str | None, output: str = "", budget: Budget | None = None
    ) -> None:
        """`output`: what was printed; where nobody knows which files there are, it says which there are not."""
        self.budget = budget or Budget()
        self.tree = tree_of(repo) if repo is not None else None
        cwd = cwd.replace("\\", "/") if _ON_DRIVE.match(cwd) else cwd
        self.absolute = cwd.startswith("/") or bool(_DRIVE.match(cwd))
        base = root.replace("\\", "/") if root is not None else cwd if self.absolute else ROOT
        self.root = posixpath.normpath(base) if base else ROOT
        self.cwd: str | None = posixpath.normpath(cwd if self.absolute else posixpath.join(self.root, cwd))
        self.pipes: dict[str, LineStream] = {}
        self.written: dict[str, LineStream | None] = {}
        self.edits: dict[str, Change] = {}
        self.unresolved: dict[str, None] = {}
        #: Where files were looked for that are not there.
        self.absent: dict[str, None] = {}
        files, folders = complaints(output) if self.tree is None else ([], [])
        self._refused, self._closed = frozenset(files), frozenset(folders)
        #: Files the command that runs has opened.
        self.opened: list[str] = []
        #: A `cd` may or may not have worked: relative paths are guesses from here on.
        self.doubt = False

    # -- names -------------------------------------------------------------

    def place(self, word: str) -> str | None:
        """The absolute path of a word; `None` for one that no system takes for a path."""
        if len(word) > _LONGEST:
            return None
        word = word.replace("\\", "/") if "\\" in word and not word.startswith("/") else word
        if word[1:3] == ":/" and _DRIVE.match(word):
            if not _DRIVE.match(self.root):
                return None
            same = word.lower().startswith(self.root.lower())
            return posixpath.normpath(self.root + word[len(self.root) :] if same else word)
        if word.startswith("/"):
            drive = _DRIVE.match(self.root)
            if drive and word[:3].lower() == f"/{drive[1].lower()}/":
                word = f"{drive[1]}:{word[2:]}"
            return posixpath.normpath(word)
        if word.startswith("~") or self.cwd is None:
            return None
        return posixpath.normpath(posixpath.join(self.cwd, word))

    def resolve(self, word: str) -> str | None:
        """The path in the repository a word stands for ("" = its root); `None` outside or unknown."""
        if UNKNOWN in word or not word:
            return None
        at = self.place(word)
        if at is None:
            return None
        if at == self.root:
            return ""
        prefix = self.root.rstrip("/") + "/"
        if at.startswith(prefix):
            return at[len(prefix) :]
        if not word.startswith("/"):
            return None
        if self.tree is None or _SYSTEM.match(at):
            return None
        known = _CONTAINER_ROOTS.match(at + "/")
        if known and _CONTAINER_ROOTS.match(prefix) and at.split("/")[1] == prefix.split("/")[1]:
            return None  # another project beside this one
        if known:
            inner = at[known.end() :]
            if self.exists(inner):
                return inner
        return self.tree.by_suffix(at)

    def exists(self, path: str) -> bool:
        return self.tree is not None and (path in self.tree.paths or path in self.tree.dirs)

    def is_dir(self, path: str) -> bool | None:
        return None if self.tree is None else path in self.tree.dirs

    def is_file(self, path: str) -> bool | None:
        if path in self.written:
            return self.written[path] is not None
        return None if self.tree is None else path in self.tree.paths

    def named(self, lines: list[str]) -> list[str]:
        """The files that these lines name, each once; a line is looked at closely only if it ends like a file there
        is.
        """
        if self.tree is None:
            return []
        names, letters = self.tree.names, self.tree.letters
        if self.written:
            names = names | {path.rpartition("/")[2] for path in self.written}
            letters = _last_letters(names)
        found: dict[str, None] = {}
        folder = ""
        for line in lines:
            word = line.strip()
            if word.endswith(":"):  # `ls` of several folders heads each with its name
                folder = f"{word[:-1]}/" if self.is_dir(self.resolve(word[:-1]) or "\0") else folder
            if word[-1:] not in letters:
                continue
            word = folder + word
            end = word.replace("\\", "/").rstrip("/").rpartition("/")[2]
            if (end in names or end in (".", "..")) and (path := self.resolve(word)) and self.is_file(path):
                found[path] = None
        return list(found)

    def below(self, path: str) -> list[str]:
        """All files under a directory, or the file itself."""
        if self.tree is None:
            return []
        if path in self.tree.paths:
            return [path] if self.written.get(path, True) is not None else []
        order, head = self.tree.order, path + "/" if path else ""
        first = bisect_left(order, head)
        last = bisect_left(order, path + "0", first) if path else len(order)  # "0" follows "/"
        self.budget.look(last - first + len(self.written))
        gone = {name for name, stream in self.written.items() if stream is None}
        return [name for name in order[first:last] if name not in gone] if gone else order[first:last]

    def inside(self, path: str) -> Iterator[tuple[str, str]]:
        """The same, each as seen from the directory, and from the root."""
        return ((below[len(path) :].lstrip("/"), below) for below in self.below(path))

    def spelled(self, base: str, path: str, below: str) -> str:
        """Name of the file `below` in the output of a tool that was given `base` (for `path`)."""
        if below == path:
            return base
        rest = below[len(path) + 1 :] if path else below
        return base + rest if base.endswith("/") else f"{base}/{rest}"

    # -- text --------------------------------------------------------------

    def open(self, word: str) -> LineStream | None:
        """The text of a file; `None` where there is none. Notes what it could not resolve."""
        if word in self.pipes:
            self.budget.look(len(self.pipes[word].parts))
            return self.pipes[word]
        if UNKNOWN in word:
            return LineStream([UnknownLines(None)])
        if word in ("/dev/null",):
            return LineStream()
        path = self.resolve(word)
        if path is None:
            self._miss(word, self.place(word))
            return None
        return self.read(path, word)

    def _miss(self, word: str, place: str | None) -> None:
        self.unresolved[word] = None
        if place is not None:
            self.absent[place] = None

    def read(self, path: str, word: str) -> LineStream | None:
        """The text of a file of the repository."""
        stream = self._read(path, word)
        if stream is not None:
            self.budget.look(len(stream.parts) + 1)
        return stream

    def _read(self, path: str, word: str) -> LineStream | None:
        if self.is_file(path) is False or (word in self._refused and path not in self.written):
            if path not in self.written:
                self._miss(word, path)
            return None
        self.opened.append(path)
        if path in self.written:
            return self.written[path]
        if self.tree is None:
            return LineStream([FileLine(path, 1, None, rest=True)])
        lines = self.tree.lines(path)
        if self.doubt or lines is None:
            return LineStream([UnknownLines(path)])
        return LineStream(lines)

    def write(self, word: str, stream: LineStream | None, append: bool = False, *, in_place: bool = False) -> None:
        """A file is overwritten (`in_place`: from its own text), appended to, or (`None`) deleted."""
        path = self.resolve(word)
        if not path:
            return
        before = self.read(path, word) if append and stream is not None else None
        if stream is not None and before is not None:
            self.budget.look(len(stream.parts))
            self.budget.make(8 * (len(before.parts) + len(stream.parts)))
            stream = LineStream([*before.parts, *stream.parts])
        self.written[path] = stream
        new = self.edits.get(path) == "whole" and (append or in_place)
        self.edits[path] = "gone" if stream is None else "part" if (append or in_place) and not new else "whole"
        self.unresolved.pop(word, None)

    def cd(self, word: str) -> int | None:
        """Change directory; its exit status, `None` if that cannot be told."""
        at = None if UNKNOWN in word else self.place(word)
        if at is None:
            self.cwd = None
            return None
        if word in self._closed:
            return 1
        self.cwd = at if len(at) <= _LONGEST else None
        path = self.resolve(word) if word.startswith("/") else self.resolve(".")
        if path is None or self.tree is None:
            return 0
        if path in self.tree.dirs:
            self.cwd = posixpath.join(self.root, path) if path else self.root
            return 0
        return 1

    def where(self) -> str | None:
        """The working directory in the style it was given in."""
        if self.cwd is None:
            return None
        if self.absolute or not (self.cwd + "/").startswith(self.root.rstrip("/") + "/"):
            return self.cwd
        return self.cwd[len(self.root) :].lstrip("/")
