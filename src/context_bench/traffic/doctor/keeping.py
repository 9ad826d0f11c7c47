"""What of a request reaches the provider as it was sent: key, header, roles, parameters, tools, marks, signed blocks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from context_bench.llm.shapes import ShapedRequest
from context_bench.traffic.doctor.asking import Asker, Finding, Seen, Status, first, shapes_of
from context_bench.wire.request import facts
from context_bench.wire.violations import NOTES, phrase, tools_of


async def marks(asker: Asker, working: list[str]) -> list[Finding]:
    """Does our key arrive, and our header?"""
    found: list[Finding] = []
    request = asker.short(working[0] if working else "plain-user")
    by_key, by_header = await asker.ask("key", request, "key"), await asker.ask("header", request, "header")
    key = any(record.matched_by == "key" for record in by_key.records)
    header = any(record.matched_by == "header" for record in by_header.records)
    other = "--marker header" if header else "--marker serial"
    if asker.proxy_key:
        found.append(
            Finding("key forwarded", "unknown", "the proxy checks a key of its own, so ours is not sent as one", f"run with {other}")
        )
    elif key:
        found.append(Finding("key forwarded", "ok", "the client's key reaches the provider"))
    else:
        found.append(
            Finding("key forwarded", "warn", "the client's key does not reach the provider: it is dropped or replaced", f"run with {other}")
        )
    if header:
        found.append(Finding("header forwarded", "ok", "x-context-bench reaches the provider"))
    else:
        advice = "" if key else "run with --marker serial"
        found.append(Finding("header forwarded", "warn", "x-context-bench does not reach the provider", advice))
    return found


#: What is asked of each kind of change: title, how bad it is, what it means.
_KINDS: dict[str, tuple[str, Status, str]] = {
    "role": ("roles", "fail", "the model no longer sees who said what"),
    "messages": ("messages", "warn", "the number of messages is part of what was tested"),
    "param": ("parameters", "warn", "set the same values in the proxy, or compare with this in mind"),
    "tools": ("tools", "warn", "an agent's tools must arrive as they are"),
    "cache_control": ("cache_control", "fail", "without the marks the provider caches nothing of the prompt, which costs more"),
    "model": ("model", "warn", "another model answers than the one that was asked"),
}


async def kept(asker: Asker, working: list[str]) -> list[Finding]:
    """Do roles, messages, parameters, tools, marks, model and signed blocks arrive as they were sent?"""
    options: dict[str, Any] = {"system_prompt": "Answer briefly.", "params": {"temperature": 0.25, "metadata": {"user_id": "doctor"}}}
    seen = {shape: await asker.ask(f"kept {shape}", asker.short(shape, **options)) for shape in shapes_of(working)}
    compared = {shape: one for shape, one in seen.items() if one.compared is not None}
    found = [_tools(compared) if kind == "tools" else _kept_kind(kind, compared) for kind in _KINDS]
    for shape, (title, put, violation) in _SIGNED.items():
        if shape in working:
            found.append(_signed(title, violation, await asker.ask(title, put(asker.short(shape)))))
    unknown = await asker.ask("unknown", asker.short(working[0], params={"x_unknown_parameter": [1]}))
    return [*found, _unknown_parameter(unknown)]


def _kept_kind(kind: str, compared: dict[str, Seen]) -> Finding:
    title, bad, meaning = _KINDS[kind]
    if not compared:
        return Finding(title, "unknown", "no request arrived on the wire on which it was sent")
    lost = [f"{shape}: {change.detail}" for shape, seen in compared.items() for change in seen.changes if change.kind == kind]
    if not lost:
        return Finding(title, "ok", f"unchanged in {len(compared)} shapes")
    return Finding(title, bad, first(lost, 4), meaning)


def _tools(compared: dict[str, Seen]) -> Finding:
    """By name, where bodies are kept: words about a tool may become fewer, the tool must stay."""
    told = {shape: seen.violations for shape, seen in compared.items()}
    if not told or any(violations is None for violations in told.values()):
        return _kept_kind("tools", compared)
    title, bad, meaning = _KINDS["tools"]
    by_shape = {shape: tools_of(violations or []) for shape, violations in told.items()}
    lost = [f"{shape}: {phrase(kind, names)}" for shape, kinds in by_shape.items() for kind, names in kinds.items() if kind not in NOTES]
    if lost:
        return Finding(title, bad, first(lost, 4), meaning)
    words = [f"{shape}: {', '.join(names[:3])}" for shape, kinds in by_shape.items() for names in kinds.values()]
    if words:
        return Finding(title, "ok", f"the same, described in other words ({first(words, 3)})")
    return Finding(title, "ok", f"unchanged in {len(compared)} shapes")


def _unknown_parameter(seen: Seen) -> Finding:
    if seen.error is not None:
        return Finding("unknown parameters", "warn", f"refused: {seen.error}", "new provider features will not work through this proxy")
    if any("x_unknown_parameter" in change.detail for change in seen.changes):
        return Finding("unknown parameters", "warn", "dropped", "new provider features will not work through this proxy")
    if seen.main is None or not seen.main.facts:
        return Finding("unknown parameters", "unknown", "it was not seen what became of one")
    return Finding("unknown parameters", "ok", "passed on")


# Blocks that only the provider can read ---------------------------------------------------------------------------------------------------

#: Made up: a provider that checks signatures refuses them, after they have arrived.
_SIGNATURE = "ZG9jdG9yOiBub3QgYSBzaWduYXR1cmUgb2YgYW55IG1vZGVs"


def _thinking(request: ShapedRequest) -> ShapedRequest:
    """An agent's turn in progress, with the signed thinking that led to its call."""
    body = copy.deepcopy(request.body)
    asked = next(message for message in body["messages"] if message["role"] == "assistant")
    asked["content"].insert(0, {"type": "thinking", "thinking": "The file will say when.", "signature": _SIGNATURE})
    body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    return ShapedRequest(request.wire, request.path, request.headers, body)


