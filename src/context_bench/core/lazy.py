"""Public names of a package that load when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
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
            raise AttributeError(f"module {module!r} has no attribute {name!r}; it has: {', '.join(sorted(this.__all__))}")
        return getattr(import_module(homes[name], this.__package__), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return found, names
