"""One conversation, three wires: bodies and replies of OpenAI chat, OpenAI Responses and Anthropic messages, turned
into each other.

The form in the middle is OpenAI's chat message (`role`, `content` text or parts or null, `tool_calls`, `tool_call_id`),
with thinking in `reasoning_content`. What a wire cannot say (signed thinking, cache marks, server tools) is lost on the
way to another wire and only there: a body of its own wire is never taken apart. Pure functions; odd values are passed
over, never raised upon.
"""

from context_bench.wire.conversation.providers import (
    ITEMS,
    MAX_TOKENS,
    PATHS,
    WIRES,
    Chat,
    ChatMessage,
    call_of,
    message_text,
    reply_message,
    to_body,
    to_chat,
    tool_calls_of,
    tools_used,
)

__all__ = [
    "Chat",
    "ChatMessage",
    "ITEMS",
    "MAX_TOKENS",
    "PATHS",
    "WIRES",
    "call_of",
    "message_text",
    "reply_message",
    "to_body",
    "to_chat",
    "tool_calls_of",
    "tools_used",
]
