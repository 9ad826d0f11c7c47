"""Blocks that are not a proxy's to touch: signed thinking, reasoning items, calls of the provider's own tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from context_bench.core.jsontext import without_nulls
from context_bench.core.keys import canonical_json
from context_bench.wire.alignment import Pairs
from context_bench.wire.request import Part, WireMessage, WireRequest
from context_bench.wire.violations.kinds import Violation
from context_bench.wire.violations.messages import last_user

_SERVER_TOOLS = re.compile(
    r"server_tool_use|mcp_tool_use|mcp_tool_result|mcp_list_tools|mcp_approval_\w+|\w+_call|\w+_call_output|\w+_tool_result(?:_error)?"
)
_OWN_ITEMS = frozenset({"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "tool_result"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_Wanted = Callable[[Part], bool]


def raw_of(part: Part) -> Mapping[str, Any]:
    """The item of the body that a part was read from; empty where it was a plain text."""
    return part.raw if isinstance(part.raw, Mapping) else {}


def _kind(part: Part) -> str:
    return str(raw_of(part).get("type") or "")


def _blocks(message: WireMessage, wanted: _Wanted) -> list[str]:
    """The canonical form of a message's blocks of some sort, each once (one raw item may have given several parts), marks left out."""
    found: dict[int, str] = {}
    for part in message.parts:
        if wanted(part):
            found.setdefault(id(part.raw), _meaning(raw_of(part)))
    return list(found.values())


def _meaning(raw: Mapping[str, Any]) -> str:
    """A block without what says nothing: marks, null fields, and the empty content of a reasoning item that has none to show."""
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
    for i, j in pairs.items():
        before, after = _blocks(sent.messages[i], _is_signed), _blocks(received.messages[j], _is_thinking)
        missing = [block for block in before if block not in after]
        altered = [block for block in after if block not in before and before]
        if missing and (altered or turn is None or i > turn):
            yield Violation(
                "thinking_changed", f"message {i + 1}: {'signed thinking was altered' if altered else 'its thinking is gone'}", i
            )
        elif not missing and [block for block in after if block in before] != before:
            yield Violation("thinking_changed", f"message {i + 1}: signed thinking arrived in another order", i)


def reasoning_losses(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Reasoning items of the Responses wire: each goes with the item behind it."""
    for i in _lost(sent, received, pairs, _is_reasoning):
        yield Violation("reasoning_item_lost", f"item {i + 1} is gone or altered, what it led to is still there", i)


def _lost(sent: WireRequest, received: WireRequest, pairs: Pairs, wanted: _Wanted) -> Iterator[int]:
    """Where blocks of some sort stood that arrived nowhere, though what the model said or did because of them did."""
    there = {block for message in received.messages for block in _blocks(message, wanted)}
    for i, message in enumerate(sent.messages):
        missing = [block for block in _blocks(message, wanted) if block not in there]
        if not missing:
            continue
        led_to = next((k for k in range(i + 1, len(sent.messages)) if not _blocks(sent.messages[k], _is_item)), None)
        if led_to is not None and led_to in pairs and sent.messages[led_to].role == "assistant":
            yield from [i] * len(missing)


def _is_reasoning(part: Part) -> bool:
    return _kind(part) == "reasoning"


def server_tool_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls and results of the provider's own tools that are not as they were."""
    for i, j in pairs.items():
        before, after = _blocks(sent.messages[i], _is_server_tool), _blocks(received.messages[j], _is_server_tool)
        if before and before != after:
            yield Violation("server_tool_changed", f"message {i + 1}: {len(before)} blocks of the provider's tools are not as they were", i)
    for i in _lost(sent, received, pairs, _is_server_tool):
        if i not in pairs:
            yield Violation("server_tool_changed", f"item {i + 1} of the provider's tools is gone, what it led to is still there", i)


def _is_item(part: Part) -> bool:
    return _is_reasoning(part) or _is_server_tool(part)


def _is_server_tool(part: Part) -> bool:
    return _kind(part) not in _OWN_ITEMS and _SERVER_TOOLS.fullmatch(_kind(part)) is not None
