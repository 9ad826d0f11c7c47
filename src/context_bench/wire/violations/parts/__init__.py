"""Kinds of violations, and the changes to blocks that are not a proxy's to touch.

Blocks: signed thinking, reasoning items, calls of the provider's own tools; images, files and sound, each a thing of
its own, however it is wrapped; tool calls, their results and arguments.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from context_bench.core.keys import canonical_json, hash_text, load_json, without_nulls
from context_bench.wire.apis.shared import OBJECT
from context_bench.wire.request import RESULT_ROLES, Pairs, Part, WireMessage, WireRequest, altered

#: What a comparison of two requests finds, in the order of the table at the head of this package.
COMPARED: tuple[str, ...] = (
    "system_role_lost",
    "assistant_role_changed",
    "role_changed",
    "last_user_changed",
    "order_changed",
    "message_added",
    "text_added",
    "text_damaged",
    "part_lost",
    "field_changed",
    "turn_lost",
    "orphan_tool_result",
    "unanswered_tool_call",
    "tool_error_lost",
    "tool_result_swapped",
    "tool_arguments_changed",
    "tool_added",
    "tool_removed",
    "tool_meaning_changed",
    "tool_annotation_changed",
    "tool_choice_changed",
    "params_changed",
    "usage_not_asked",
    "response_format_changed",
    "cache_control_lost",
    "cache_control_moved",
    "cache_control_added",
    "cache_control_ttl_changed",
    "thinking_changed",
    "reasoning_item_lost",
    "server_tool_changed",
    "media_lost",
    "media_reencoded",
    "previous_response_id_changed",
    "beta_header_lost",
    "wire_changed",
    "json_reserialised",
    "retry",
    "duplicate",
    "silent_truncation",
    "after_done",
    "forwarded_differently",
    "conversation_leaked",
    "key_leaked",
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that was done to a request. `kind`: see this package's table; `detail`: a phrase for people without the
    request's texts.

    `index`: the place of the message, counted from 0 in the request as sent (for what only the received one has: in
    that one). `name`: the tool, where it is about one.
    """

    kind: str
    detail: str
    index: int | None = None
    name: str | None = None


#: Kinds that are named and not summed: other words for a tool's reader, which is what compressors of tools do, and
#: words beside a text that is still there; replies out of a cache of the proxy's own, and headers that tell of the
#: provider's account.
NOTES = frozenset({"tool_annotation_changed", "text_added", "answered_without_provider", "header_lost"})
#: A name that stands for several kinds, wherever figures stand beside each other by name: the kind of that name was
#: split.
SUMS: dict[str, tuple[str, ...]] = {"tool_schema_changed": ("tool_added", "tool_removed", "tool_meaning_changed")}


def total(counts: Mapping[str, int]) -> int:
    """Number of violations: all kinds but those of `NOTES`."""
    return sum(times for kind, times in counts.items() if kind not in NOTES)


def tools_of(found: Iterable[Violation]) -> dict[str, list[str]]:
    """The tools that violations are about, by kind, each once."""
    tools: dict[str, list[str]] = {}
    for one in found:
        if one.name is not None and one.name not in tools.setdefault(one.kind, []):
            tools[one.kind].append(one.name)
    return tools


_MOST_TOOLS = 100  # of one kind: names come from outside


def count_tools(counts: dict[str, dict[str, int]], tools: Mapping[str, Iterable[str]]) -> None:
    """Count the tools of one more request in: in how many requests each was touched, by kind."""
    for kind, names in tools.items():
        known = counts.setdefault(kind, {})
        for name in names:
            if name in known or len(known) < _MOST_TOOLS:
                known[name] = known.get(name, 0) + 1


def phrase(kind: str, tools: Collection[str] = (), most: int = 3) -> str:
    """A kind and the first of the tools that it is about: `tool_added headroom_retrieve`."""
    if not tools:
        return kind
    more = len(tools) - most
    return f"{kind} {', '.join(list(tools)[:most])}{f' and {more:,} more' if more > 0 else ''}"


