"""No memory at all: the floor. What can be answered with it can be answered from the question or from what the model knows."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.memory.protocol import Hit, Item, Receipt


class NoMemory:
    """Takes everything, keeps nothing, finds nothing."""

    name = "none"
    capabilities = frozenset({"add", "search", "source_ids", "namespaces", "stats"})
    batch: int | None = None

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Acknowledge the items."""
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Nothing."""
        return []

    def reset(self) -> None:
        """There is nothing to forget."""

    def namespace(self, name: str) -> NoMemory:
        """Another one."""
        return NoMemory()

    def stats(self) -> dict[str, int]:
        """Nothing is kept."""
        return {"items": 0, "bytes": 0}
