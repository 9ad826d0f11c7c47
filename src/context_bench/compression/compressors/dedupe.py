"""Text that was shown before is shown once: the last time in full, before that as a pointer to it."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.wire.conversation import message_text

COMPRESSORS = {"dedupe": "Dedupe"}

_RESULTS = ("tool", "function")
_POINTER = "[the same as a later result]"


class Dedupe:
    """Replaces a tool's result by a pointer where a later one holds all of its lines in order, and is at least `least`
    characters long.

    Nothing is lost, so a budget is ignored.
    """

    name = "dedupe"
    deterministic = True
    ignores_budget = True

    def __init__(self, least: int = 80, model: str | None = None) -> None:
        if isinstance(least, bool) or not isinstance(least, int) or least < len(_POINTER):
            raise BadInput(f"dedupe: least={least!r} is not a number of characters of at least {len(_POINTER)}")
        self.least, self.model = least, model

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        counter = counter_for(self.model)
        shown = list(prefix)
        later = [message_text(message) for message in tail if message.get("role") in _RESULTS]
        for at in range(len(prefix) - 1, -1, -1):
            if prefix[at].get("role") not in _RESULTS:
                continue
            text = message_text(prefix[at])
            if len(text) >= self.least and any(_within(text, other) for other in later):
                shown[at] = {**prefix[at], "content": _POINTER}
            else:
                later.append(text)
        return Compressed(shown, tokens_of(prefix, counter), tokens_of(shown, counter)), state


def _within(text: str, other: str) -> bool:
    """The whole text stands in the other, from the beginning of a line to the end of one."""
    at = other.find(text)
    while at >= 0:
        end = at + len(text)
        if (at == 0 or other[at - 1] == "\n") and (end == len(other) or other[end] == "\n"):
            return True
        at = other.find(text, at + 1)
    return False