_SERVER_TOOLS = re.compile(
    r"server_tool_use|mcp_tool_use|mcp_tool_result|mcp_list_tools|mcp_approval_\w+|\w+_call|\w+_call_output|\w+_tool_result(?:_error)?"
)
_OWN_ITEMS = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "tool_result"}
)
_THINKING = frozenset({"thinking", "redacted_thinking"})
_Wanted = Callable[[Part], bool]


def last_user(request: WireRequest) -> int | None:
    """Index of the last user message with a text."""
    return max(
        (i for i, message in enumerate(request.messages) if message.role == "user" and message.text.strip()),
        default=None,
    )


def raw_of(part: Part) -> Mapping[str, Any]:
    """The item of the body that a part was read from; empty where it was a plain text."""
    return part.raw if isinstance(part.raw, OBJECT) else {}


def _kind(part: Part) -> str:
    return str(raw_of(part).get("type") or "")


def _blocks(message: WireMessage, wanted: _Wanted) -> list[str]:
    """The canonical form of a message's blocks of some sort, each once (one raw item may have given several parts),
    marks left out.
    """
    found: dict[int, str] = {}
    for part in message.parts:
        if wanted(part):
            found.setdefault(id(part.raw), _meaning(raw_of(part)))
    return list(found.values())


def _meaning(raw: Mapping[str, Any]) -> str:
    """A block without what says nothing: marks, null fields, and the empty content of a reasoning item that has none to
    show.
    """
    told = {key: value for key, value in without_nulls(raw).items() if key != "cache_control"}
    if told.get("type") == "reasoning" and told.get("content") == []:
        del told["content"]
    return canonical_json(told)


def _is_thinking(part: Part) -> bool:
    return _kind(part) in _THINKING


def _is_signed(part: Part) -> bool:
    return _kind(part) == "redacted_thinking" or (_kind(part) == "thinking" and bool(raw_of(part).get("signature")))


def thinking_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Signed thinking of a message that is still there: byte-equal; only that of finished turns may be left out."""
    turn = last_user(sent)
    yield from _thinking_as_text(sent, received, pairs)
    if sent.wire != received.wire:
        return
    for i, j in pairs.items():
        before, after = _blocks(sent.messages[i], _is_signed), _blocks(received.messages[j], _is_thinking)
        missing = [block for block in before if block not in after]
        altered = [block for block in after if block not in before and before]
        if missing and (altered or turn is None or i > turn):
            yield Violation(
                "thinking_changed",
                f"message {i + 1}: {'signed thinking was altered' if altered else 'its thinking is gone'}",
                i,
            )
        elif not missing and [block for block in after if block in before] != before:
            yield Violation("thinking_changed", f"message {i + 1}: signed thinking arrived in another order", i)


def _thinking_as_text(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Thinking on OpenAI's chat wire is text (`reasoning_content`); the other wires take back only what they signed."""
    turn = last_user(sent)
    if received.wire != "openai-chat":
        return
    there = {part.text for message in received.messages for part in message.parts if part.text}
    for i in pairs:
        thoughts = [part.text for part in sent.messages[i].parts if part.kind == "reasoning" and part.text]
        if (turn is None or i > turn) and any(not any(text in one for one in there) for text in thoughts):
            yield Violation("thinking_changed", f"message {i + 1}: its thinking is gone", i)


