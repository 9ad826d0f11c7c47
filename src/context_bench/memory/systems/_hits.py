"""What a memory found, as a reader is shown it and as a row keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from context_bench.core.numbers import real
from context_bench.core.tokens import VocabularyCounter
from context_bench.memory.protocol import Hit, dated


@dataclass(slots=True)
class Shown:
    """A hit with what is known of it."""

    hit: Hit
    sources: tuple[str, ...]
    own: bool  # the memory named the sources itself
    text: str
    counter: VocabularyCounter
    tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.counter.count(self.text)

    def told(self) -> dict[str, Any]:
        """As JSON."""
        hit = self.hit
        score = real(hit.score)
        found = {"text": hit.text, "score": score, "source_ids": list(self.sources), "memory_id": hit.memory_id, "tokens": self.tokens}
        return found | ({"time": hit.time} if hit.time else {})


def rendered(hit: Hit) -> str:
    """A hit as a reader sees it: with its date, if the memory kept one."""
    return dated(hit.text, hit.time)
