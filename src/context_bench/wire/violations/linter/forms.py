"""Forms that an API takes: of tool calls and their ids, of parameters, of where a block may stand, of signed thinking;
and a request's body as the rules read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from context_bench.core.keys import load_json
from context_bench.core.templates import load_toml
from context_bench.wire.apis import parse_request
from context_bench.wire.apis.shared import OBJECT, as_dict, as_list, as_str, dump
from context_bench.wire.conversation import ITEMS
from context_bench.wire.request import WireRequest

#: What a check finds: kind, detail, place of the message.
Found = Iterator[tuple[str, str, int | None]]


@cache
def document() -> dict[str, Any]:
    """The rules and what the APIs know, as `rules.toml` has them."""
    return load_toml((files("context_bench.wire.violations") / "rules.toml").read_text("utf-8"))


class SessionItems:
    """Messages and tools of the requests of one session, each held and read once, however many requests repeat it.

    What has the same content is the same object, in the requests as they were sent and as they arrived, so that whoever
    compares them sees at once what is the same. Of more than `most` bytes all are forgotten, and held anew.
    """

    def __init__(self, most: int = 32 * 2**20) -> None:
        self._most = self._left = most
        self._by_content: dict[bytes, Any] = {}
        self._changed: dict[bytes, Any] = {}
        self._read: dict[tuple[str, int], tuple[Any, WireRequest]] = {}  # each with its item, which holds the number

    def body(self, raw: Mapping[str, Any], wire: str, change: Callable[[Any], Any] | None = None) -> Any:
        """A body after `change`, which does to each item what it would do to it in the whole."""
        lists = {name: raw[name] for name in (ITEMS.get(wire, ""), "tools") if isinstance(raw.get(name), list)}
        made = change({**raw, **dict.fromkeys(lists, ())}) if change else raw
        return {**made, **{name: [self._item(name, item, change) for item in items] for name, items in lists.items()}}

    def _item(self, name: str, item: Any, change: Callable[[Any], Any] | None) -> Any:
        key = dump(item)
        held = self._changed if change else self._by_content
        if key not in held:
            self._left -= 4 * len(key)
            if self._left < 0:
                for each in (self._by_content, self._changed, self._read):
                    each.clear()
                self._left = self._most
            made = change({name: [item]})[name][0] if change else item
            held[key] = self._by_content.setdefault(dump(made) if change else key, made)
        return held[key]

    def parsed(self, raw: Mapping[str, Any], wire: str) -> WireRequest:
        """`wire.apis.parse_request` of a body whose items are of these."""
        name = ITEMS[wire]
        if not isinstance(raw.get(name), list):
            return parse_request(wire, raw)
        found = parse_request(wire, {**raw, name: []})
        for item in raw[name]:
            known = self._read.get((wire, id(item)))
            if known is None:
                known = self._read[wire, id(item)] = item, parse_request(wire, {name: [item]})
            found.messages += known[1].messages
            found.tools += known[1].tools
        return found


class RequestBody:
    """A request's body with what the rules ask of it, each read once; `known`: its items are of these."""

    def __init__(self, raw: Mapping[str, Any], wire: str, known: SessionItems | None = None) -> None:
        self.raw, self.wire = raw, wire
        self.neutral: WireRequest = known.parsed(raw, wire) if known else parse_request(wire, raw)
        self.tools = self.neutral.tools
        for item in as_list(raw.get("input")) if wire == "openai-responses" else []:
            if as_dict(item).get("type") == "tool_search_output":  # tools that were loaded in mid-conversation
                self.tools = [*self.tools, *as_list(as_dict(item).get("tools"))]
        given = raw.get(ITEMS[wire])
        self.messages: list[Mapping[str, Any]] = [
            item if isinstance(item, OBJECT) else {} for item in (given if isinstance(given, list) else [])
        ]
        self._blocks: list[tuple[int | None, Mapping[str, Any]]] | None = None

    def blocks(self) -> list[tuple[int | None, Mapping[str, Any]]]:
        """Every block of a message, with the message's place; those of Anthropic's `system` have none."""
        if self._blocks is None:
            head = as_list(self.raw.get("system")) if self.wire == "anthropic" else []
            self._blocks = [(None, as_dict(part)) for part in head]
            for i, message in enumerate(self.messages):
                parts = as_list(message.get("content"))
                self._blocks += [(i, part if type(part) is dict else as_dict(part)) for part in parts]
        return self._blocks


