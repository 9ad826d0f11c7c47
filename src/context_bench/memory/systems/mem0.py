"""mem0 (`mem0ai`), offline: its own Qdrant folder, the bundled embedder, and a model only where it is to extract
facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Item
from context_bench.memory.systems.baselines import dated_text, spoken
from context_bench.memory.systems.vendor_memory import VendorMemory
from context_bench.sandbox.vendors import Vendor

MEMORIES = {"mem0": "Mem0"}


class Mem0(VendorMemory):
    """The open-source `mem0.Memory`. Namespaces are its `user_id`s; hits name their turn by the metadata that mem0
    echoes.

    `infer=False` (as decided for offline runs) stores texts as they are and calls no model; `infer=True`, mem0's own
    default, has the relay's `model` extract facts from every turn: as many model calls as turns. Searches ask for
    threshold 0, the lowest that mem0 takes, since its own 0.1 leaves hits out; a hit whose cosine is negative is still
    left out. `path`: a folder to keep the store in; by default it goes with the process. `embedder`, `python`,
    `timeout`: see `VendorMemory`.
    """

    vendor = Vendor("mem0ai", "mem0", "2.2.1")
    kind = "mem0"

    def __init__(
        self,
        infer: bool = False,
        *,
        relay: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        embedder: str = "minilm",
        embedding_model: str = "text-embedding-3-small",
        dimensions: int = 1536,
        path: str | None = None,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        if infer and not (relay and model):
            raise BadInput("mem0 with infer=true asks a model: give relay=URL and model=NAME, or --relay and --model")
        settings = {
            "infer": bool(infer),
            "model": model if infer else "none",
            "embedding_model": embedding_model,
            "dimensions": dimensions,
            "folder": path,
        }
        super().__init__(settings, relay=relay, api_key=api_key, embedder=embedder, python=python, timeout=timeout)
        self.infer = bool(infer)
        if not infer:
            self.capabilities |= {"update"}
        if path:
            self.capabilities |= {"persistent"}

    @staticmethod
    def own_calls(options: Mapping[str, Any]) -> bool:
        return bool(options.get("infer")) or VendorMemory.own_calls(options)

    def _text(self, item: Item) -> str:
        """A model that extracts facts has to see when a thing was said; a text kept as it is has its date beside it."""
        return dated_text(item) if self.infer else spoken(item)
