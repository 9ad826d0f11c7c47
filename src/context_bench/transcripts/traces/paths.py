"""Paths of a log as paths of the repository. Never by the name of a file alone."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from context_bench.core.keys import canonical_json
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.record import ToolCall

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
    """The path from the repository's root; an absolute one where it is elsewhere or nobody knows; `None` for what is no path.

    `cwd` is where a relative path starts; `known` the files of the repository, by which a folder of another machine is recognised: the
    path's end, of two components or more, must name exactly one of them.
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
    """The folder that makes relative paths of a run the absolute ones of the same run; `None` if there is none, or two as likely."""
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
    """The folder that the repository lies in, if calls name it: of a run on this machine whose log does not tell its folder."""
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
    """Whether a path is told from the top, of a drive or of all."""
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