def reasoning_losses(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Reasoning items of the Responses wire: each goes with the item behind it."""
    for i in _lost(sent, received, pairs, _is_reasoning) if sent.wire == received.wire else ():
        yield Violation("reasoning_item_lost", f"item {i + 1} is gone or altered, what it led to is still there", i)


def _lost(sent: WireRequest, received: WireRequest, pairs: Pairs, wanted: _Wanted) -> Iterator[int]:
    """Messages whose blocks of some sort arrived nowhere, though the model's words or actions that followed from them
    did.
    """
    arrived = set(map(id, received.messages))
    there: set[str] | None = None
    for i, message in enumerate(sent.messages):
        blocks = _blocks(message, wanted) if id(message) not in arrived else []
        if blocks and there is None:
            there = {block for one in received.messages for block in _blocks(one, wanted)}
        missing = [block for block in blocks if block not in (there or ())]
        if not missing:
            continue
        led_to = next((k for k in range(i + 1, len(sent.messages)) if not _blocks(sent.messages[k], _is_item)), None)
        if led_to is not None and led_to in pairs and sent.messages[led_to].role == "assistant":
            yield from [i] * len(missing)


def _is_reasoning(part: Part) -> bool:
    return _kind(part) == "reasoning"


def server_tool_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls and results of the provider's own tools that are not as they were; another provider has no use for them."""
    if sent.wire != received.wire:
        return
    for i, j in altered(sent, received, pairs).items():
        before, after = _blocks(sent.messages[i], _is_server_tool), _blocks(received.messages[j], _is_server_tool)
        if before and before != after:
            yield Violation(
                "server_tool_changed",
                f"message {i + 1}: {len(before)} blocks of the provider's tools are not as they were",
                i,
            )
    for i in _lost(sent, received, pairs, _is_server_tool):
        if i not in pairs:
            yield Violation(
                "server_tool_changed", f"item {i + 1} of the provider's tools is gone, what it led to is still there", i
            )


def _is_item(part: Part) -> bool:
    return _is_reasoning(part) or _is_server_tool(part)


def _is_server_tool(part: Part) -> bool:
    return _kind(part) not in _OWN_ITEMS and _SERVER_TOOLS.fullmatch(_kind(part)) is not None


#: Types of parts that are a thing of their own.
MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "file",
        "input_file",
        "document",
        "audio",
        "input_audio",
        "video",
        "input_video",
    }
)


def media_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Images, files and sound, wherever they stand: each is a thing of its own."""
    left = Counter(content for _, content in _media_of(received))
    missing: list[int] = []
    for i, content in _media_of(sent):
        if left[content]:
            left[content] -= 1
        else:
            missing.append(i)
    others = left.total()
    for place, i in enumerate(missing):
        kind, what = ("media_reencoded", "holds other bytes") if place < others else ("media_lost", "is gone")
        yield Violation(kind, f"message {i + 1}: an image, file or recording {what}", i)


def _media_of(request: WireRequest) -> Iterator[tuple[int, str]]:
    for i, message in enumerate(request.messages):
        for part in message.parts:
            if part.text is None and part.kind in MEDIA:
                yield i, media_identity(raw_of(part))


def media_identity(raw: Mapping[str, Any]) -> str:
    """The identity of a medium: its bytes if they are in the request, else its address; how they are wrapped does not
    count.
    """
    for value in _strings(raw):
        data = value.partition(",")[2] if value.startswith("data:") else value
        if len(data) >= 16 and not value.startswith(("http:", "https:")):
            try:
                return hash_text(base64.b64decode(data, validate=True).hex())
            except (binascii.Error, ValueError):
                continue
    return canonical_json(sorted(value for value in _strings(raw) if value != "ephemeral"))


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value, longest first."""
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            stack += [
                inner
                for key, inner in item.items()
                if key not in ("type", "cache_control", "detail", "media_type", "title")
            ]
        elif isinstance(item, list):
            stack += item
    return iter(sorted(found, key=len, reverse=True))


