"""Where a shell was, as a log says after each command: the folder it began in, and the one that holds the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from context_bench.shell.repo import FilesByPath

_MOVING = re.compile(r"\b(?:cd|pushd|popd)\b")
_CONTAINER = re.compile(r"/testbed(?=/|$)|/workspace/[^/]+(?=/|$)")


def folder_before(command: str, after: str) -> str | None:
    """The folder a command began in that ended in `after`; `None` where it cannot be told, as after `cd` to an absolute path."""
    if not _MOVING.search(command):
        return after
    try:
        from context_bench.shell import read_shell

        moved = read_shell(command, "", None).new_cwd
    except ImportError:
        return None
    if moved.startswith("/"):
        return None
    return after.removesuffix("/" + moved) if moved and after.endswith("/" + moved) else None if moved else after


def root_among(folders: Iterable[str], repo: FilesByPath | None, *, begun: bool) -> str | None:
    """The folder of the repository, by the folders that a shell was in; `begun`: the one it began in is among them.

    With its files: the one from which most of them are folders of the repository. Without: the usual places of containers, else what all
    have in common; one folder that the agent went to tells nothing.
    """
    seen = list(dict.fromkeys(posixpath.normpath(folder) for folder in folders if folder.startswith("/")))
    if repo is not None:
        from context_bench.shell.files import tree_of

        inside = tree_of(repo).dirs
        found: dict[str, int] = {}
        for base in {parent for folder in seen for parent in _parents(folder)}:
            below = [folder[len(base) + 1 :] for folder in seen if folder == base or folder.startswith(base + "/")]
            if any(below) and all(path in inside for path in below):
                found[base] = len(below)
        if found:
            return min(found, key=lambda base: (-found[base], len(base)))
    usual = {hit[0] for folder in seen if (hit := _CONTAINER.match(folder))}
    if len(usual) == 1:
        return usual.pop()
    return (posixpath.commonpath(seen) if len(seen) > 1 or (begun and seen) else "/").rstrip("/") or None


def _parents(folder: str) -> list[str]:
    """A folder and those above it, but the top."""
    parts = folder.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