def shown(key: Any) -> str:
    """The beginning of a key or a name from outside."""
    return str(key)[:40]


def at(index: int | None) -> str:
    """The place of a block, for people."""
    return "the instructions" if index is None else f"message {index + 1}"


# Tool calls
# ------------------------------------------------------------------------


def calls_in_form(body: RequestBody) -> Found:
    """Calls of the history in the form that the API takes: type, id, name, and arguments as text or as an object."""
    for i, message in enumerate(body.messages):
        if body.wire == "openai-chat":
            for call in map(as_dict, as_list(message.get("tool_calls"))):
                yield from (("tool_call_form_wrong", f"message {i + 1}: {what}", i) for what in _chat_call(call))
                known = document()["calls"]["openai-chat"]
                for key in sorted(shown(key) for key, value in call.items() if key not in known and value is not None):
                    yield "unknown_block_key", f"message {i + 1}: a tool call has the key {key!r}", i
        elif body.wire == "openai-responses" and message.get("type") == "function_call":
            for name in ("call_id", "name"):
                if not as_str(message.get(name)):
                    yield "tool_call_form_wrong", f"item {i + 1}: a call without {name}", i
            if (what := _arguments(message.get("arguments"))) is not None:
                yield "tool_call_form_wrong", f"item {i + 1}: {what}", i
    if body.wire == "anthropic":
        for place, block in body.blocks():
            if block.get("type") == "tool_use":
                if not isinstance(block.get("input"), Mapping):
                    yield "tool_call_form_wrong", f"{at(place)}: the input of a call is no object", place
                if not as_str(block.get("id")) or not as_str(block.get("name")):
                    yield "tool_call_form_wrong", f"{at(place)}: a call without id or name", place


def _chat_call(call: Mapping[str, Any]) -> Iterator[str]:
    inner = as_dict(call.get("function"))
    if call.get("type") not in ("function", "custom"):
        yield "a call without its type"
    if not as_str(call.get("id")):
        yield "a call without id"
    if call.get("type") != "custom":
        if not as_str(inner.get("name")):
            yield "a call without name"
        if (what := _arguments(inner.get("arguments"))) is not None:
            yield what


def _arguments(arguments: Any) -> str | None:
    """The fault of arguments that have to be the text of a JSON object."""
    if not isinstance(arguments, str):
        return "the arguments of a call are no text"
    try:
        value = load_json(arguments)
    except ValueError:
        return "the arguments of a call are no JSON"
    return None if isinstance(value, Mapping) else "the arguments of a call are no object"


def ids_in_form(body: RequestBody) -> Found:
    """Ids of calls and of items as the API takes them."""
    pattern = document()["limits"]["call_id"][body.wire]
    for i, message in enumerate(body.neutral.messages):
        for ident in [*(call.get("id") for call in message.tool_calls), message.tool_call_id]:
            if isinstance(ident, str) and ident and re.search(pattern, ident) is None:
                yield "call_id_refused", f"message {i + 1}: an id of {len(ident):,} characters: {shown(ident)}", i
    if body.wire == "openai-responses":
        prefixes = document()["limits"]["item_id"]
        for i, item in enumerate(body.messages):
            ident, wanted = as_str(item.get("id")), prefixes.get(as_str(item.get("type")) or "")
            if ident and wanted and not ident.startswith(wanted):
                yield "item_id_refused", f"item {i + 1}: the id of a {item['type']} does not begin with {wanted}", i


