"""A conversation in the form in the middle: chat messages, the calls in them, their text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ChatMessage = dict[str, Any]
#: What the wires call a part that is text.
TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(slots=True)
class Chat:
    """A request in the middle form. `params`: sampling settings and the like, by their OpenAI chat names; `tools` in chat form."""

    messages: list[ChatMessage] = field(default_factory=list)
    model: str | None = None
    tools: list[Any] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)


def message_text(message: Mapping[str, Any]) -> str:
    """All text in a chat message's content, parts joined by newlines; thinking is not in it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text") for part in list_of(content) if isinstance(part, str | Mapping)]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def tool_calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of an assistant message: `{"id", "name", "arguments"}` with `arguments` as JSON text (of custom tools: their text)."""
    found = []
    for call in list_of(message.get("tool_calls")):
        if isinstance(call, Mapping):
            inner: Mapping[str, Any] = next((call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), Mapping)), {})
            found.append(
                {
                    "id": text_or_none(call.get("id")),
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
    return "{}" if value is None else json.dumps(value, ensure_ascii=False, default=repr)


def arguments_of(arguments: str) -> Any:
    """Arguments as an object; text that is none is kept under `_raw`."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return {"_raw": arguments}
    return value if isinstance(value, dict) else {"_raw": arguments}


def list_of(value: Any) -> list[Any]:
    """The items of a list; nothing of what is none."""
    return list(value) if isinstance(value, list | tuple) else []


def text_or_none(value: Any) -> str | None:
    """A text; nothing of what is none."""
    return value if isinstance(value, str) else None


def content_of(parts: list[Any]) -> Any:
    """One plain text as text, everything else as parts, nothing as null."""
    if not parts:
        return None
    if len(parts) == 1 and isinstance(parts[0], Mapping) and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """A message's content as blocks of Anthropic's wire, texts of any wire as texts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = []
    for part in list_of(content):
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        elif isinstance(part, Mapping) and part.get("type") in TEXT_PARTS:
            blocks.append({"type": "text", "text": part.get("text", "")})
        elif isinstance(part, Mapping) and part.get("type") == "image_url":
            blocks.append(_image_block(part))
        elif isinstance(part, Mapping):
            blocks.append(dict(part))
    return blocks


def _image_block(part: Mapping[str, Any]) -> dict[str, Any]:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str):
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
    """Chat tool definitions that fit the calls made, for recordings that keep none: names and argument names as seen, nothing required."""
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
