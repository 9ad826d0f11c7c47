"""One conversation, three wires: bodies and replies of OpenAI chat, OpenAI Responses and Anthropic messages, turned
into each other.

The form in the middle is OpenAI's chat message (`role`, `content` text or parts or null, `tool_calls`, `tool_call_id`),
with thinking in `reasoning_content`. What a wire cannot say (signed thinking, cache marks, server tools) is lost on the
way to another wire and only there: a body of its own wire is never taken apart. Pure functions; odd values are passed
over, never raised upon. `wire.request` has the form in which requests are counted and compared; that one keeps what
each wire says, this one can be sent on any of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.wire.apis.shared import as_list, as_str, params_of
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES

ChatMessage = dict[str, Any]
#: What the wires call a part that is text.
TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(slots=True)
class Chat:
    """A request in the middle form. `params`: sampling settings and the like, by their OpenAI chat names; `tools` in
    chat form.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    model: str | None = None
    tools: list[Any] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)


def message_text(message: Mapping[str, Any]) -> str:
    """All text in a chat message's content, parts joined by newlines; thinking is not in it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [
        part if isinstance(part, str) else part.get("text")
        for part in as_list(content)
        if isinstance(part, str | Mapping)
    ]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def tool_calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of an assistant message: `{"id", "name", "arguments"}` with `arguments` as JSON text (of custom tools:
    their text).
    """
    found = []
    for call in as_list(message.get("tool_calls")):
        if isinstance(call, Mapping):
            inner: Mapping[str, Any] = next(
                (call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), Mapping)), {}
            )
            found.append(
                {
                    "id": as_str(call.get("id")),
                    "name": inner.get("name"),
                    "arguments": _arguments(inner.get("arguments", inner.get("input"))),
                }
            )
    if isinstance(old := message.get("function_call"), Mapping):
        found.append({"id": None, "name": old.get("name"), "arguments": _arguments(old.get("arguments"))})
    return found


def call_of(ident: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call as a chat message holds it."""
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": _arguments(arguments)}}


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "{}" if value is None else _as_json(value)


_as_json = json.JSONEncoder(ensure_ascii=False, default=repr).encode


def arguments_of(arguments: str) -> Any:
    """Arguments as an object; text that is none is kept under `_raw`."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"_raw": arguments}


def content_of(parts: list[Any]) -> Any:
    """One plain text as text, everything else as parts, nothing as null."""
    if len(parts) == 1 and isinstance(parts[0], Mapping):
        alone = parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text"
        return parts[0]["text"] if alone else parts
    return parts or None


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """A message's content as blocks of Anthropic's wire, texts of any wire as texts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_block(part) for part in as_list(content) if isinstance(part, str | Mapping)]


def _block(part: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.get("type") in TEXT_PARTS:
        return {"type": "text", "text": part.get("text", "")}
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if part.get("type") != "image_url" or not isinstance(url, str):
        return dict(part)
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "image", "source": {"type": "base64", "media_type": head[5:], "data": data}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def chat_tool(tool: Any) -> Any:
    """A tool of another wire in chat form; one that is none of a function stays as it is."""
    if not isinstance(tool, Mapping) or not ("input_schema" in tool or "parameters" in tool):
        return tool
    inner = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema", tool.get("parameters")),
    }
    return {"type": "function", "function": {key: value for key, value in inner.items() if value is not None}}


#: Settings that all wires call by the same name.
SHARED_PARAMS = ("temperature", "top_p", "stream")


def tools_used(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Chat tool definitions that fit the calls made, for recordings that keep none: names and argument names as seen,
    nothing required.
    """
    seen: dict[str, set[str]] = {}
    for message in messages:
        for call in tool_calls_of(message):
            if isinstance(call["name"], str) and call["name"]:
                value = arguments_of(call["arguments"])
                seen.setdefault(call["name"], set()).update(key for key in value if key != "_raw")
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Tool {name} of the recorded session.",
                "parameters": {"type": "object", "properties": {key: {} for key in sorted(seen[name])}},
            },
        }
        for name in sorted(seen)
    ]


