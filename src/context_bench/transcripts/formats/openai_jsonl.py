"""OpenAI bodies, one per line: requests of either OpenAI wire, logs with the reply beside the request, and chat data
sets.

A line is `{"messages": […]}` (with `model`, `tools` … if known), a bare list of messages, a Responses body (`input`),
or an envelope with one of these under `request`, `body` or `params` and the reply under `response` or `reply`. A
conversation that ends with the assistant's message is a finished one: its requests are made turn by turn. Any other is
one request as it was sent, and lines that continue one another are one session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.requests import Logged, request_and_reply, request_log, session_named
from context_bench.wire.conversation import reply_message

_BODY = frozenset(
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


def logged(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    wire = wire_of_body(body)
    if wire is None:
        return "no messages"
    reply = reply_message(wire, inner)
    return Logged(
        wire=wire,
        body=body,
        reply=reply,
        usage=usage_of(inner.get("usage"), OPENAI) if inner is not None else None,
        at=moment(row.get("timestamp")),
        session=session_named(row, body),
        whole=wire == "openai-chat" and reply is None and _finished(body["messages"]),
        meta={"line_id": row["id"]} if isinstance(row.get("id"), str | int) else {},
    )


def wire_of_body(body: Mapping[str, Any]) -> str | None:
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


FORMAT = request_log("openai-jsonl", 300, logged)
