"""Anthropic messages as chat messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from context_bench.wire.conversation.messages import (
    SHARED_PARAMS,
    Chat,
    ChatMessage,
    arguments_of,
    blocks_of,
    call_of,
    chat_tool,
    content_of,
    list_of,
    text_or_none,
    tool_calls_of,
)
from context_bench.wire.request import SYSTEM_ROLES

#: Anthropic's wire does not go without a limit; this one is used where a request had none.
MAX_TOKENS = 8192


def from_anthropic(body: Mapping[str, Any]) -> Chat:
    """A body of Anthropic messages in the middle form."""
    system = _anthropic_parts(body.get("system"))
    messages: list[ChatMessage] = [{"role": "system", "content": content_of(system)}] if system else []
    for raw in list_of(body.get("messages")):
        messages.extend(anthropic_message(raw))
    params = {key: body[key] for key in (*SHARED_PARAMS, "max_tokens") if key in body}
    if "stop_sequences" in body:
        params["stop"] = body["stop_sequences"]
    if isinstance(choice := body.get("tool_choice"), Mapping):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        params["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}.get(str(choice.get("type")), named)
    return Chat(messages, text_or_none(body.get("model")), [chat_tool(tool) for tool in list_of(body.get("tools"))], params)


def _anthropic_parts(content: Any) -> list[Any]:
    """Blocks that are no tool calls or results, as chat parts."""
    parts: list[Any] = []
    for block in [content] if isinstance(content, str) else list_of(content):
        if isinstance(block, str):
            parts.append({"type": "text", "text": block})
        elif isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
            parts.append({"type": "text", "text": block["text"]})
        elif isinstance(block, Mapping) and block.get("type") == "image":
            parts.append(_image(block))
        elif isinstance(block, Mapping):
            parts.append(dict(block))
    return parts


def _image(block: Mapping[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        return {"type": "image_url", "image_url": {"url": f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"}}
    if isinstance(source, Mapping) and isinstance(source.get("url"), str):
        return {"type": "image_url", "image_url": {"url": source["url"]}}
    return dict(block)


def anthropic_message(raw: Any) -> Iterable[ChatMessage]:
    """One message of theirs: the results of tools in it are messages of their own."""
    if not isinstance(raw, Mapping):
        return
    role, content = text_or_none(raw.get("role")) or "user", raw.get("content")
    run: list[Any] = []
    for block in [content] if isinstance(content, str) else list_of(content):
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            if run:
                yield _spoken(role, run)
            result = content_of(_anthropic_parts(block.get("content")))
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": "" if result is None else result}
            run = []
        else:
            run.append(block)
    if run:
        yield _spoken(role, run)


def _spoken(role: str, blocks: list[Any]) -> ChatMessage:
    calls = [b for b in blocks if isinstance(b, Mapping) and b.get("type") == "tool_use"]
    thoughts = [b for b in blocks if isinstance(b, Mapping) and b.get("type") in ("thinking", "redacted_thinking")]
    rest = [b for b in blocks if not any(b is other for other in (*calls, *thoughts))]
    message: ChatMessage = {"role": role, "content": content_of(_anthropic_parts(rest))}
    if thought := "\n".join(text for b in thoughts if isinstance(text := b.get("thinking"), str) and text):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [call_of(b.get("id"), b.get("name"), b.get("input")) for b in calls]
    return message


def as_anthropic(chat: Chat) -> dict[str, Any]:
    """A body of Anthropic messages."""
    system: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for message in chat.messages:
        if message.get("role") in SYSTEM_ROLES and not messages:
            system += [part for part in blocks_of(message.get("content")) if part.get("type") == "text"]
        else:
            role, blocks = _turn(message)
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
    limit = chat.params.get("max_tokens") or chat.params.get("max_completion_tokens") or MAX_TOKENS
    body: dict[str, Any] = {"model": chat.model or "", "max_tokens": limit, "messages": messages}
    if system:
        body["system"] = system
    if chat.tools:
        body["tools"] = [_anthropic_tool(tool) for tool in chat.tools]
    body.update({key: chat.params[key] for key in SHARED_PARAMS if key in chat.params})
    if "stop" in chat.params:
        stop = chat.params["stop"]
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if (choice := _anthropic_choice(chat.params.get("tool_choice"))) is not None:
        body["tool_choice"] = choice
    return body


def _anthropic_choice(choice: Any) -> dict[str, Any] | None:
    if isinstance(choice, str):
        return {"type": {"required": "any"}.get(choice, choice)}
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        return {"type": "tool", "name": choice["function"].get("name")}
    return None


def _anthropic_tool(tool: Any) -> Any:
    inner = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(inner, Mapping):
        return tool
    made = {"name": inner.get("name"), "description": inner.get("description")}
    schema = inner.get("parameters") or {"type": "object", "properties": {}}
    return {**{key: value for key, value in made.items() if value is not None}, "input_schema": schema}


def _turn(message: ChatMessage) -> tuple[str, list[dict[str, Any]]]:
    """The role and the blocks of a message on Anthropic's wire, where a tool's result is said by the user."""
    role = message.get("role")
    if role in ("tool", "function"):
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": blocks_of(message.get("content"))}
        return "user", [result]
    blocks = blocks_of(message.get("content"))
    for call in tool_calls_of(message):
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": arguments_of(call["arguments"])})
    return ("assistant" if role == "assistant" else "user"), blocks
