"""The published formats of memory benchmarks, recognised by the fields of a document.

A new format is one module here, which declares `FORMATS`, a tuple of `MemoryFormat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from context_bench.memory.datasets.memory_records import MemoryFormat

#: Those of all modules of this folder, in the order in which they are tried.
FORMATS: tuple[MemoryFormat, ...] = tuple(
    sorted(
        (each for module in iter_modules(__path__) for each in import_module(f"{__name__}.{module.name}").FORMATS),
        key=lambda each: (each.rank, each.name),
    )
)


def sniff(document: Mapping[str, Any]) -> MemoryFormat | None:
    """Find the format of a document; `None` if no format fits."""
    return next((each for each in FORMATS if each.sniff(document)), None)


def shapes() -> str:
    """One line for each format, for messages."""
    return "\n".join(f"  {each.name}: {each.shape}" for each in FORMATS)
