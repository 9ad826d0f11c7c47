"""One running summary that a model writes anew with every part of the conversation: cheap to read, and it forgets what it rewrites."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from context_bench.memory.protocol import Hit, Item
from context_bench.memory.systems._written import Written, dated

_RULES = """You keep the memory of a long conversation as one summary.
You get the summary so far and the next part of the conversation. Write the new summary, which takes the place of the old one.
Keep names, dates, numbers, places, preferences and decisions exactly as they were said. Where something changed, say what it is now and
since when. Leave greetings and small talk out. Write plain sentences, one fact to a line, and nothing else."""


class RegenerativeSummary(Written):
    """Holds nothing but the latest summary, and gives it as its only hit, whatever is asked. It does not know its sources.

    Nor does it know what it was told when: `as_of` leaves nothing out, so in a question about an earlier moment it knows too much.
    """

    name = "summary_regenerative"
    capabilities = frozenset({"add", "search", "delete_all", "namespaces", "stats"})
    rules = _RULES

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The summary, if there is one."""
        return [Hit(self._summary, memory_id="summary")] if self._summary and k > 0 else []

    def namespace(self, name: str) -> RegenerativeSummary:
        """An isolated twin with no summary yet, on the same model."""
        twin = copy.copy(self)
        twin._owner = False
        twin._begin(name)
        return twin

    def delete_all(self) -> None:
        """Forget the summary."""
        self._summary = ""

    def reset(self) -> None:
        """The same as `delete_all`."""
        self.delete_all()

    def stats(self) -> dict[str, int]:
        """One item if there is a summary, and its bytes."""
        return {"items": int(bool(self._summary)), "bytes": len(self._summary.encode("utf-8", "replace"))}

    def _begin(self, name: str) -> None:
        super()._begin(name)
        self._summary = ""

    async def _read(self, part: Sequence[Item]) -> None:
        new = "\n".join(dated(item) for item in part)
        self._summary = await self._ask(f"Summary so far:\n{self._summary or '(nothing yet)'}\n\nNext part:\n{new}\n\nNew summary:")
