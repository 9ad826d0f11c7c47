"""OpenAI Responses: requests, replies and streams, read and written.

In the neutral form `instructions` is a first message of role `system`, a `function_call` item is an assistant message
with one tool call, and its output is a message of role `tool`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.numbers import OPENAI_RESPONSES, usage_of
from context_bench.core.records import Usage
from context_bench.wire.apis.openai_chat import content_parts
from context_bench.wire.apis.shared import (
    CREATED,
    OBJECT,
    Grammar,
    Reply,
    StreamReader,
    arguments_text,
    as_dict,
    as_list,
    as_str,
    filled,
    params_of,
    pieces_of,
    reply_id,
    require_body,
    sse,
    unknown_part,
)
from context_bench.wire.request import Part, WireMessage, WireRequest

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


#: An item of the input in which Codex defines tools for its newer models, beside or in place of the body's `tools`.
_MORE_TOOLS = "additional_tools"


def parse_request(body: Mapping[str, Any]) -> WireRequest:
    """The body of a `POST /responses` in neutral form."""
    instructions, given = body.get("instructions"), body.get("input")
    tools = as_list(body.get("tools"))
    messages = [WireMessage("system", content_parts(instructions))] if instructions else []
    if isinstance(given, str):
        messages.append(WireMessage("user", [Part("text", given)]))
    else:
        for raw in as_list(given):
            if isinstance(raw, OBJECT) and raw.get("type") == _MORE_TOOLS:
                tools = [*tools, *as_list(raw.get("tools"))]
            else:
                messages.append(_item(raw))
    return WireRequest(
        wire="openai-responses",
        model=as_str(body.get("model")),
        messages=messages,
        tools=tools,
        params=params_of(body, "input", "instructions", "tools", "model", "stream"),
        stream=bool(body.get("stream")),
    )


def _item(raw: Any) -> WireMessage:
    if not isinstance(raw, OBJECT):
        return WireMessage("unknown", [unknown_part(raw)])
    kind = as_str(raw.get("type")) or "message"
    if kind == "message":
        fields = {"phase": raw["phase"]} if raw.get("phase") else {}
        return WireMessage(as_str(raw.get("role")) or "unknown", content_parts(raw.get("content")), fields=fields)
    if kind in _CALLS:
        call = {"id": raw.get("call_id"), "name": raw.get("name"), "arguments": raw.get(_CALLS[kind])}
        return WireMessage("assistant", [], [call])
    if kind in _RESULTS:
        return WireMessage("tool", content_parts(raw.get("output")), tool_call_id=as_str(raw.get("call_id")))
    if kind == "reasoning":
        texts = _reasoning_texts(raw)
        return WireMessage("assistant", [Part("reasoning", text, raw) for text in texts] or [unknown_part(raw)])
    return WireMessage("assistant" if kind.endswith("_call") else "unknown", [unknown_part(raw)])


def _reasoning_texts(item: Mapping[str, Any]) -> list[str]:
    parts = [as_dict(part) for part in [*as_list(item.get("summary")), *as_list(item.get("content"))]]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def parse_reply(body: Any) -> Reply:
    """A `response` object."""
    body = require_body(body, expects="'output'")
    output = body.get("output")
    if not isinstance(output, list):
        raise BadReply(f"Unexpected response: no list 'output' among the keys {sorted(map(str, body))[:12]}")
    if body.get("status") in ("failed", "cancelled"):
        raise BadReply(f"Unexpected response: the response's status is {body['status']!r}")
    reply = _read_output(map(as_dict, output))
    reply.model = as_str(body.get("model"))
    reply.usage, reply.raw_usage = usage_of(body.get("usage"), OPENAI_RESPONSES), as_dict(body.get("usage")) or None
    reply.finish_reason = _finish_reason(body, reply)
    reply.stop = as_str(as_dict(body.get("incomplete_details")).get("reason")) or as_str(body.get("status"))
    return reply


def _read_output(items: Iterator[dict[str, Any]]) -> Reply:
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    types: list[str] = []
    signatures: list[str] = []
    extras: dict[str, list[Any]] = {"annotations": [], "logprobs": [], "own_items": []}
    for item in items:
        kind = as_str(item.get("type"))
        types.append(str(kind))
        if kind == "message":
            for part in map(as_dict, as_list(item.get("content"))):
                if isinstance(part.get("text"), str):
                    texts.append(part["text"])
                for name in ("annotations", "logprobs"):
                    extras[name] += as_list(part.get(name))
                if isinstance(part.get("refusal"), str):
                    refusals.append(part["refusal"])
        elif kind == "reasoning":
            thoughts += _reasoning_texts(item)
            signatures += [item["encrypted_content"]] if isinstance(item.get("encrypted_content"), str) else []
        elif kind in _CALLS:
            calls.append(
                {
                    "id": item.get("call_id"),
                    "name": item.get("name"),
                    "arguments": arguments_text(item.get(_CALLS[str(kind)])),
                }
            )
        else:
            extras["own_items"].append({name: value for name, value in item.items() if name not in ("id", "status")})
    return Reply(
        text="".join(texts) if texts else None,
        tool_calls=calls,
        extras=filled(**extras),
        refusal="".join(refusals) if refusals else None,
        reasoning="".join(thoughts) if thoughts else None,
        signatures=signatures,
        blocks=types,
    )


def _finish_reason(body: Mapping[str, Any], reply: Reply) -> str | None:
    if body.get("status") == "incomplete":
        reason = as_str(as_dict(body.get("incomplete_details")).get("reason")) or "incomplete"
        return {"max_output_tokens": "length"}.get(reason, reason)
    if body.get("status") != "completed":
        return None
    return "tool_calls" if reply.tool_calls else "stop"


class ResponsesStream(StreamReader):
    """Puts a response together from its events; the final event's whole response wins over the pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, dict[str, Any]] = {}
        self._final: Reply | None = None
        self._model: str | None = None

    def put_together(self) -> Reply:
        pieces = _read_output(map(self._item_of, sorted(self._items)))
        if self._final is None:
            pieces.model = self._model
            return pieces
        final = self._final
        if (
            final.text is None and not final.tool_calls and final.refusal is None
        ):  # some servers leave `output` out at the end
            final.text, final.tool_calls, final.refusal = pieces.text, pieces.tool_calls, pieces.refusal
            final.blocks, final.signatures = pieces.blocks, pieces.signatures
            final.extras = pieces.extras | final.extras
            if final.tool_calls and final.finish_reason == "stop":
                final.finish_reason = "tool_calls"
        self._compare_pieces(final)
        final.reasoning = final.reasoning if final.reasoning is not None else pieces.reasoning
        return final

    def _compare_pieces(self, final: Reply) -> None:
        """The whole at the end has to be what the pieces were."""
        if self.grammar is None:
            return
        places = sorted(self._items)
        said, thought = ("".join(self._items[index][name] for index in places) for name in ("text", "reasoning"))
        if said and said != final.text:
            self.grammar.fault("final", "the whole response at the end has another text than the pieces")
        if thought and final.reasoning is not None and thought != final.reasoning:
            self.grammar.fault("final", "the whole response at the end has other thinking than the pieces")
        calls = [text for index in places if (text := self._items[index]["arguments"])]
        if calls and len(calls) == len(final.tool_calls) and calls != [one["arguments"] for one in final.tool_calls]:
            self.grammar.fault("final", "the whole response at the end has other arguments than the pieces")

    def _item_of(self, index: int) -> dict[str, Any]:
        """A whole item if one was sent, else the pieces in an item's form."""
        entry = self._items[index]
        for name in ("text", "refusal", "reasoning", "arguments"):
            entry[name] = self._pieces.taken((index, name), entry[name])
        if entry.get("done"):
            return as_dict(entry["done"])
        item = entry["item"]
        if as_str(item.get("type")) in _CALLS:
            return {
                **item,
                _CALLS[item["type"]]: entry["arguments"] or arguments_text(item.get(_CALLS[item["type"]]) or ""),
            }
        if entry["reasoning"]:
            return {"type": "reasoning", "summary": [{"text": entry["reasoning"]}]}
        parts = ([{"text": entry["text"]}] if entry["text"] else []) + (
            [{"refusal": entry["refusal"]}] if entry["refusal"] else []
        )
        return {"type": "message", "content": parts}

    def _entry(self, body: Mapping[str, Any]) -> int:
        """The place of the item that an event is about."""
        index = body["output_index"] if isinstance(body.get("output_index"), int) else 0
        if index not in self._items:
            self._pieces.begin()
            self._items[index] = {"item": {}, "text": "", "refusal": "", "reasoning": "", "arguments": ""}
        return index

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        kind = as_str(body.get("type")) or name
        if kind in ("response.completed", "response.incomplete"):
            self._end(as_dict(body.get("response")))
        elif kind == "response.failed":
            self.over = True
            self.fail(as_dict(body.get("response")).get("error") or "the response failed")
        elif kind in ("response.created", "response.in_progress"):
            self._model = as_str(as_dict(body.get("response")).get("model")) or self._model
        elif kind == "response.output_item.added":
            self._items[self._entry(body)]["item"] = as_dict(body.get("item"))
            self.started = self.started or as_str(as_dict(body.get("item")).get("type")) in _CALLS
        elif kind == "response.output_item.done":
            self._items[self._entry(body)]["done"] = as_dict(body.get("item"))
        elif kind.endswith(".delta"):
            self._delta(kind, body)
        elif kind == "error" or body.get("error"):
            self.fail(body.get("error") or body)

    def _delta(self, kind: str, body: Mapping[str, Any]) -> None:
        places = {
            "response.output_text.delta": "text",
            "response.refusal.delta": "refusal",
            "response.reasoning_summary_text.delta": "reasoning",
            "response.reasoning_text.delta": "reasoning",
            "response.function_call_arguments.delta": "arguments",
            "response.custom_tool_call_input.delta": "arguments",
        }
        piece = as_str(body.get("delta"))
        if kind in places and piece:
            self._pieces.add((self._entry(body), places[kind]), piece)
            self.started = True

    def _end(self, response: dict[str, Any]) -> None:
        self.complete = self.over = True
        if not isinstance(response.get("output"), list):
            response = {**response, "output": []}
        self._final = parse_reply(response)
        self._final.model = self._final.model or self._model


