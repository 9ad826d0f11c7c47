"""Exactly the evidence: the ceiling. What a reader gets wrong with it is the reader's fault, or the question's."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.memory.protocol import Hit
from context_bench.memory.systems._listed import Listed


class Oracle(Listed):
    """The only memory that is told the evidence of a question (`wants_evidence`); gives those items, whatever `k` is.

    Evidence that names sessions instead of items gives the items of these sessions. Without known evidence it finds nothing.
    `as_of` leaves nothing out: a dataset that names evidence dated after its question means it.
    """

    name = "oracle"
    capabilities = Listed.capabilities | {"search"}
    wants_evidence = True
    ignores_k = True

    def search(self, query: str, k: int, *, as_of: str | None = None, evidence: Sequence[str] = ()) -> list[Hit]:
        """The items whose ids are in `evidence`, or else those whose session is, in the order of the conversation."""
        held, wanted = self._held(), set(evidence)
        found = [entry.hit(memory_id) for memory_id, entry in held if entry.source in wanted]
        return found or [entry.hit(memory_id) for memory_id, entry in held if entry.session in wanted]
