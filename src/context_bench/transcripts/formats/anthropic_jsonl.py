"""Anthropic bodies, one per line: requests of the messages wire, alone or with the reply beside them, and finished
conversations.

Envelopes as in `openai_jsonl`. What makes a body Anthropic's: blocks of its kinds, its way to write tools or
instructions, its model names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.requests import Logged, request_and_reply, request_log, session_named
from context_bench.wire.conversation import reply_message

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document")
_BODY = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "thinking", "metadata"}
)


def logged(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    if not is_body(body):
        return "no Anthropic messages"
    messages = body["messages"]
    return Logged(
        wire="anthropic",
        body=body,
        reply=reply_message("anthropic", inner),
        usage=usage_of(inner.get("usage"), ANTHROPIC) if inner is not None else None,
        at=moment(row.get("timestamp")),
        session=session_named(row, body),
        whole=inner is None and len(messages) > 1 and messages[-1].get("role") == "assistant" and "model" not in body,
        meta={"line_id": row["id"]} if isinstance(row.get("id"), str | int) else {},
    )


def is_body(body: Mapping[str, Any]) -> bool:
    """True if a body is of Anthropic's wire and of no other."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
        return False
    if not all(m.get("role") in ("user", "assistant") for m in messages) or any("tool_calls" in m for m in messages):
        return False
    if (
        "system" in body
        or "anthropic_version" in body
        or str(body.get("model") or "").lower().rpartition("/")[2].startswith("claude")
    ):
        return True
    tools = body["tools"] if isinstance(body.get("tools"), list) else []
    if any(isinstance(tool, Mapping) and "input_schema" in tool for tool in tools):
        return True
    blocks = [block for m in messages if isinstance(m.get("content"), list) for block in m["content"]]
    return any(isinstance(block, Mapping) and block.get("type") in _BLOCKS for block in blocks)


FORMAT = request_log("anthropic-jsonl", 290, logged)
