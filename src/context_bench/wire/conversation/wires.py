"""The wires: where their conversations are posted and kept, and the way between each and the middle form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.wire.conversation.anthropic import anthropic_message, as_anthropic, from_anthropic
from context_bench.wire.conversation.messages import Chat, ChatMessage, list_of, text_or_none
from context_bench.wire.conversation.openai import as_openai, from_openai
from context_bench.wire.conversation.responses import as_responses, from_responses, merged_items

WIRES = ("openai-chat", "openai-responses", "anthropic")
PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}
#: Where a wire's body keeps the conversation.
ITEMS = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}


def to_chat(wire: str, body: Mapping[str, Any]) -> Chat:
    """The body of a request on `wire` in the middle form. A wire that is not of a conversation gives no messages."""
    readers = {"openai-chat": from_openai, "openai-responses": from_responses, "anthropic": from_anthropic}
    return readers[wire](body) if wire in readers else Chat(model=text_or_none(body.get("model")))


def to_body(wire: str, chat: Chat) -> dict[str, Any]:
    """The request in the middle form as a body for `wire`."""
    return {"openai-chat": as_openai, "openai-responses": as_responses, "anthropic": as_anthropic}[wire](chat)


def reply_message(wire: str, body: Any) -> ChatMessage | None:
    """The assistant message in a provider's reply body, or `None` if there is none (an error, a body that is no reply)."""
    if not isinstance(body, Mapping):
        return None
    if wire == "openai-chat":
        choice = next(iter(list_of(body.get("choices"))), None)
        message = choice.get("message") if isinstance(choice, Mapping) else None
        return {**message, "role": "assistant"} if isinstance(message, Mapping) else None
    if wire == "openai-responses":
        found = merged_items(list_of(body.get("output")))
    elif wire == "anthropic" and isinstance(body.get("content"), list):
        found = list(anthropic_message({"role": "assistant", "content": body["content"]}))
    else:
        return None
    return next((message for message in found if message["role"] == "assistant"), None)