def _reasoning(request: ShapedRequest) -> ShapedRequest:
    """The same on the Responses wire: a reasoning item before the call that it led to."""
    body = copy.deepcopy(request.body)
    place = next(i for i, item in enumerate(body["input"]) if item["type"] == "function_call")
    body["input"].insert(place, {"type": "reasoning", "id": "rs_doctor", "summary": [], "encrypted_content": _SIGNATURE})
    return ShapedRequest(request.wire, request.path, request.headers, body)


#: By shape: title of the finding, what puts the block in, what losing it is called.
_SIGNED: dict[str, tuple[str, Callable[[ShapedRequest], ShapedRequest], str]] = {
    "claude-code": ("thinking blocks", _thinking, "thinking_changed"),
    "codex": ("reasoning items", _reasoning, "reasoning_item_lost"),
}


def _signed(title: str, violation: str, seen: Seen) -> Finding:
    """What became of the block, whatever the provider then said of it."""
    main, violations = seen.compared, seen.violations
    meaning = "by the providers' documentation a turn in progress needs its signed blocks as they were: agents that think may fail"
    if main is None or not main.facts.get("parts"):
        return Finding(title, "unknown", "no such request arrived on the wire on which it was sent")
    if violations is None:
        before, after = (sum(kinds.count("reasoning") for kinds in told["parts"]) for told in (facts(seen.request.parsed()), main.facts))
        if after < before:
            return Finding(title, "fail", "dropped from the turn in progress", meaning)
        return Finding(title, "ok", "arrive; whether they are altered is not visible to a tap that keeps no bodies")
    if lost := next((one for one in violations if one.kind == violation), None):
        return Finding(title, "fail", f"dropped or altered in the turn in progress ({lost.kind}: {lost.detail})", meaning)
    return Finding(title, "ok", "unchanged in the turn in progress")
