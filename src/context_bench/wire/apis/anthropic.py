"""Anthropic messages (and `count_tokens`): requests, replies and streams, read and written.

In the neutral form the top-level `system` is a first message of role `system`, and every `tool_result` block is a
message of role `tool` of its own, so that the same conversation has the same anatomy on every wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.keys import canonical_json
from context_bench.core.numbers import ANTHROPIC, count, usage_of
from context_bench.core.records import Usage
from context_bench.wire.apis.shared import (
    OBJECT,
    Fault,
    Grammar,
    Pieces,
    Reply,
    StreamReader,
    arguments_text,
    arguments_value,
    as_dict,
    as_list,
    as_str,
    filled,
    params_of,
    pieces_of,
    reply_id,
    require_body,
    sse,
    text_part,
    unknown_part,
)
from context_bench.wire.request import Part, WireMessage, WireRequest

_STOP = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_THOUGHTS = ("thinking", "redacted_thinking")
_STOP_BACK = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def parse_request(body: Mapping[str, Any]) -> WireRequest:
    """The body of a `POST /messages` or `/messages/count_tokens` in neutral form."""
    system = body.get("system")
    messages = [WireMessage("system", _blocks(system)[0])] if system else []
    for raw in as_list(body.get("messages")):
        messages.extend(_messages(raw))
    return WireRequest(
        wire="anthropic",
        model=as_str(body.get("model")),
        messages=messages,
        tools=as_list(body.get("tools")),
        params=params_of(body, "messages", "system", "tools", "model", "stream"),
        stream=bool(body.get("stream")),
    )


def _messages(raw: Any) -> Iterator[WireMessage]:
    """One raw message; `tool_result` blocks become messages of their own, in order."""
    if not isinstance(raw, OBJECT):
        yield WireMessage("unknown", [unknown_part(raw)])
        return
    role, content = as_str(raw.get("role")) or "unknown", raw.get("content")
    run: list[Any] = []
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, OBJECT) and block.get("type") == "tool_result":
            if run:
                yield _message(role, run)
            yield _tool_result(block)
            run = []
        else:
            run.append(block)
    if run or content == []:
        yield _message(role, run)


def _message(role: str, content: list[Any]) -> WireMessage:
    parts, calls = _blocks(content)
    return WireMessage(role, parts, calls)


def _tool_result(block: Mapping[str, Any]) -> WireMessage:
    parts, _ = _blocks(block.get("content"))
    mark = block.get("cache_control")
    if mark and parts:
        parts[-1].cache_control = parts[-1].cache_control or mark
    elif mark:
        parts = [Part("text", "", block, mark)]
    failed = block.get("is_error") is True
    return WireMessage("tool", parts, tool_call_id=as_str(block.get("tool_use_id")), failed=failed)


def _blocks(content: Any) -> tuple[list[Part], list[dict[str, Any]]]:
    """Content blocks → parts and tool calls; a `tool_use` keeps an empty part in its place (its text is counted as a
    call).
    """
    parts: list[Part] = []
    calls: list[dict[str, Any]] = []
    for block in content if isinstance(content, list) else [content]:
        if block is None:
            continue
        if isinstance(block, str):
            parts.append(Part("text", block))
        elif not isinstance(block, OBJECT):
            parts.append(unknown_part(block))
        elif block.get("type") == "tool_use":
            calls.append({"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")})
            parts.append(text_part("tool_use", "", block))
        else:
            parts.extend(_other(block))
    return parts, calls


def _other(block: Mapping[str, Any]) -> Iterator[Part]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        yield text_part("text", block["text"], block)
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        yield text_part("reasoning", block["thinking"], block)
    elif kind == "document" and (texts := _document_texts(block)):
        yield from texts
    elif kind == "search_result":
        inner, _ = _blocks(block.get("content"))
        yield from [text_part("text", str(block.get("title") or ""), block), *inner]
    else:
        yield unknown_part(block)


def _document_texts(block: Mapping[str, Any]) -> list[Part]:
    """A document given as text is text; one given as a file is not ours to count."""
    source = as_dict(block.get("source"))
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return [text_part("document", source["data"], block)]
    if source.get("type") == "content":
        parts, _ = _blocks(source.get("content"))
        if parts and block.get("cache_control"):
            parts[-1].cache_control = parts[-1].cache_control or block["cache_control"]
        return parts
    return []


def parse_reply(body: Any) -> Reply:
    """A `message` object."""
    body = require_body(body, expects="'content'")
    content = body.get("content")
    if not isinstance(content, list):
        raise BadReply(f"Unexpected response: no list 'content' among the keys {sorted(map(str, body))[:12]}")
    builder = _Builder(Pieces())
    for index, block in enumerate(content):
        builder.start(index, as_dict(block))
    reply = builder.reply()
    reply.finish_reason, reply.stop = _stop(body.get("stop_reason")), as_str(body.get("stop_reason"))
    reply.model = as_str(body.get("model"))
    reply.usage, reply.raw_usage = usage_of(body.get("usage"), ANTHROPIC), as_dict(body.get("usage")) or None
    reply.extras |= _own(body, as_dict(body.get("usage")))
    if body.get("role") != "assistant" or body.get("type") != "message":
        reply.faults = (Fault("field", "a message without its type or the role of the assistant"),)
    if any(as_dict(each).get("type") == "tool_use" and not isinstance(each.get("input"), OBJECT) for each in content):
        reply.faults += (Fault("arguments", "the input of a call is no object"),)
    return reply


def _own(message: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a message beside its content that only this API has."""
    container = as_dict(message.get("container")).get("id")
    searches = {name: n for name, n in as_dict(usage.get("server_tool_use")).items() if n}
    stop = message.get("stop_sequence")
    return filled(container=container, stop_sequence=stop, server_tool_use=searches)