# Parameters
# ------------------------------------------------------------------------


def parameters_of_this_api(body: RequestBody) -> Found:
    """Parameters that only another API has, or has in another form."""
    for name in document()["foreign_parameters"][body.wire]:
        if body.raw.get(name) is not None:
            yield "foreign_parameter", name, None
    choice = body.raw.get("tool_choice")
    kind = as_dict(choice).get("type")
    wrong = {
        "openai-chat": kind in ("any", "auto", "none", "tool") or (kind == "function" and "name" in as_dict(choice)),
        "openai-responses": kind in ("any", "auto", "none", "tool") or "function" in as_dict(choice),
        "anthropic": isinstance(choice, str) or kind in ("function", "required"),
    }
    if wrong[body.wire]:
        yield "foreign_parameter", "tool_choice in the form of another API", None
    if body.wire == "anthropic":
        yield from _sampling(body)


def _sampling(body: RequestBody) -> Found:
    temperature = body.raw.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        yield "parameter_refused", "a temperature above 1", None
    if temperature is not None and body.raw.get("top_p") is not None:
        yield "sampling_refused", "temperature and top_p", None


# Places of blocks
# ------------------------------------------------------------------------


def blocks_in_place(body: RequestBody) -> Found:
    """Blocks in messages of a role that does not have them, and blocks without a type."""
    places = document()["places"][body.wire]
    for i, message in enumerate(body.messages):
        role = as_str(message.get("role"))
        for block in map(as_dict, as_list(message.get("content"))):
            kind = as_str(block.get("type"))
            if kind is None and block:
                yield "block_misplaced", f"message {i + 1}: a block without a type", i
            elif role is not None and kind in places and role not in places[kind]:
                yield "block_misplaced", f"message {i + 1}: a block of type {kind} in a message of {role}", i
    for part in map(as_dict, as_list(body.raw.get("system"))) if body.wire == "anthropic" else ():
        if part.get("type") != "text":
            yield "block_misplaced", f"the instructions hold a block of type {shown(part.get('type'))}", None


# Thinking and the beginning of a reply, on Anthropic's API
# ------------------------------------------------------------------------


def thinking_in_form(body: RequestBody) -> Found:
    """Thinking with its signature, and first in the turn in progress; a reply that is begun without white space at its
    end.
    """
    if body.wire != "anthropic":
        return
    for place, block in body.blocks():
        if block.get("type") == "thinking" and not block.get("signature"):
            yield "thinking_unsigned", f"{at(place)}: thinking without a signature", place
    last = body.messages[-1] if body.messages else {}
    if last.get("role") == "assistant" and _text_at_end(last.get("content")).rstrip() != _text_at_end(
        last.get("content")
    ):
        yield "prefill_refused", "the last message is the assistant's and ends in white space", len(body.messages) - 1
    if as_dict(body.raw.get("thinking")).get("type") == "enabled":
        yield from _thinking_first(body)


def _text_at_end(content: Any) -> str:
    if isinstance(content, str):
        return content
    block = as_dict(as_list(content)[-1]) if as_list(content) else {}
    return as_str(block.get("text")) or ""


def _thinking_first(body: RequestBody) -> Found:
    """With thinking on, the model's part of a turn in progress begins with thinking; without any, it was taken away."""
    turn: list[tuple[int, list[str | None]]] = []
    for i, message in enumerate(body.messages):
        kinds = [as_str(as_dict(block).get("type")) for block in as_list(message.get("content"))]
        if message.get("role") == "assistant":
            turn.append((i, kinds))
        elif "tool_result" not in kinds:
            turn = []
    thought = any(kind in ("thinking", "redacted_thinking") for _, kinds in turn for kind in kinds)
    if turn and "tool_use" in turn[-1][1] and not thought:
        yield "thinking_missing", f"message {turn[0][0] + 1}: a turn in progress without its thinking", turn[0][0]