def broken_tool_pairs(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Calls and results that belonged together and no longer do."""
    orphans_before = Counter(ident for ident, _ in orphan_results(sent))
    for ident, j in orphan_results(received):
        if orphans_before[ident]:
            orphans_before[ident] -= 1
        else:
            yield Violation("orphan_tool_result", f"message {j + 1} answers a call that is not there", j)
    open_before = Counter(ident for ident, _ in unanswered_calls(sent))
    for ident, j in unanswered_calls(received):
        if open_before[ident]:
            open_before[ident] -= 1
        else:
            yield Violation("unanswered_tool_call", f"the call in message {j + 1} has no result", j)


def orphan_results(request: WireRequest) -> Iterator[tuple[str, int]]:
    """Results of tools without the call before them: (id of the call, place of the message)."""
    called: set[str] = set()
    for j, message in enumerate(request.messages):
        if message.role in RESULT_ROLES and str(message.tool_call_id) not in called:
            yield str(message.tool_call_id), j
        called |= {str(call.get("id")) for call in message.tool_calls}
        if message.tool_calls and message.tool_calls[0].get("id") is None:  # legacy: a function is answered by its name
            called.add(str(message.tool_calls[0].get("name")))


def unanswered_calls(request: WireRequest) -> Iterator[tuple[str, int]]:
    """Calls that no result answers: (id, or name where there is none; place of the message)."""
    answered = {str(message.tool_call_id) for message in request.messages if message.tool_call_id}
    for j, message in enumerate(request.messages):
        for call in message.tool_calls:
            name = call.get("id") if call.get("id") is not None else call.get("name")
            if str(name) not in answered:
                yield str(name), j


def argument_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls of the history that are gone, added, twice there, name another tool or have other arguments. On another API
    calls of one message may stand in several, or those of several in one.
    """
    elsewhere = {str(call["id"]): call for one in received.messages for call in one.tool_calls if call.get("id")}
    for i, message in enumerate(sent.messages):
        if i in pairs and received.messages[pairs[i]] is message:
            continue
        arrived = received.messages[pairs[i]].tool_calls if i in pairs else []
        by_id = {str(call.get("id")): call for call in arrived}
        for place, call in enumerate(message.tool_calls):
            other = by_id.get(str(call.get("id"))) or (
                arrived[place] if len(arrived) == len(message.tool_calls) else elsewhere.get(str(call.get("id")))
            )
            if other is None:
                if i in pairs and (arrived or received.messages[pairs[i]].role == "assistant"):
                    yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} is gone", i)
            elif call.get("name") != other.get("name"):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} names another tool", i)
            elif argument_value(call.get("arguments")) != argument_value(other.get("arguments")):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} has other arguments", i)
    yield from _calls_added(sent, received)


def _calls_added(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Calls in a history of which the client knows nothing, or twice what it knows once."""
    before, after = (
        Counter(str(call["id"]) for one in each.messages for call in one.tool_calls if call.get("id"))
        for each in (sent, received)
    )
    if before and not before.keys() & after.keys():
        return  # all ids are others
    for ident, times in (after - before).items():
        j = next(j for j, one in enumerate(received.messages) if ident in [str(c.get("id")) for c in one.tool_calls])
        what = "there twice" if ident in before else "none of the client's"
        yield from [Violation("tool_arguments_changed", f"a call in message {j + 1} is {what}", j)] * times


def argument_value(arguments: Any) -> str:
    """The arguments of a call by what they say, whatever the order of keys and the spaces between."""
    if isinstance(arguments, str):
        try:
            return canonical_json(load_json(arguments)) if arguments.strip() else "{}"
        except ValueError:
            return arguments
    return canonical_json({} if arguments is None else arguments)


_FAILED = re.compile(r"error|fail|exception|denied|traceback", re.IGNORECASE)


def failures_lost(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Results that the client marked as failed and that arrive as good ones; where the wire has no such flag, a word in
    the text says it.
    """
    for i, j in pairs.items():
        arrived = received.messages[j]
        hidden = sent.messages[i].failed and arrived.role in RESULT_ROLES and not arrived.failed
        if hidden and (received.wire == "anthropic" or not _FAILED.search(arrived.text)):
            yield Violation("tool_error_lost", f"message {i + 1}: a failed result arrives as a good one", i)
