"""Fields of the body beside messages and tools, and the headers that change what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.wire.request import WireRequest, stated
from context_bench.wire.violations.kinds import Violation

#: Parameters that have a kind of their own.
_TOLD_APART = frozenset(
    {"tool_choice", "response_format", "text", "output_format", "output_config", "thinking", "previous_response_id", "cache_control"}
)


def parameter_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Settings that are added, gone or mean something else."""
    a, b = stated(sent.params), stated(received.params)
    if _choice(a, sent) != _choice(b, received):
        yield Violation("tool_choice_changed", _change("tool_choice", a, b))
    for name in ("response_format", "output_format", "output_config", "text"):
        if canonical_json(a.get(name)) != canonical_json(b.get(name)):
            yield Violation("response_format_changed", _change(name, a, b))
    if canonical_json(a.get("thinking")) != canonical_json(b.get("thinking")):
        yield Violation("thinking_changed", _change("thinking", a, b))
    if a.get("previous_response_id") != b.get("previous_response_id"):
        yield Violation("previous_response_id_changed", _change("previous_response_id", a, b))
    if sent.model != received.model:
        yield Violation("params_changed", "another model")
    if sent.stream != received.stream:
        yield Violation("params_changed", f"stream {sent.stream} → {received.stream}")
    for name in sorted((a.keys() | b.keys()) - _TOLD_APART):
        if name not in a or name not in b or canonical_json(a[name]) != canonical_json(b[name]):
            yield Violation("params_changed", _change(name, a, b))


def _change(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    return f"{name} {'was added' if name not in a else 'is gone' if name not in b else 'has another value'}"


def _choice(params: Mapping[str, Any], request: WireRequest) -> str:
    """What `tool_choice` comes to: left out, it is `auto` where there are tools and `none` where there are none."""
    given = params.get("tool_choice")
    if given is None:
        given = "auto" if request.tools else "none"
    if isinstance(given, Mapping) and given.keys() == {"type"}:
        given = given["type"]
    return canonical_json(given)


def header_changes(sent: Mapping[str, str], received: Mapping[str, str]) -> Iterator[Violation]:
    """Beta features and API versions that were asked for and did not arrive."""
    before, after = _lower(sent), _lower(received)
    for name in ("anthropic-beta", "openai-beta"):
        lost = sorted(_items(before.get(name)) - _items(after.get(name)))
        if lost:
            yield Violation("beta_header_lost", f"{name}: {', '.join(lost)}")
    if "anthropic-version" in before and before["anthropic-version"] != after.get("anthropic-version"):
        yield Violation("beta_header_lost", "anthropic-version is another or gone")


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    """By lower-case name; a header that stands there more than once is one list."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


def _items(value: str | None) -> set[str]:
    return {item.strip() for item in (value or "").split(",") if item.strip()}
