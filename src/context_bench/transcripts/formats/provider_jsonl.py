"""Bodies of requests to OpenAI or Anthropic, one per line, alone or with the reply beside them, and finished
conversations; chat data sets too.

A line is `{"messages": […]}` (with `model`, `tools` … if known), a bare list of messages, a Responses body (`input`),
or an envelope with one of these under `request`, `body` or `params` and the reply under `response` or `reply`. A
conversation that ends with the assistant's message is a finished one: its requests are made turn by turn. Any other is
one request as it was sent, and lines that continue one another are one session. What makes a body Anthropic's: blocks
of its kinds, its way to write tools or instructions, its model names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import ANTHROPIC, OPENAI, Form, moment, usage_of
from context_bench.transcripts.requests import Logged, request_and_reply, request_log, session_named
from context_bench.wire.conversation import reply_message

_OPENAI_BODY = frozenset(
    {
        "messages",
        "tools",
        "functions",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "temperature",
        "max_tokens",
    }
)
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _openai(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _OPENAI_BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    wire = _openai_wire(body)
    if wire is None:
        return "no messages"
    line = _logged(wire, row, body, inner, OPENAI)
    line.whole = wire == "openai-chat" and line.reply is None and _finished(body["messages"])
    return line


def _logged(
    wire: str, row: Mapping[str, Any], body: dict[str, Any], inner: Mapping[str, Any] | None, counts: Form
) -> Logged:
    return Logged(
        wire=wire,
        body=body,
        reply=reply_message(wire, inner),
        usage=usage_of(inner.get("usage"), counts) if inner is not None else None,
        at=moment(row.get("timestamp")),
        session=session_named(row, body),
        meta={"line_id": row["id"]} if isinstance(row.get("id"), str | int) else {},
    )


def _openai_wire(body: Mapping[str, Any]) -> str | None:
    """Name of the OpenAI wire of a body; `None` if it is none of a conversation."""
    messages = body.get("messages")
    if (
        isinstance(messages, list)
        and messages
        and all(isinstance(m, Mapping) and m.get("role") in _ROLES for m in messages)
    ):
        return "openai-chat"
    given = body.get("input")
    if "messages" in body or not isinstance(body.get("model"), str) or not isinstance(given, str | list) or not given:
        return None
    spoken = isinstance(given, str) or all(
        isinstance(item, Mapping) and ("role" in item or "type" in item) for item in given
    )
    return "openai-responses" if spoken else None


def _finished(messages: list[Any]) -> bool:
    return len(messages) > 1 and messages[-1].get("role") == "assistant"


_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document")
_ANTHROPIC_BODY = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "thinking", "metadata"}
)


def _anthropic(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _ANTHROPIC_BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    if not _is_anthropic(body):
        return "no Anthropic messages"
    line = _logged("anthropic", row, body, inner, ANTHROPIC)
    line.whole = inner is None and _finished(body["messages"]) and "model" not in body
    return line


def _is_anthropic(body: Mapping[str, Any]) -> bool:
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


FORMAT = {
    "openai_jsonl": request_log(
        "openai-jsonl", 300, _openai, "OpenAI bodies, one per line: requests, logs with replies, chat data sets."
    ),
    "anthropic_jsonl": request_log(
        "anthropic-jsonl",
        290,
        _anthropic,
        "Anthropic bodies, one per line: requests, logs with replies, finished conversations.",
    ),
}
