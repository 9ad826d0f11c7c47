"""What a user's plug-in takes, looked at before anything is asked of it; `compress(messages)` and `compress(text)` as compressors."""

from __future__ import annotations

import inspect
from typing import Any

from context_bench.compression.compressors._messages import Messages
from context_bench.compression.compressors._results import result_of
from context_bench.compression.probes.example import rendered
from context_bench.core import calling
from context_bench.core.errors import BadInput
from context_bench.core.protocols import Compressed, Compressor
from context_bench.wire.conversation import message_text

_WAYS = "compress(messages), compress(text), or compress(prefix, tail, *, state, budget, query=None)"
_OF_TEXT = ("text", "context", "prompt", "content", "string", "document")


class SimpleCompressor:
    """An object whose `compress` takes one thing: the messages, or a text where its parameter is called so or annotated as `str`.

    `budget` and `query` are handed over if it takes them by name. It gives messages or a text, `{"messages": …}` or `{"text": …}`.
    """

    def __init__(self, made: Any) -> None:
        first = next(iter(inspect.signature(made.compress).parameters.values()))
        self._made, self._named = made, _named(made)
        self.of_text = first.annotation in (str, "str") or (first.annotation is first.empty and first.name in _OF_TEXT)
        self.name: str = calling.name_of(made)
        self.needs_query = bool(getattr(made, "needs_query", "query" in self._named))
        self.ignores_budget = bool(getattr(made, "ignores_budget", "budget" not in self._named))
        self.deterministic = bool(getattr(made, "deterministic", False))

    def fingerprint(self) -> dict[str, Any]:
        """That of the object."""
        return {"class": "SimpleCompressor", "of": calling.fingerprint(self._made)}

    async def compress(
        self, prefix: Messages, tail: Messages, *, state: Any = None, budget: int | None = None, query: str | None = None
    ) -> tuple[Compressed, Any]:
        """What the object makes of the prefix."""
        more: dict[str, Any] = {name: value for name, value in (("budget", budget), ("query", query)) if name in self._named}
        given: Any = prefix
        if self.of_text:
            given = message_text(prefix[0]) if len(prefix) == 1 else rendered(prefix)
        found = await calling.call(self._made.compress, given, **more)
        return found if isinstance(found, Compressed) else Compressed(result_of(found, f"{self.name}: compress()")), state

    async def aclose(self) -> None:
        """Close the object."""
        close = calling.method(self._made, "aclose", "close")
        if close is not None:
            await calling.call(close)


def as_compressor(made: Any) -> Compressor:
    """An object with `compress` as a compressor; `BadInput` if it cannot be called in any known way."""
    if calling.misfit(made.compress, [], [], state=None, budget=None, query=None) is None:
        if not isinstance(getattr(made, "name", None), str):
            raise BadInput(f"{type(made).__name__} has compress() and no name; give it one, as in name = {type(made).__name__.lower()!r}")
        found: Compressor = made
        return found
    if (why := calling.misfit(made.compress, [], **dict.fromkeys(_named(made)))) is not None:
        raise BadInput(f"{type(made).__name__} cannot be called: {why}; expected {_WAYS}")
    wrapped: Any = SimpleCompressor(made)
    found = wrapped
    return found


def _named(made: Any) -> list[str]:
    """What `compress` takes by name beside the messages or the text."""
    return [name for name in ("budget", "query") if name in list(inspect.signature(made.compress).parameters)[1:]]