#: Anthropic's wire does not go without a limit; this one is used where a request had none.
MAX_TOKENS = 8192


def from_anthropic(body: Mapping[str, Any]) -> Chat:
    """A body of Anthropic messages in the middle form."""
    system = _anthropic_parts(body.get("system"))
    messages: list[ChatMessage] = [{"role": "system", "content": content_of(system)}] if system else []
    for raw in as_list(body.get("messages")):
        messages.extend(anthropic_message(raw))
    params = {key: body[key] for key in (*SHARED_PARAMS, "max_tokens") if key in body}
    if "stop_sequences" in body:
        params["stop"] = body["stop_sequences"]
    if isinstance(choice := body.get("tool_choice"), Mapping):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        params["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}.get(str(choice.get("type")), named)
    return Chat(messages, as_str(body.get("model")), [chat_tool(tool) for tool in as_list(body.get("tools"))], params)


def _anthropic_parts(content: Any) -> list[Any]:
    """Blocks that are no tool calls or results, as chat parts."""
    parts: list[Any] = []
    for block in [content] if isinstance(content, str) else as_list(content):
        if isinstance(block, str):
            parts.append({"type": "text", "text": block})
        elif isinstance(block, Mapping):
            parts.append(_anthropic_part(block))
    return parts


def _anthropic_part(block: Mapping[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if block.get("type") == "image" and isinstance(source, Mapping):
        if isinstance(source.get("data"), str):
            url = f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"
            return {"type": "image_url", "image_url": {"url": url}}
        if isinstance(source.get("url"), str):
            return {"type": "image_url", "image_url": {"url": source["url"]}}
    return dict(block)


def anthropic_message(raw: Any) -> Iterable[ChatMessage]:
    """One message of theirs: the results of tools in it are messages of their own."""
    if not isinstance(raw, Mapping):
        return
    role, content = as_str(raw.get("role")) or "user", raw.get("content")
    run: list[Any] = []
    for block in [content] if isinstance(content, str) else as_list(content):
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            if run:
                yield _spoken(role, run)
            result = content_of(_anthropic_parts(block.get("content")))
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": "" if result is None else result,
            }
            run = []
        else:
            run.append(block)
    if run:
        yield _spoken(role, run)


def _spoken(role: str, blocks: list[Any]) -> ChatMessage:
    calls: list[Mapping[str, Any]] = []
    thoughts: list[Mapping[str, Any]] = []
    rest: list[Any] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        place = calls if kind == "tool_use" else thoughts if kind in ("thinking", "redacted_thinking") else rest
        place.append(block)
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
    if role in RESULT_ROLES:
        result = {
            "type": "tool_result",
            "tool_use_id": message.get("tool_call_id"),
            "content": blocks_of(message.get("content")),
        }
        return "user", [result]
    blocks = blocks_of(message.get("content"))
    for call in tool_calls_of(message):
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": arguments_of(call["arguments"])}
        )
    return ("assistant" if role == "assistant" else "user"), blocks


_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def from_responses(body: Mapping[str, Any]) -> Chat:
    """A body of OpenAI Responses in the middle form."""
    instructions, given = body.get("instructions"), body.get("input")
    messages: list[ChatMessage] = (
        [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    )
    messages += [{"role": "user", "content": given}] if isinstance(given, str) else merged_items(as_list(given))
    params = {key: body[key] for key in (*SHARED_PARAMS, "tool_choice", "parallel_tool_calls") if key in body}
    if "max_output_tokens" in body:
        params["max_completion_tokens"] = body["max_output_tokens"]
    tools = [chat_tool(tool) for tool in as_list(body.get("tools"))]
    return Chat(messages, as_str(body.get("model")), tools, params)


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
    if calls := [*as_list(first.get("tool_calls")), *as_list(second.get("tool_calls"))]:
        merged["tool_calls"] = calls
    return merged


def _item(item: Any) -> Iterable[ChatMessage]:
    if not isinstance(item, Mapping):
        return
    kind = as_str(item.get("type", "message"))
    if kind == "message":
        content = item.get("content")
        parts = (
            [{"type": "text", "text": content}]
            if isinstance(content, str)
            else [_response_part(part) for part in as_list(content)]
        )
        yield {"role": as_str(item.get("role")) or "user", "content": content_of(parts)}
    elif kind in _CALLS:
        name = "local_shell" if kind == "local_shell_call" else item.get("name")
        call = call_of(item.get("call_id"), name, item.get(_CALLS[kind]))
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind in _RESULTS:
        output = item.get("output")
        content = output if isinstance(output, str) else content_of([_response_part(part) for part in as_list(output)])
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": "" if content is None else content}
    elif kind == "reasoning":
        parts = [
            part for part in (*as_list(item.get("summary")), *as_list(item.get("content"))) if isinstance(part, Mapping)
        ]
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
    body.update(
        {key: chat.params[key] for key in (*SHARED_PARAMS, "tool_choice", "parallel_tool_calls") if key in chat.params}
    )
    if limit := chat.params.get("max_completion_tokens") or chat.params.get("max_tokens"):
        body["max_output_tokens"] = limit
    return body


def _items(message: ChatMessage) -> Iterable[dict[str, Any]]:
    role = message.get("role")
    if role in RESULT_ROLES:
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": message_text(message)}
        return
    kind = "output_text" if role == "assistant" else "input_text"
    blocks = blocks_of(message.get("content"))
    parts = [{"type": kind, "text": part["text"]} if part.get("type") == "text" else part for part in blocks]
    if parts:
        yield {"type": "message", "role": role, "content": parts}
    for call in tool_calls_of(message):
        yield {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}


def _response_tool(tool: Any) -> Any:
    inner = tool.get("function") if isinstance(tool, Mapping) else None
    return {"type": "function", **inner} if isinstance(inner, Mapping) else tool


def from_openai(body: Mapping[str, Any]) -> Chat:
    """A body of OpenAI chat in the middle form."""
    messages = [dict(message) for message in as_list(body.get("messages")) if isinstance(message, Mapping)]
    tools = [
        *as_list(body.get("tools")),
        *({"type": "function", "function": tool} for tool in as_list(body.get("functions"))),
    ]
    params = params_of(body, "messages", "model", "tools", "functions")
    return Chat(messages, as_str(body.get("model")), tools, params)


def as_openai(chat: Chat) -> dict[str, Any]:
    """A body of OpenAI chat."""
    body: dict[str, Any] = {"model": chat.model or "", "messages": chat.messages}
    if chat.tools:
        body["tools"] = chat.tools
    return {**body, **chat.params}


WIRES = ("openai-chat", "openai-responses", "anthropic")
PATHS = {"openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}
#: Where a wire's body keeps the conversation.
ITEMS = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}


def to_chat(wire: str, body: Mapping[str, Any]) -> Chat:
    """The body of a request on `wire` in the middle form. A wire that is not of a conversation gives no messages."""
    readers = {"openai-chat": from_openai, "openai-responses": from_responses, "anthropic": from_anthropic}
    return readers[wire](body) if wire in readers else Chat(model=as_str(body.get("model")))


def to_body(wire: str, chat: Chat) -> dict[str, Any]:
    """The request in the middle form as a body for `wire`."""
    return {"openai-chat": as_openai, "openai-responses": as_responses, "anthropic": as_anthropic}[wire](chat)


def reply_message(wire: str, body: Any) -> ChatMessage | None:
    """The assistant message in a provider's reply body, or `None` if there is none (an error, a body that is no
    reply).
    """
    if not isinstance(body, Mapping):
        return None
    if wire == "openai-chat":
        choice = next(iter(as_list(body.get("choices"))), None)
        message = choice.get("message") if isinstance(choice, Mapping) else None
        return {**message, "role": "assistant"} if isinstance(message, Mapping) else None
    if wire == "openai-responses":
        found = merged_items(as_list(body.get("output")))
    elif wire == "anthropic" and isinstance(body.get("content"), list):
        found = list(anthropic_message({"role": "assistant", "content": body["content"]}))
    else:
        return None
    return next((message for message in found if message["role"] == "assistant"), None)
