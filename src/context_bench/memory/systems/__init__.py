"""Memories: the built-in floors, ceilings and baselines, the adapters, and the bridge that makes a system of any of them. One file each.

A new memory is one file and one line in `BUILTINS`; a new scheme (`cli:`, `http:`, …) one line in `SCHEMES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.memory.systems.adapting import as_memory
    from context_bench.memory.systems.bridge import Bridge
    from context_bench.memory.systems.making import make_memory

__all__ = ["BUILTINS", "SCHEMES", "Bridge", "as_memory", "make_memory"]

_HERE = "context_bench.memory.systems"

#: Public name → where it is. `naive` is the documented word for the whole conversation.
BUILTINS: dict[str, str] = {
    "none": f"{_HERE}.none:NoMemory",
    "full_context": f"{_HERE}.full_context:FullContext",
    "naive": f"{_HERE}.full_context:FullContext",
    "recency": f"{_HERE}.recency:Recency",
    "random": f"{_HERE}.random_pick:RandomPick",
    "oracle": f"{_HERE}.oracle:Oracle",
    "bm25": f"{_HERE}.bm25:BM25",
    "embedding": f"{_HERE}.embedding:Embedding",
    "hybrid": f"{_HERE}.hybrid:Hybrid",
    "summary_regenerative": f"{_HERE}.summary_regenerative:RegenerativeSummary",
    "summary_anchored": f"{_HERE}.summary_anchored:AnchoredSummary",
    "mem0": f"{_HERE}.mem0:Mem0",
    "langgraph": f"{_HERE}.langgraph:LangGraphStore",
    "langmem": f"{_HERE}.langgraph:LangMem",
    "proxy": f"{_HERE}.proxy:ProxyMemory",
}

#: Scheme of a spec → a function (what stands behind the colon, **options) → memory.
SCHEMES: dict[str, str] = {
    "cli": f"{_HERE}.command:from_spec",
    "http": f"{_HERE}.http:from_spec",
    "mcp": f"{_HERE}.mcp:from_spec",
}

__getattr__, __dir__ = lazy(__name__, [".bridge:Bridge", ".adapting:as_memory", ".making:make_memory"])
