"""The last messages, whole: the way in which most chat programs treat a conversation that grows too long.

A reply with tool calls and the results of these stay or go together.
"""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.wire.conversation import tool_calls_of

COMPRESSORS = {"window": "LastMessages"}

_RESULTS = ("tool", "function")


def whole_turns(messages: Messages) -> list[Messages]:
    """The messages in runs that may only be kept or dropped as a whole: one message, or a call with the results that
    follow it.
    """
    turns: list[Messages] = []
    for message in messages:
        if message.get("role") in _RESULTS and turns and (len(turns[-1]) > 1 or tool_calls_of(turns[-1][0])):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


class LastMessages:
    """Keeps the last `n` messages, or as many of the last as fit in a budget of tokens. A tool's result never stays
    without its call.
    """

    name = "window"
    deterministic = True

    def __init__(self, n: int = 20, model: str | None = None) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise BadInput(f"window: n={n!r} is not a number of messages (0, 1, 2 …)")
        self.n, self.model = n, model

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
        kept: Messages = []
        for turn in reversed(whole_turns(prefix)):
            longer = [*turn, *kept]
            if len(longer) > self.n if budget is None else tokens_of(longer, counter) > budget:
                break
            kept = longer
        return Compressed(kept, tokens_of(prefix, counter), tokens_of(kept, counter)), state
