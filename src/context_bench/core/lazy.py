"""Names that load when they are used: of a package, of plug-ins that its files declare, of plug-ins given by users.

Users give names with `register_*` in Python, or as entry points of a package. Built-ins are not registered; they are
files. Entry-point groups: `context_bench.datasets`, `.systems`, `.evaluators`, `.metrics`, `.reporters`, `.families`.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


def lazy(module: str, paths: Iterable[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the module of that name.

    `paths`: "package.module:Name", or ".module:Name" seen from the module's own package, for each name that is found
    elsewhere. Whatever is not among them raises `AttributeError` with the names there are (the module's `__all__`).
    """
    homes = {name: home for home, _, name in (path.partition(":") for path in paths)}

    def found(name: str) -> Any:
        this = sys.modules[module]
        if name not in homes:
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}; it has: {', '.join(sorted(this.__all__))}"
            )
        return getattr(import_module(homes[name], this.__package__), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return found, names


def declarations(folder: str | Path, constant: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the module, value) of each file of a folder that declares a constant; nothing is imported.

    The value is a dict, written as a literal at the margin. If it runs over several lines, its last bracket stands at
    the margin too.
    """
    from ast import literal_eval

    end = r"\}(?=[ \t]*(?:#[^\n]*)?$)"
    literal = re.compile(rf"^{constant} = (\{{(?:[^\n]*{end}|.*?^{end}))", re.MULTILINE | re.DOTALL)
    for file in sorted(Path(folder).glob("*.py")):
        if declared := literal.search(file.read_text("utf-8")):
            yield file.stem, literal_eval(declared[1])


class LazyModule:
    """A module that is imported when one of its names is first used, for modules that take long to load."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(import_module(self._module), name)  # later uses do not come here
        return value


def deferred(place: str) -> Callable[..., Any]:
    """The function at "package.module:function", which is imported when it is called."""
    module, _, name = place.partition(":")

    def called(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    return called


class DeclaredNames(Mapping[str, str]):
    """Public name → "package.module:object", from the constants that the files of a package declare; nothing is
    imported.

    A file declares its names as literals at the margin, as in `COMPRESSORS = {"bm25": "BM25"}`. The text of the files
    is read when the table is first used. `more`: names beside those.
    """

    def __init__(self, package: str, folder: str | Path, constant: str, more: Mapping[str, str] | None = None) -> None:
        self.folder, self._package, self._constant, self._more = folder, package, constant, more or {}

    @cached_property
    def _places(self) -> dict[str, str]:
        return {
            **{
                name: f"{self._package}.{module}:{target}"
                for module, targets in declarations(self.folder, self._constant)
                for name, target in targets.items()
            },
            **self._more,
        }

    def with_more(self, more: Mapping[str, str]) -> DeclaredNames:
        """The same names and some others."""
        return DeclaredNames(self._package, self.folder, self._constant, {**self._more, **more})

    def __getitem__(self, name: str) -> str:
        return self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


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
        """Everything that installed packages offer of a kind: its name and what loads it, sorted by name."""
        return sorted(((point.name, point.load) for point in _entry_points(kind)), key=itemgetter(0))


_PLURALS = {"memory": "memories", "family": "families"}
registry = Registry()


def _group(kind: str) -> str:
    return f"context_bench.{_PLURALS.get(kind, f'{kind}s')}"


def _entry_points(kind: str) -> Iterable[EntryPoint]:
    """The offers of packages of a kind. For every command's sake this is quick where there is none: then their files
    are searched for the name of the group only.
    """
    path, group = tuple(sys.path), _group(kind)
    named = _groups(path)
    return _installed(path).select(group=group) if named is None or group.encode() in named else ()


@lru_cache(maxsize=4)
def _groups(path: tuple[str, ...]) -> frozenset[bytes] | None:
    """The groups of ours that the packages on `path` name in their offers; `None` if an archive is among them, which
    may hold anything.
    """
    found: set[bytes] = set()
    for folder in path:
        try:
            with os.scandir(folder or ".") as entries:
                packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except NotADirectoryError:
            return None
        except OSError:
            continue
        for package in packages:
            with suppress(OSError), open(f"{package}/entry_points.txt", "rb") as file:  # noqa: PTH123 (a path object takes as long again)
                found.update(re.findall(rb"context_bench\.\w+", file.read()))
    return frozenset(found)


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> EntryPoints:
    """Entry points of the packages on `path`. Every file of every package is looked at, so once in a process."""
    from importlib.metadata import entry_points  # a fifth of `--help`'s time, needed by few commands

    return cast("EntryPoints", entry_points())


@lru_cache(maxsize=64)
def version_of(package: str) -> str | None:
    """The version of an installed package; `None` if it is none. It is looked for in the lines of its description:
    reading that as the e-mail it is takes four times as long.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(package)
    except PackageNotFoundError:
        return None
    told = re.search(r"^Version: (.+)$", found.read_text("METADATA") or "", re.MULTILINE)
    return told[1].strip() if told else found.version
