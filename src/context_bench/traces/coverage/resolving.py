"""Which file of the repository a path in a log is."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from context_bench.traces.gold import clean_path


class Resolver:
    """Which file of the repository a path in a log is. `resolve` gives `None` where none is sure: a bare name is never guessed."""

    def __init__(self, paths: Collection[str], cwd: str | None = None) -> None:
        self._paths = paths if isinstance(paths, set | frozenset | dict) else frozenset(paths)
        self._folder = posixpath.normpath(cwd).rstrip("/") + "/" if cwd else ""

    def resolve(self, path: str) -> str | None:
        """The file a path means.

        Relative paths count from the root of the repository, absolute ones from the agent's folder, `/testbed` or `/workspace/<one>`; else
        it is the one ending of at least two components that is a file.
        """
        path = path.strip().strip("'\"")
        if not path or "\0" in path:
            return None
        if path not in self._paths and "\\" in path:
            path = path.replace("\\", "/")
        plain = posixpath.normpath(path)
        if plain.startswith("//"):
            plain = plain[1:]
        if plain == ".." or plain.startswith("../"):
            return None
        if plain in self._paths:
            return plain
        if plain.startswith("/"):
            for inner in (plain.removeprefix(self._folder), clean_path(plain)):
                if inner in self._paths:
                    return inner
        parts = plain.strip("/").split("/")
        found = [ending for n in range(1, len(parts) - 1) if (ending := "/".join(parts[n:])) in self._paths]
        return found[0] if len(found) == 1 else None
