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


class DeclaredNames(Mapping[str, str]):
    """Public name → "package.module:object", from the constants that the files of a package declare; nothing is
    imported.

    A file declares its names as literals at the margin, as in `COMPRESSORS = {"bm25": "BM25"}`. The text of the files
    is read when the table is first used. `more`: names beside those.
    """

    def __init__(self, package: str, folder: str, constant: str, more: Mapping[str, str] | None = None) -> None:
        self._package, self._folder, self._constant, self._more = package, folder, constant, more or {}

    @cached_property
    def _places(self) -> dict[str, str]:
        from ast import literal_eval

        line = re.compile(rf"^{self._constant} = (\{{[^}}]*\}})", re.MULTILINE)
        places: dict[str, str] = {}
        for file in sorted(Path(self._folder).glob("*.py")):
            if declared := line.search(file.read_text("utf-8")):
                places |= {
                    name: f"{self._package}.{file.stem}:{target}" for name, target in literal_eval(declared[1]).items()
                }
        return {**places, **self._more}

    def with_more(self, more: Mapping[str, str]) -> DeclaredNames:
        """The same names and some others."""
        return DeclaredNames(self._package, self._folder, self._constant, {**self._more, **more})

    def __getitem__(self, name: str) -> str:
        return self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
