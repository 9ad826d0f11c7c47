"""Requests and replies of the three wires as what was said, called and returned, in order, with nothing lost that a trace needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.transcripts.values import mapping, sequence, text, texts
from context_bench.wire.conversation import tool_calls_of

_TEXTS = ("text", "input_text", "output_text")
_USES = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_result", "mcp_tool_result")
_CALLED = ("function_call", "custom_tool_call", "local_shell_call")
_RETURNED = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


Asked = tuple[str | None, Any, Any, str | None]


@dataclass(slots=True)
class Told:
    """Texts that the model was given: instructions, a task, or what its last answer led to."""

    parts: list[str]


@dataclass(slots=True)
class Said:
    """A part of an answer of the model. `calls`: (id, tool, arguments, folder it runs in)."""

    text: str
    calls: list[Asked] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """What a call returned."""

    ident: str | None
    content: str
    failed: bool | None = None


Spoken = Told | Said | Result


def spoken(wire: str, item: Any) -> Iterator[Spoken]:
    """What one item of a conversation is; an item of a kind that does not matter is nothing."""
    if isinstance(item, str):
        yield Told([item])
    elif isinstance(item, Mapping):
        yield from _BY_WIRE[wire](item)


def instructions(wire: str, body: Mapping[str, Any]) -> list[str]:
    """What a body tells the model outside of the conversation."""
    given = body.get("system") if wire == "anthropic" else body.get("instructions") if wire == "openai-responses" else None
    return _parts(given)


def reply_items(wire: str, body: Any) -> list[Any]:
    """The items that the next request will repeat of a reply."""
    if wire == "openai-chat":
        choice = mapping(next(iter(sequence(mapping(body).get("choices"))), None))
        message = mapping(choice.get("message"))
        return [{**message, "role": "assistant"}] if message else []
    if wire == "openai-responses":
        return sequence(mapping(body).get("output"))
    content = mapping(body).get("content")
    return [{"role": "assistant", "content": content}] if isinstance(content, list) else []


def _chat(message: Mapping[str, Any]) -> Iterator[Spoken]:
    role = message.get("role")
    if role == "assistant":
        calls: list[Asked] = [(text(call["id"]), call["name"], call["arguments"], None) for call in tool_calls_of(message)]
        yield Said(texts(message.get("content")) or "", calls)
    elif role in ("tool", "function"):
        yield Result(text(message.get("tool_call_id")), texts(message.get("content")) or "")
    else:
        yield Told(_parts(message.get("content")))


def _responses(item: Mapping[str, Any]) -> Iterator[Spoken]:
    kind = item.get("type")
    if kind in _CALLED:
        action = mapping(item.get("action"))
        name = item.get("name") or "local_shell"
        arguments = item.get("arguments", item.get("input", dict(action)))
        yield Said("", [(text(item.get("call_id")) or text(item.get("id")), name, arguments, text(action.get("working_directory")))])
    elif kind in _RETURNED:
        given = item.get("output")
        inner = mapping(given)
        yield Result(text(item.get("call_id")), texts(inner.get("content", inner.get("output")) if inner else given) or "")
    elif item.get("role") == "assistant":
        yield Said(texts(item.get("content")) or "")
    elif "role" in item:
        yield Told(_parts(item.get("content")))


def _anthropic(message: Mapping[str, Any]) -> Iterator[Spoken]:
    blocks = [mapping(block) for block in sequence(message.get("content"))]
    if message.get("role") == "assistant":
        calls: list[Asked] = [(text(b.get("id")), b.get("name"), b.get("input"), None) for b in blocks if b.get("type") in _USES]
        yield Said("\n".join(_parts(message.get("content"))), calls)
        return
    for block in blocks:
        if block.get("type") in _RESULTS:
            yield Result(text(block.get("tool_use_id")), texts(block.get("content")) or "", True if block.get("is_error") else None)
    if parts := _parts(message.get("content")):
        yield Told(parts)


def _parts(content: Any) -> list[str]:
    """The texts of a content, part by part."""
    if isinstance(content, str):
        return [content]
    found = [part if isinstance(part, str) else mapping(part).get("text") for part in sequence(content) if _plain(part)]
    return [part for part in found if isinstance(part, str)]


def _plain(part: Any) -> bool:
    return isinstance(part, str) or mapping(part).get("type") in _TEXTS


_BY_WIRE = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _anthropic}
