"""What a filter, a service or a system gives back, as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.compressors._messages import Messages
from context_bench.core.errors import BadReply


def result_of(value: Any, who: str) -> Messages:
    """A text, a list of messages, or `{"messages": …}` or `{"text": …}`; anything else is `BadReply`."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}] if value.strip() else []
    if isinstance(value, Mapping):
        for name in ("messages", "text"):
            if value.get(name) is not None:
                return result_of(value[name], who)
        raise BadReply(f"{who} gave an object without messages or text; it has {', '.join(map(str, value)) or 'nothing'}")
    if not isinstance(value, list):
        raise BadReply(f"{who} gave {type(value).__name__}, expected messages or a text")
    for number, message in enumerate(value, 1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadReply(f"{who}: message {number} is {str(message)[:80]!r}, expected an object with a role")
        if not isinstance(message.get("content"), str | list | None):
            raise BadReply(f"{who}: the content of message {number} is {type(message['content']).__name__}, expected a text or parts")
    return [dict(message) for message in value]