def _stop(raw: Any) -> str | None:
    return _STOP.get(raw, raw) if isinstance(raw, str) else None


class _Builder:
    """Content blocks by index, whole or in deltas."""

    def __init__(self, pieces: Pieces) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces = pieces

    def start(self, index: int, block: dict[str, Any]) -> bool:
        """Open a block; true if it already says something."""
        kind = block.get("type")
        entry: dict[str, Any] = {
            "type": kind,
            "text": as_str(block.get("thinking" if kind == "thinking" else "text")) or "",
        }
        if kind == "tool_use":
            entry.update(id=block.get("id"), name=block.get("name"), input=block.get("input"))
        elif kind == "text":
            entry["citations"] = as_list(block.get("citations"))
        elif kind not in _THOUGHTS:
            entry["own"] = {name: value for name, value in block.items() if name != "input"}
            entry["input"] = block.get("input")
        if kind in _THOUGHTS:
            entry["signature"] = as_str(block.get("signature" if kind == "thinking" else "data")) or ""
        if index in self._blocks:  # it is begun again
            self._pieces.taken(index)
            self._pieces.taken((index, "signature"))
        else:
            self._pieces.begin()
        self._blocks[index] = entry
        return bool(entry["text"] or kind == "tool_use")

    def delta(self, index: int, delta: dict[str, Any]) -> bool:
        """Add to a block; true if something was said."""
        kind = delta.get("type")
        if kind == "signature_delta" and isinstance(delta.get("signature"), str):
            self._block(index, "thinking")
            self._pieces.add((index, "signature"), delta["signature"])
        if kind == "citations_delta" and "citations" in self._blocks.get(index, {}):
            self._blocks[index]["citations"].append(delta.get("citation"))
        name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(str(kind))
        piece = as_str(delta.get(name)) if name else None
        if not piece:
            return False
        known = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use"}
        self._block(index, known[str(kind)])
        self._pieces.add(index, piece)
        return True

    def _block(self, index: int, kind: str) -> None:
        """Have a block at this place."""
        if index not in self._blocks:
            self._pieces.begin()
            self._blocks[index] = {"type": kind, "text": ""}

    def reply(self) -> Reply:
        """The reply of all blocks together."""
        for index, entry in self._blocks.items():
            entry["text"] = self._pieces.taken(index, entry["text"])
            if signature := self._pieces.taken((index, "signature"), entry.get("signature")):
                entry["signature"] = signature
        entries = [self._blocks[index] for index in sorted(self._blocks)]
        texts = [entry["text"] for entry in entries if entry["type"] == "text"]
        thoughts = [entry["text"] for entry in entries if entry["type"] == "thinking"]
        calls = [
            {"id": entry.get("id"), "name": entry.get("name"), "arguments": _arguments(entry)}
            for entry in entries
            if entry["type"] == "tool_use"
        ]
        return Reply(
            text="".join(texts) if texts else None,
            tool_calls=calls,
            reasoning="".join(thoughts) if thoughts else None,
            signatures=[entry["signature"] for entry in entries if entry.get("signature")],
            blocks=[str(entry["type"]) for entry in entries],
            extras=filled(
                citations=[each for entry in entries for each in entry.get("citations", [])],
                own_blocks=[[entry["own"], _arguments(entry)] for entry in entries if "own" in entry],
            ),
        )