class ResponsesGrammar(Grammar):
    """`response.created`; each item from added to done, indexes from 0, its deltas and parts within; the whole response
    last. Events are numbered one after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, Any] = {}  # the item's id
        self._seen: set[int] = set()
        self._parts: set[tuple[Any, Any]] = set()
        self._begun: dict[int, set[str]] = {}  # what has begun in an item and has not ended, by its place
        self._number: int | None = None

    def see(self, name: str, body: Mapping[str, Any]) -> None:
        kind = as_str(body.get("type")) or name
        if kind == "error":
            return
        number = body.get("sequence_number")
        if isinstance(number, int):
            if self._number is not None and number <= self._number:
                self.fault("sequence", f"event number {number} after {self._number}")
            self._number = number
        if not self.begun and kind not in ("response.created", "response.queued"):
            self.fault("order", f"{kind[:60]} before response.created")
        self.begun = True
        if kind in ("response.completed", "response.incomplete"):
            if self._open:
                self.fault("order", f"{kind} before response.output_item.done")
        elif "output_index" in body or kind.startswith("response.output_item."):
            self._item(kind, body)

    def _item(self, kind: str, body: Mapping[str, Any]) -> None:
        index = body.get("output_index")
        if not isinstance(index, int):
            self.fault("index", f"{kind[:60]} without an index")
        elif kind == "response.output_item.added":
            if index in self._seen:
                self.fault("index", f"index {index} is used twice")
            elif index != len(self._seen):
                self.fault("index", f"item {len(self._seen) + 1} has index {index}")
            self._seen.add(index)
            self._open[index] = as_dict(body.get("item")).get("id")
        elif index not in self._open:
            code, why = ("after_stop", "after it was done") if index in self._seen else ("order", "before it was added")
            self.fault(code, f"{kind[:60]} of item {index} {why}")
        elif kind == "response.output_item.done":
            del self._open[index]
            if left := sorted(self._begun.get(index, ())):
                self.fault("order", f"{kind} without {left[0][:60]}.done")
        else:
            self._within(kind, body, index)

    def _within(self, kind: str, body: Mapping[str, Any], index: int) -> None:
        ident, part = body.get("item_id"), (index, body.get("content_index"))
        if ident is not None and self._open[index] is not None and ident != self._open[index]:
            self.fault("ids", f"{kind[:60]} names another item than was added")
        if kind == "response.content_part.added":
            self._parts.add(part)
        elif kind == "response.output_text.delta" and part not in self._parts:
            self.fault("order", f"{kind} before response.content_part.added")
        if kind.endswith(".delta"):
            self.piece(body.get("delta"))
        stem, _, what = kind.rpartition(".")
        if what in ("delta", "added"):
            self._begun.setdefault(index, set()).add(stem)
        elif what == "done":
            self._begun.get(index, set()).discard(stem)


def raw_usage(usage: Usage) -> dict[str, Any]:
    """Usage in the form of the Responses wire."""
    raw: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    given = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    raw["input_tokens_details"] = {key: value for key, value in given.items() if value is not None} or None
    raw["output_tokens_details"] = (
        None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    )
    if usage.input_tokens is not None and usage.output_tokens is not None:
        raw["total_tokens"] = usage.input_tokens + usage.output_tokens
    return {key: value for key, value in raw.items() if value is not None}


def _output(reply: Reply, stem: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        items.append(
            {"id": f"rs_{stem}", "type": "reasoning", "summary": [{"type": "summary_text", "text": reply.reasoning}]}
        )
    parts: list[dict[str, Any]] = []
    if reply.text is not None:
        parts.append({"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []})
    if reply.refusal is not None:
        parts.append({"type": "refusal", "refusal": reply.refusal})
    if parts:
        items.append(
            {"id": f"msg_{stem}", "type": "message", "status": "completed", "role": "assistant", "content": parts}
        )
    for i, call in enumerate(reply.tool_calls):
        arguments = arguments_text(call.get("arguments"))
        ids = {"id": f"fc_{stem}{i}", "call_id": call.get("id")}
        items.append(
            {**ids, "type": "function_call", "status": "completed", "name": call.get("name"), "arguments": arguments}
        )
    return items


def _frame(reply: Reply, request: WireRequest) -> dict[str, Any]:
    params = request.params
    return {
        "id": reply_id("resp_", reply, request),
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": params.get("max_output_tokens"),
        "metadata": params.get("metadata") or {},
        "model": reply.model or request.model or "",
        "output": [],
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "previous_response_id": params.get("previous_response_id"),
        "store": params.get("store", True),
        "temperature": params.get("temperature"),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": request.tools,
        "usage": None,
    }


def render_reply(reply: Reply, request: WireRequest) -> dict[str, Any]:
    """A `response` object; a stop for length or by a filter makes it `incomplete`."""
    body = _frame(reply, request)
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish_reason or "")
    status = "incomplete" if reason else "in_progress" if reply.finish_reason is None else "completed"
    body.update(
        status=status, output=_output(reply, body["id"][5:]), incomplete_details={"reason": reason} if reason else None
    )
    body["usage"] = raw_usage(reply.usage) if reply.usage else None
    return body


def render_stream(reply: Reply, request: WireRequest, pieces: int = 8) -> Iterator[bytes]:
    """`created`, `in_progress`, each item from `added` to `done` with its deltas, then `completed` or `incomplete`; no
    `[DONE]`.
    """
    number = -1

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        return sse({"type": f"response.{kind}", "sequence_number": number, **fields}, f"response.{kind}")

    frame, final = _frame(reply, request), render_reply(reply, request)
    yield event("created", response=frame)
    yield event("in_progress", response=frame)
    for index, item in enumerate(final["output"]):
        yield event("output_item.added", output_index=index, item=_opened(item))
        for kind, fields in _item_events(item, pieces):
            yield event(kind, item_id=item["id"], output_index=index, **fields)
        yield event("output_item.done", output_index=index, item=item)
    yield event("incomplete" if final["status"] == "incomplete" else "completed", response=final)


def _opened(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] == "reasoning":
        return {**item, "summary": []}
    if item["type"] == "message":
        return {**item, "status": "in_progress", "content": []}
    return {**item, "status": "in_progress", "arguments": ""}


def _item_events(item: dict[str, Any], pieces: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events between an item's `added` and `done`: (event kind, its own fields)."""
    if item["type"] == "function_call":
        for piece in pieces_of(item["arguments"], pieces):
            yield "function_call_arguments.delta", {"delta": piece}
        yield "function_call_arguments.done", {"arguments": item["arguments"]}
    elif item["type"] == "reasoning":
        for i, part in enumerate(item["summary"]):
            yield "reasoning_summary_part.added", {"summary_index": i, "part": {**part, "text": ""}}
            for piece in pieces_of(part["text"], pieces):
                yield "reasoning_summary_text.delta", {"summary_index": i, "delta": piece}
            yield "reasoning_summary_text.done", {"summary_index": i, "text": part["text"]}
            yield "reasoning_summary_part.done", {"summary_index": i, "part": part}
    else:
        for i, part in enumerate(item["content"]):
            name, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
            logprobs: dict[str, Any] = {} if name == "refusal" else {"logprobs": []}
            yield "content_part.added", {"content_index": i, "part": {**part, name: ""}}
            for piece in pieces_of(part[name], pieces):
                yield f"{kind}.delta", {"content_index": i, "delta": piece, **logprobs}
            yield f"{kind}.done", {"content_index": i, name: part[name], **logprobs}
            yield "content_part.done", {"content_index": i, "part": part}
