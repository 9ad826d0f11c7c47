"""Names of tools and of their arguments: `tools.toml`, and rows of the user's that come before it.

Paths of a log become paths of the repository here, never by the name of a file alone.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json
from context_bench.core.numbers import MOST_LINE, line
from context_bench.core.templates import load_toml
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.trace import Ranges
from context_bench.transcripts.transcript import ToolCall

ToolKind = Literal["read", "search", "list", "edit", "exec", "none"]
_KINDS = ("read", "search", "list", "edit", "exec", "none")
#: Stands for the end of a file whose length nobody told; every measure cuts ranges at the file's end.
END = MOST_LINE


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """Arguments that say which lines: `pair`, or `start` with `count` or `end`."""

    start: str = ""
    count: str = ""
    end: str = ""
    pair: str = ""
    base: int = 1

    def lines(self, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
        """First and last line, `None` if these arguments are not there."""
        if self.pair:
            pair = arguments.get(self.pair)
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                return None
            first, last = line(pair[0]), line(pair[1])
            return None if first is None else _ordered(first + 1 - self.base, last)
        first, last, count = (line(arguments.get(key)) if key else None for key in (self.start, self.end, self.count))
        if first is None and last is None and count is None:
            return None
        begin = max(1, (first if first is not None else self.base) + 1 - self.base)
        if self.count:
            return begin, (begin + count - 1 if count is not None and count > 0 else END)
        return _ordered(begin, last)


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One row of the table."""

    kind: ToolKind
    paths: tuple[str, ...] = ()
    ranges: tuple[RangeKeys, ...] = ()
    whole: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    cwd: tuple[str, ...] = ()
    patch: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    by: str = ""
    kinds: Mapping[str, ToolKind] = field(default_factory=dict)

    def kind_of(self, arguments: Any) -> ToolKind:
        """Kind of this call: the row's, or the one that the argument named by `by` says."""
        if self.by and isinstance(arguments, Mapping):
            told = arguments.get(self.by)
            return self.kinds.get(told, "none") if isinstance(told, str) else "none"
        return self.kind

    def paths_of(self, arguments: Any) -> list[str]:
        """The paths the call names; a list of patterns is not expanded here."""
        if not isinstance(arguments, Mapping):
            return []
        for key in self.paths:
            value = arguments.get(key)
            if isinstance(value, str) and value:
                return [value]
            if isinstance(value, list) and value:
                return [item for item in value if isinstance(item, str) and item]
        return []

    def lines_of(self, arguments: Any) -> Ranges:
        """The lines the call asks for."""
        if not isinstance(arguments, Mapping) or any(arguments.get(key) is True for key in self.whole):
            return "all"
        for keys in self.ranges:
            if (lines := keys.lines(arguments)) is not None:
                return "all" if lines == (1, END) else (lines,)
        return "all"

    def first(self, keys: tuple[str, ...], arguments: Any) -> Any:
        """The first of these arguments that is there; a text or list that stands for all arguments is itself the
        answer.
        """
        if not isinstance(arguments, Mapping):
            return arguments
        return next((arguments[key] for key in keys if arguments.get(key)), None)