def _arguments(entry: dict[str, Any]) -> str:
    """Tool input as compact JSON text, the same whether it came whole or in pieces."""
    if not entry["text"]:
        return arguments_text(entry.get("input"))
    value = arguments_value(entry["text"])
    return entry["text"] if isinstance(value, dict) and value.keys() == {"_raw"} else canonical_json(value)


class AnthropicStream(StreamReader):
    """Puts a message together from its events."""

    def __init__(self) -> None:
        super().__init__()
        self._builder = _Builder(self._pieces)
        self._head = Reply()
        self._usage: dict[str, Any] = {}
        self._own: dict[str, Any] = {}

    def put_together(self) -> Reply:
        reply = self._builder.reply()
        reply.model, reply.finish_reason, reply.stop = self._head.model, self._head.finish_reason, self._head.stop
        reply.usage, reply.raw_usage = usage_of(self._usage, ANTHROPIC), dict(self._usage) or None
        reply.extras |= _own(self._own, self._usage)
        return reply

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        kind = as_str(body.get("type")) or name
        index = body["index"] if isinstance(body.get("index"), int) else 0
        if kind == "message_start":
            message = as_dict(body.get("message"))
            self._head.model = as_str(message.get("model"))
            self._own |= filled(container=message.get("container"))
            self._bill(as_dict(message.get("usage")))
        elif kind == "content_block_start":
            self.started = self._builder.start(index, as_dict(body.get("content_block"))) or self.started
        elif kind == "content_block_delta":
            self.started = self._builder.delta(index, as_dict(body.get("delta"))) or self.started
        elif kind == "message_delta":
            self._head.stop = as_str(as_dict(body.get("delta")).get("stop_reason")) or self._head.stop
            self._head.finish_reason = _stop(self._head.stop)
            delta = as_dict(body.get("delta"))
            self._own |= filled(stop_sequence=delta.get("stop_sequence"), container=delta.get("container"))
            self._bill(as_dict(body.get("usage")))
        elif kind == "message_stop":
            self.complete = self.over = True
        elif kind == "error" or body.get("error"):
            self.fail(body.get("error") or body)

    def _bill(self, usage: dict[str, Any]) -> None:
        """Counts are running totals; where two events differ the larger one holds (some servers send 0 in one of
        them).
        """
        for key, value in usage.items():
            known = self._usage.get(key)
            if count(value) is not None and count(known) is not None:
                self._usage[key] = max(value, known)
            elif value is not None:
                self._usage[key] = value


#: The deltas that a block of each type takes.
_DELTAS = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}


