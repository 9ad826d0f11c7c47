"""Names given by users: `register_*` in Python, entry points in packages. Built-ins are not registered; they are files.

Entry-point groups: `context_bench.datasets`, `.systems`, `.evaluators`, `.metrics`, `.reporters`, `.families`.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


class Registry:
    """Objects by kind and name."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Any]] = {}

    def register(self, kind: str, name: str, obj: Any) -> None:
        """Make `obj` known as `name`; a later one replaces an earlier one."""
        self._objects.setdefault(kind, {})[name] = obj

    def get(self, kind: str, name: str) -> Any:
        """The object; `KeyError` (its text begins "No <kind> registered with name") when there is none."""
        try:
            return self._objects[kind][name]
        except KeyError:
            known = ", ".join(self.list(kind)) or "none"
            raise KeyError(f"No {kind} registered with name {name!r}. Available: {known}") from None

    def list(self, kind: str) -> builtins.list[str]:
        """All names of a kind, sorted."""
        return sorted(self._objects.get(kind, {}))

    def find(self, kind: str, name: str) -> Any | None:
        """The object that a user registered under `name`, else the one that an installed package offers, else
        `None`.
        """
        if name in self._objects.get(kind, {}):
            return self._objects[kind][name]
        return next((point.load() for point in _entry_points(kind) if point.name == name), None)

    def names(self, kind: str) -> builtins.list[str]:
        """Registered names and entry points of a kind, sorted."""
        return sorted({*self._objects.get(kind, {}), *(point.name for point in _entry_points(kind))})

    def offered(self, kind: str) -> builtins.list[tuple[str, Callable[[], Any]]]:
        """Everything that installed packages offer of a kind: its name and what loads it, sorted by name.

        For every command's sake this is quick where there is nothing: then files of packages are searched for the
        group's name only.
        """
        path = tuple(sys.path)
        if not _mentioned(path, _group(kind)):
            return []
        return sorted(((point.name, point.load) for point in _entry_points(kind)), key=itemgetter(0))


_PLURALS = {"memory": "memories", "family": "families"}
registry = Registry()


def _group(kind: str) -> str:
    return f"context_bench.{_PLURALS.get(kind, f'{kind}s')}"


def _entry_points(kind: str) -> Iterable[EntryPoint]:
    return _installed(tuple(sys.path)).select(group=_group(kind))


def _mentioned(path: tuple[str, ...], group: str) -> bool:
    """True if some package on `path` may offer something in a group; an archive may hold anything."""
    for folder in path:
        try:
            with os.scandir(folder or ".") as entries:
                packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except NotADirectoryError:
            return True
        except OSError:
            continue
        for package in packages:
            with suppress(OSError), open(f"{package}/entry_points.txt", "rb") as file:  # noqa: PTH123 (a path object takes as long again)
                if group.encode() in file.read():
                    return True
    return False


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> EntryPoints:
    """Entry points of the packages on `path`. Every file of every package is looked at, so once in a process."""
    from importlib.metadata import entry_points  # a fifth of `--help`'s time, needed by few commands

    return cast("EntryPoints", entry_points())
