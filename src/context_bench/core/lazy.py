"""Public names of a package that load when they are first used, and plug-ins that a package's files declare."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any


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