@dataclass(frozen=True)
class Vocabulary:
    """Tool names → rows."""

    rows: Mapping[str, ToolRow]

    def find(self, tool: str) -> tuple[ToolRow | None, bool]:
        """The row of a tool, and whether it is another server's (its results are not known to be as ours are)."""
        if (row := self.rows.get(tool)) is not None:
            return row, False
        last = (
            tool.rsplit("__", 1)[-1] if tool.startswith("mcp__") else tool.rsplit(".", 1)[-1] if "." in tool else None
        )
        return (self.rows.get(last), True) if last else (None, False)

    @classmethod
    def load(cls, extra: str | Path | Mapping[str, Any] | None = None) -> Vocabulary:
        """The built-in table, behind rows of `extra` (a TOML file, or its contents). `BadInput` names what is wrong in
        it.
        """
        if extra is None:
            return _builtin()
        if isinstance(extra, Mapping):
            return cls({**_builtin().rows, **_rows(extra, "tools")})
        try:
            document = load_toml(Path(extra).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read the table of tools {extra}: {error}") from error
        return cls({**_builtin().rows, **_rows(document, str(extra))})


@functools.cache
def _builtin() -> Vocabulary:
    text = Path(__file__).with_name("tools.toml").read_text("utf-8")
    return Vocabulary(_rows(load_toml(text), "tools.toml"))


def _rows(document: Mapping[str, Any], origin: str) -> dict[str, ToolRow]:
    rows: dict[str, ToolRow] = {}
    tables = document.get("tools")
    if not isinstance(tables, list):
        raise BadInput(f"{origin}: no rows; expected [[tools]] with `kind` and `names`")
    for number, table in enumerate(tables, 1):
        row, names = _row(table, f"{origin}, row {number}")
        for name in names:
            rows.setdefault(name, row)
    return rows


def _row(table: Any, origin: str) -> tuple[ToolRow, list[str]]:
    if not isinstance(table, Mapping):
        raise BadInput(f"{origin}: not a table")
    known = {"kind", "names", "paths", "ranges", "whole", "command", "cwd", "patch", "each", "by", "kinds"}
    if unknown := sorted(set(table) - known):
        raise BadInput(f"{origin}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    kinds = table.get("kinds", {})
    for kind in [table.get("kind"), *(kinds.values() if isinstance(kinds, Mapping) else [None])]:
        if kind not in _KINDS:
            raise BadInput(f"{origin}: kind is {kind!r}, expected one of {', '.join(_KINDS)}")
    lists = {
        key: _words(table.get(key, []), f"{origin}: {key}")
        for key in ("names", "paths", "whole", "command", "cwd", "patch", "each")
    }
    names = lists.pop("names")
    if not names:
        raise BadInput(f"{origin}: `names` is empty")
    by = table.get("by", "")
    ranges = tuple(_keys(entry, origin) for entry in table.get("ranges", []))
    return ToolRow(
        table["kind"], ranges=ranges, by=by if isinstance(by, str) else "", kinds=dict(kinds), **lists
    ), list(names)


def _words(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadInput(f"{where} is {value!r}, expected a list of names")
    return tuple(value)


def _keys(entry: Any, origin: str) -> RangeKeys:
    try:
        keys = RangeKeys(**entry)
    except TypeError:
        raise BadInput(
            f"{origin}: a range is {entry!r}, expected {{start, count}}, {{start, end}} or {{pair}}, and base"
        ) from None
    if keys.base not in (0, 1) or not (keys.pair or keys.start):
        raise BadInput(f"{origin}: a range needs `pair` or `start`, and a base of 0 or 1")
    return keys


def _ordered(first: int, last: int | None) -> tuple[int, int]:
    """First and last line in order; a last line of -1 (or none) is the end of the file."""
    first = max(1, first)
    if last is None or last < 1:
        return first, END
    return min(first, last), max(first, last)


#: Where the usual images keep the repository.
CONTAINER_ROOTS = ("/testbed",)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def cleaned(path: str) -> str | None:
    """A path with forward slashes; `None` for what can be none."""
    if not path or "\0" in path or "\n" in path or len(path) > 4096:
        return None
    path = path.removeprefix("file://")
    return path.replace("\\", "/") if _DRIVE.match(path) or ("\\" in path and "/" not in path) else path


def located(path: str, cwd: str | None, root: str | None, known: Collection[str] | None = None) -> str | None:
    """The path from the repository's root; an absolute one where it is elsewhere or nobody knows; `None` for what is no
    path.

    `cwd` is where a relative path starts; `known` the files of the repository, by which a folder of another machine is
    recognised: the path's end, of two components or more, must name exactly one of them.
    """
    clean = cleaned(path)
    if clean is None:
        return None
    foreign = is_absolute(clean) and ".." not in clean.split("/")
    if not is_absolute(clean):
        clean = posixpath.join(cwd or root or "", clean)
    clean = posixpath.normpath(clean)
    clean = clean[1:] if clean.startswith("//") else clean
    inside = _below(clean, root)
    if inside is not None:
        return inside
    for base in CONTAINER_ROOTS:
        inside = _below(clean, base)
        if inside is not None and (root is None or (known is not None and inside in known)):
            return inside
    if known and foreign:
        return _by_end(clean, known) or clean
    return clean


def root_of(absolute: Iterable[str], relative: Iterable[str]) -> str | None:
    """The folder that makes relative paths of a run the absolute ones of the same run; `None` if there is none, or two
    as likely.
    """
    ends = {path for path in relative if path not in ("", ".") and not path.startswith("..")}
    votes: Counter[str] = Counter()
    for path in set(absolute):
        parts = path.split("/")
        for cut in range(2, min(len(parts), 40)):
            if "/".join(parts[cut:]) in ends:
                votes["/".join(parts[:cut])] += 1
    best = votes.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else None


def worked_in(calls: Iterable[ToolCall], repo: FilesByPath | None) -> str | None:
    """The folder that the repository lies in, if calls name it: of a run on this machine whose log does not tell its
    folder.
    """
    folder = getattr(repo, "folder", None)
    if not isinstance(folder, Path):
        return None
    named = [base for base in dict.fromkeys((str(folder.absolute()), str(folder.resolve()))) if len(base) > 1]
    marks = [(base, re.compile(re.escape(base) + r"(?![\w.-])")) for base in named]
    for call in calls:
        try:
            given = call.arguments if isinstance(call.arguments, str) else canonical_json(call.arguments)
        except (RecursionError, TypeError, ValueError):
            continue  # too deep, or none that JSON has
        for base, mark in marks:
            if base in given and mark.search(given):
                return base
    return None


def is_absolute(path: str) -> bool:
    """True if a path is told from the top, of a drive or of all."""
    return path.startswith("/") or bool(_DRIVE.match(path))


def _below(path: str, root: str | None) -> str | None:
    if not root:
        return None
    base = posixpath.normpath((cleaned(root) or root).rstrip("/") or "/")
    if path == base:
        return "."
    return path[len(base.rstrip("/")) + 1 :] if path.startswith(base.rstrip("/") + "/") else None


def _by_end(path: str, known: Collection[str]) -> str | None:
    parts = path.strip("/").split("/")
    found = {end for cut in range(len(parts) - 1) if (end := "/".join(parts[cut:])) in known}
    return found.pop() if len(found) == 1 else None