class AnthropicGrammar(Grammar):
    """`message_start`; each block from start to stop, one after the other, indexes from 0; `message_delta`,
    `message_stop`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, str] = {}
        self._seen: set[int] = set()
        self._stopped = False

    def see(self, name: str, body: Mapping[str, Any]) -> None:
        kind = as_str(body.get("type")) or name
        if kind in ("ping", "error"):
            return
        if name != kind:
            self.fault("event_name", f"an event of type {kind[:40]} is named {name[:40] or 'nothing'}")
        if not self.begun and kind != "message_start":
            self.fault("order", f"{kind[:40]} before message_start")
        if kind == "message_start":
            if self.begun:
                self.fault("order", "message_start twice")
        elif kind.startswith("content_block_"):
            self._block(kind, body)
        elif kind == "message_delta":
            if self._open:
                self.fault("order", "message_delta before content_block_stop")
            self._stopped = self._stopped or bool(as_dict(body.get("delta")).get("stop_reason"))
        elif kind == "message_stop" and not self._stopped:
            self.fault("order", "message_stop without a stop reason before it")
        self.begun = True

    def _block(self, kind: str, body: Mapping[str, Any]) -> None:
        index = body.get("index")
        if not isinstance(index, int):
            self.fault("index", f"{kind} without an index")
            return
        if self._stopped:
            self.fault("after_stop", f"{kind} after the stop reason")
        if kind == "content_block_start":
            self._start(index, as_dict(body.get("content_block")))
        elif index not in self._open:
            code, why = ("after_stop", "after its stop") if index in self._seen else ("order", "before its start")
            self.fault(code, f"{kind} of block {index} {why}")
        elif kind == "content_block_stop":
            del self._open[index]
        else:
            self._delta(self._open[index], as_dict(body.get("delta")))

    def _start(self, index: int, block: dict[str, Any]) -> None:
        if index in self._seen:
            self.fault("index", f"index {index} is used twice")
        elif index != len(self._seen):
            self.fault("index", f"block {len(self._seen) + 1} has index {index}")
        if self._open:
            self.fault("order", "a block begins before the one before it has ended")
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), OBJECT):
            self.fault("arguments", "the input of a call begins as no object")
        self._seen.add(index)
        self._open[index] = str(block.get("type"))

    def _delta(self, block: str, delta: dict[str, Any]) -> None:
        kind = str(delta.get("type"))
        if kind not in _DELTAS.get(block, (kind,)):
            self.fault("order", f"{kind[:40]} in a block of {block}")
        for name in ("text", "thinking", "partial_json"):
            self.piece(delta.get(name))


def raw_usage(usage: Usage) -> dict[str, Any]:
    """Usage in Anthropic's form: cached parts beside `input_tokens`, not in it."""
    cached = (usage.cache_read or 0) + (usage.cache_write or 0)
    raw = {
        "input_tokens": None if usage.input_tokens is None else max(0, usage.input_tokens - cached),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output_tokens,
    }
    return {key: value for key, value in raw.items() if value is not None}


def _content(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    text = reply.text if reply.text is not None else reply.refusal
    if text is not None:
        blocks.append({"type": "text", "text": text})
    for call in reply.tool_calls:
        value = arguments_value(call.get("arguments"))
        blocks.append({"type": "tool_use", "id": call.get("id"), "name": call.get("name"), "input": value})
    return blocks


def _frame(reply: Reply, request: WireRequest) -> dict[str, Any]:
    return {
        "id": reply_id("msg_", reply, request),
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model or "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(reply: Reply) -> str | None:
    if reply.finish_reason in (None, "stop") and reply.refusal is not None:
        return "refusal"
    if reply.finish_reason is None:
        return None
    return _STOP_BACK.get(reply.finish_reason, reply.finish_reason)


def render_reply(reply: Reply, request: WireRequest) -> dict[str, Any]:
    """A `message` object."""
    body = {**_frame(reply, request), "content": _content(reply), "stop_reason": _stop_reason(reply)}
    return {**body, "usage": raw_usage(reply.usage)} if reply.usage else body


def render_stream(reply: Reply, request: WireRequest, pieces: int = 8) -> Iterator[bytes]:
    """`message_start`, the blocks (start, deltas, stop) with a ping after the first start, `message_delta`,
    `message_stop`.
    """

    def event(kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, **fields}, kind)

    usage = raw_usage(reply.usage) if reply.usage else None
    start = _frame(reply, request)
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": min(1, usage.get("output_tokens", 1))}
    yield event("message_start", message=start)
    for index, block in enumerate(_content(reply)):
        yield event("content_block_start", index=index, content_block=_opened(block))
        if index == 0:
            yield event("ping")
        for delta in _deltas(block, pieces):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end: dict[str, Any] = {"delta": {"stop_reason": _stop_reason(reply), "stop_sequence": None}}
    if usage is not None:
        end["usage"] = usage
    yield event("message_delta", **end)
    yield event("message_stop")


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return {**block, "input": {}}
    return {**block, ("thinking" if block["type"] == "thinking" else "text"): ""}


def _deltas(block: dict[str, Any], pieces: int) -> Iterator[dict[str, Any]]:
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in pieces_of(canonical_json(block["input"]), pieces):
            yield {"type": "input_json_delta", "partial_json": piece}
    elif block["type"] == "thinking":
        for piece in pieces_of(block["thinking"], pieces):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for piece in pieces_of(block["text"], pieces):
            yield {"type": "text_delta", "text": piece}
