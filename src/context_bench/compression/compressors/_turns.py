"""Messages that belong together: a reply with its tool calls, and the results of these."""

from __future__ import annotations

from context_bench.compression.compressors._messages import Messages
from context_bench.wire.conversation import tool_calls_of

_RESULTS = ("tool", "function")


def whole_turns(messages: Messages) -> list[Messages]:
    """The messages in runs that may only be kept or dropped as a whole: one message, or a call with the results that follow it."""
    turns: list[Messages] = []
    for message in messages:
        if message.get("role") in _RESULTS and turns and (len(turns[-1]) > 1 or tool_calls_of(turns[-1][0])):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns
