"""OpenAI Responses: items as chat messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from context_bench.wire.conversation.messages import (
    SHARED_PARAMS,
    TEXT_PARTS,
    Chat,
    ChatMessage,
    blocks_of,
    call_of,
    chat_tool,
    content_of,
    list_of,
    message_text,
    text_or_none,
    tool_calls_of,
)
from context_bench.wire.request import SYSTEM_ROLES

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def from_responses(body: Mapping[str, Any]) -> Chat:
    """A body of OpenAI Responses in the middle form."""
    instructions, given = body.get("instructions"), body.get("input")
    messages: list[ChatMessage] = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    messages += [{"role": "user", "content": given}] if isinstance(given, str) else merged_items(list_of(given))
    params = {key: body[key] for key in (*SHARED_PARAMS, "tool_choice", "parallel_tool_calls") if key in body}
    if "max_output_tokens" in body:
        params["max_completion_tokens"] = body["max_output_tokens"]
    tools = [chat_tool(tool) for tool in list_of(body.get("tools"))]
    return Chat(messages, text_or_none(body.get("model")), tools, params)


def merged_items(items: list[Any]) -> list[ChatMessage]:
    """Items as chat messages; what the assistant says and calls in one go is one message."""
    messages: list[ChatMessage] = []
    for item in items:
        for message in _item(item):
            if message["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
                messages[-1] = _joined(messages[-1], message)
            else:
                messages.append(message)
    return messages


def _joined(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    content = [*blocks_of(first.get("content")), *blocks_of(second.get("content"))]
    merged: ChatMessage = {"role": "assistant", "content": content_of(content)}
    if thoughts := [m["reasoning_content"] for m in (first, second) if m.get("reasoning_content")]:
        merged["reasoning_content"] = "\n".join(thoughts)
    if calls := [*list_of(first.get("tool_calls")), *list_of(second.get("tool_calls"))]:
        merged["tool_calls"] = calls
    return merged


def _item(item: Any) -> Iterable[ChatMessage]:
    if not isinstance(item, Mapping):
        return
    kind = text_or_none(item.get("type", "message"))
    if kind == "message":
        content = item.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [_response_part(part) for part in list_of(content)]
        yield {"role": text_or_none(item.get("role")) or "user", "content": content_of(parts)}
    elif kind in _CALLS:
        yield {"role": "assistant", "content": None, "tool_calls": [call_of(item.get("call_id"), item.get("name"), item.get(_CALLS[kind]))]}
    elif kind == "local_shell_call":
        yield {"role": "assistant", "content": None, "tool_calls": [call_of(item.get("call_id"), "local_shell", item.get("action"))]}
    elif kind in _RESULTS:
        output = item.get("output")
        content = output if isinstance(output, str) else content_of([_response_part(part) for part in list_of(output)])
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": "" if content is None else content}
    elif kind == "reasoning":
        parts = [part for part in (*list_of(item.get("summary")), *list_of(item.get("content"))) if isinstance(part, Mapping)]
        if thought := "\n".join(text for part in parts if isinstance(text := part.get("text"), str) and text):
            yield {"role": "assistant", "content": None, "reasoning_content": thought}


def _response_part(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, Mapping) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return part


def as_responses(chat: Chat) -> dict[str, Any]:
    """A body of OpenAI Responses."""
    items: list[dict[str, Any]] = []
    for message in chat.messages:
        items.extend(_items(message))
    body: dict[str, Any] = {"model": chat.model or "", "input": items, "store": False}
    if items and items[0].get("role") in SYSTEM_ROLES and isinstance(chat.messages[0].get("content"), str):
        body.update(instructions=chat.messages[0]["content"], input=items[1:])
    if chat.tools:
        body["tools"] = [_response_tool(tool) for tool in chat.tools]
    body.update({key: chat.params[key] for key in (*SHARED_PARAMS, "tool_choice", "parallel_tool_calls") if key in chat.params})
    if limit := chat.params.get("max_completion_tokens") or chat.params.get("max_tokens"):
        body["max_output_tokens"] = limit
    return body


def _items(message: ChatMessage) -> Iterable[dict[str, Any]]:
    role = message.get("role")
    if role in ("tool", "function"):
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": message_text(message)}
        return
    kind = "output_text" if role == "assistant" else "input_text"
    parts = []
    for part in blocks_of(message.get("content")):
        if part.get("type") == "text":
            parts.append({"type": kind, "text": part["text"]})
        else:
            parts.append(part)
    if parts:
        yield {"type": "message", "role": role, "content": parts}
    for call in tool_calls_of(message):
        yield {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}


def _response_tool(tool: Any) -> Any:
    inner = tool.get("function") if isinstance(tool, Mapping) else None
    return {"type": "function", **inner} if isinstance(inner, Mapping) else tool
