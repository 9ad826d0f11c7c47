"""OpenAI chat: bodies that are in the middle form already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.wire.conversation.messages import Chat, list_of, text_or_none


def from_openai(body: Mapping[str, Any]) -> Chat:
    """A body of OpenAI chat in the middle form."""
    messages = [dict(message) for message in list_of(body.get("messages")) if isinstance(message, Mapping)]
    tools = [*list_of(body.get("tools")), *({"type": "function", "function": tool} for tool in list_of(body.get("functions")))]
    told = ("messages", "model", "tools", "functions")
    return Chat(messages, text_or_none(body.get("model")), tools, {key: value for key, value in body.items() if key not in told})


def as_openai(chat: Chat) -> dict[str, Any]:
    """A body of OpenAI chat."""
    body: dict[str, Any] = {"model": chat.model or "", "messages": chat.messages}
    if chat.tools:
        body["tools"] = chat.tools
    return {**body, **chat.params}
