"""Memories: the floors, ceilings and baselines, the adapters, and the bridge that makes a system of any of them.

A new memory is one file here, which declares `MEMORIES = {"name": "Class"}`; a new scheme (`cli:`, `http:`, …) is one
with `SCHEMES = {"scheme": "function"}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import DeclaredNames, lazy

if TYPE_CHECKING:
    from context_bench.memory.systems.adapting import as_memory, make_memory
    from context_bench.memory.systems.bridge import Bridge

__all__ = ["BUILTINS", "SCHEMES", "Bridge", "as_memory", "make_memory"]

#: Public name → where it is, as the files here declare it. `naive` is the documented word for the whole conversation.
BUILTINS = DeclaredNames(__name__, __path__[0], "MEMORIES")

#: Scheme of a spec → a function (what stands behind the colon, **options) → memory.
SCHEMES = DeclaredNames(__name__, __path__[0], "SCHEMES")

__getattr__, __dir__ = lazy(__name__, [".bridge:Bridge", ".adapting:as_memory", ".adapting:make_memory"])
