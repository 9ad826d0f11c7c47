"""A system as a compressor: it gets the prefix as the context of an example, and what it makes of that context is the result."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors._messages import Messages
from context_bench.compression.compressors._results import result_of
from context_bench.compression.probes.example import rendered, tokens_of
from context_bench.core import calling
from context_bench.core.errors import BadInput, BadReply
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for


class SystemCompressor:
    """Hands `{id, context, messages, question, budget}` to `process` (or `aprocess`): `context` is the prefix as text, `messages` as it is.

    What comes back is read in this order: `compressed` (`{messages}` or `{text}`), `messages` (if they are others), `context`. A response
    alone is none: a system that answers is not a compressor.
    """

    def __init__(self, system: Any) -> None:
        process = calling.method(system, "aprocess", "process")
        if process is None:
            raise BadInput(f"{type(system).__name__} has neither process() nor aprocess()")
        self._system, self._process = system, process
        self.name: str = getattr(system, "name", type(system).__name__)
        self.needs_query = bool(getattr(system, "needs_query", False))

    def fingerprint(self) -> dict[str, Any]:
        """That of the system."""
        return {"class": "SystemCompressor", "system": calling.fingerprint(self._system)}

    async def compress(
        self, prefix: Messages, tail: Messages, *, state: Any = None, budget: int | None = None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        """What the system makes of the prefix."""
        context = rendered(prefix)
        example = {"id": "prefix", "context": context, "messages": prefix, "question": query or "", "budget": budget}
        found = await calling.call(self._process, example)
        if not isinstance(found, dict):
            raise BadReply(f"{self.name}: process() gave {type(found).__name__}, expected a dict")
        if "compressed" in found:
            made = result_of(found["compressed"], self.name)
        elif found.get("messages", prefix) != prefix:
            made = result_of(found["messages"], self.name)
        elif isinstance(found.get("context"), str):
            made = prefix if found["context"] == context else result_of(found["context"], self.name)
        else:
            raise BadReply(f"{self.name}: process() gave no compressed, messages or context; it gave {', '.join(map(str, found))}")
        counter = counter_for(getattr(self._system, "model", None))
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    async def aclose(self) -> None:
        """Close the system."""
        close = calling.method(self._system, "aclose", "close")
        if close is not None:
            await calling.call(close)
