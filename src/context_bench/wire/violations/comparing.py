"""A request as it was sent against the one that arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_bench.core.jsontext import load_json, without_nulls
from context_bench.core.keys import canonical_json
from context_bench.wire.alignment import align
from context_bench.wire.conversation import tool_calls_of
from context_bench.wire.request import Part, WireMessage, WireRequest
from context_bench.wire.violations.blocks import reasoning_losses, server_tool_changes, thinking_changes
from context_bench.wire.violations.kinds import Violation
from context_bench.wire.violations.marks import mark_changes
from context_bench.wire.violations.media import media_changes
from context_bench.wire.violations.messages import order_changes, question_changes, role_changes
from context_bench.wire.violations.parameters import header_changes, parameter_changes
from context_bench.wire.violations.tools import argument_changes, broken_tool_pairs, schema_changes


def wire_violations(sent: Sequence[Mapping[str, Any]], received: Sequence[Mapping[str, Any]]) -> list[Violation]:
    """What was done to a list of OpenAI chat messages, apart from shortening texts. `[]`: nothing."""
    return compare_requests(WireRequest("openai-chat", None, _read(sent)), WireRequest("openai-chat", None, _read(received)))


def compare_requests(
    sent: WireRequest,
    received: WireRequest,
    *,
    sent_headers: Mapping[str, str] | None = None,
    received_headers: Mapping[str, str] | None = None,
    sent_raw: bytes | None = None,
    received_raw: bytes | None = None,
) -> list[Violation]:
    """What was done to a request, apart from shortening texts. Headers and raw bodies are compared where both sides are given."""
    pairs = align(sent.messages, received.messages)
    found = [*role_changes(sent, received, pairs), *order_changes(sent, received, pairs), *question_changes(sent, received, pairs)]
    found += [*broken_tool_pairs(sent, received), *argument_changes(sent, received, pairs)]
    found += [*thinking_changes(sent, received, pairs), *reasoning_losses(sent, received, pairs)]
    found += [*server_tool_changes(sent, received, pairs), *media_changes(sent, received), *mark_changes(sent, received, pairs)]
    if sent.wire != received.wire:
        found.append(Violation("wire_changed", f"{sent.wire} → {received.wire}"))
    else:
        found += [*schema_changes(sent.tools, received.tools), *parameter_changes(sent, received)]
    if sent_headers is not None and received_headers is not None:
        found += header_changes(sent_headers, received_headers)
    if sent_raw is not None and received_raw is not None and reserialised(sent_raw, received_raw):
        found.append(Violation("json_reserialised", f"{len(sent_raw)} bytes became {len(received_raw)}, the meaning is the same"))
    return found


def reserialised(sent: bytes, received: bytes) -> bool:
    """Whether two bodies say the same and are not the same bytes; a null field says as much as none."""
    if sent == received:
        return False
    try:
        a, b = load_json(sent), load_json(received)
    except ValueError:
        return False
    if canonical_json(a) == canonical_json(b):
        return True
    return (b"null" in sent or b"null" in received) and canonical_json(without_nulls(a)) == canonical_json(without_nulls(b))


def _read(messages: Sequence[Mapping[str, Any]]) -> list[WireMessage]:
    return [
        WireMessage(str(raw.get("role") or "unknown"), _parts(raw), tool_calls_of(raw), _text(raw.get("tool_call_id"))) for raw in messages
    ]


def _parts(raw: Mapping[str, Any]) -> list[Part]:
    content, mark = raw.get("content"), raw.get("cache_control")
    if isinstance(content, str):
        return [Part("text", content, None, mark)]
    found = []
    for item in content if isinstance(content, list) else []:
        held: Mapping[str, Any] = item if isinstance(item, Mapping) else {"type": "text", "text": item}
        text = held.get("thinking", held.get("text"))
        kind = "reasoning" if held.get("type") == "thinking" else str(held.get("type") or "unknown")
        found.append(Part(kind, text if isinstance(text, str) else None, item, held.get("cache_control")))
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
