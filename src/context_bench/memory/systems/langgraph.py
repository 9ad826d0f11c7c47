"""LangGraph's store with the bundled embedder, as it is and through the tools of LangMem."""

from __future__ import annotations

from typing import Any

from context_bench.memory.systems.vendor_memory import VendorMemory
from context_bench.sandbox.vendors import Vendor

MEMORIES = {"langgraph": "LangGraphStore", "langmem": "LangMem"}


class LangGraphStore(VendorMemory):
    """`langgraph.store.memory.InMemoryStore` with an index: nearest vectors, in memory only. Namespaces are the store's
    own.

    `embedder`, `embedding_model`, `dimensions`, `python`, `timeout`: see `VendorMemory`.
    """

    vendor = Vendor("langgraph", "langgraph", "1.2.22")
    kind = "langgraph"
    capabilities = VendorMemory.capabilities | {"update"}

    def __init__(
        self,
        *,
        relay: str | None = None,
        api_key: str | None = None,
        embedder: str = "minilm",
        embedding_model: str = "text-embedding-3-small",
        dimensions: int = 1536,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        settings: dict[str, Any] = {"embedding_model": embedding_model, "dimensions": dimensions}
        super().__init__(settings, relay=relay, api_key=api_key, embedder=embedder, python=python, timeout=timeout)


class LangMem(LangGraphStore):
    """The same store, written and searched through LangMem's tools, as an agent does; a model that decides what to
    write is not part of it.

    The tools keep texts only: which turn a memory came from and when it was said is remembered beside them, by the id
    that they tell.
    """

    vendor = Vendor("langmem", "langgraph", "0.0.30")
    kind = "langmem"
