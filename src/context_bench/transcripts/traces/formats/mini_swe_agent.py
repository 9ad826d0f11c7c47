"""mini-swe-agent's trajectories (`.traj.json`), versions 1 and 2: one shell command after the other, each in a fresh shell.

Version 1 has one fenced block per answer and its observation in the next message; version 2 has tool calls, `extra.actions`, or items of
the Responses wire. `<explore_context>` and `<PATCH_CONTEXT>` blocks, where an agent was asked to write them, are what it says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.fenced import FENCE, claims, fenced, observation, tool_of
from context_bench.transcripts.traces.recording import (
    Recording,
    mapping,
    money,
    parsed,
    run,
    sequence,
    texts,
)
from context_bench.transcripts.values import text

NAME = "mini-swe-agent"


def matches(sample: list[Any]) -> bool:
    """Whether the first object names the format, or has messages with fenced commands."""
    first = mapping(sample[0] if sample else None)
    if str(first.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    if not isinstance(first.get("info"), Mapping) or not isinstance(first.get("messages"), list):
        return False
    spoken = [mapping(message) for message in first["messages"][:50]]
    return any(m.get("role") == "assistant" and FENCE.search(texts(m.get("content")) or "") for m in spoken)


def recordings(source: Source) -> Iterator[Recording]:
    """One run per object."""
    for value in source.values():
        document = mapping(value)
        if "messages" not in document:
            source.skip("no messages")
            continue
        yield _run(document)


def _run(document: Mapping[str, Any]) -> Recording:
    info = mapping(document.get("info"))
    one = run("mini-swe-agent", document.get("instance_id"))
    config = mapping(info.get("config"))
    one.head.cwd = text(mapping(config.get("environment")).get("cwd"))
    one.head.model = text(mapping(config.get("model")).get("model_name"))
    one.head.cost = money(mapping(info.get("model_stats")).get("instance_cost"))
    one.head.patch = text(info.get("submission"))
    for message in map(mapping, sequence(document.get("messages"))):
        _take(message, one)
    return one


def _take(message: Mapping[str, Any], one: Recording) -> None:
    role, extra = message.get("role"), mapping(message.get("extra"))
    t = one.at(moment(extra.get("timestamp")))
    if role == "assistant" or (role is None and isinstance(message.get("output"), list)):
        one.turns += 1
        said = texts(message.get("content")) or texts(message.get("output")) or ""
        claims(said, one)
        _calls(message, extra, said, one, t)
        told = (mapping(where.get("response")).get("usage") for where in (extra, message))
        one.billed(next((usage for each in told if (usage := usage_of(each, OPENAI)) is not None), None))
    elif role in ("tool", "user") or message.get("type") == "function_call_output":
        _result(message, extra, one)
    elif role == "exit":
        one.head.patch = one.head.patch or text(extra.get("submission"))
    elif role != "system":
        one.skip(f"role {str(role)[:30]}")


def _calls(message: Mapping[str, Any], extra: Mapping[str, Any], said: str, one: Recording, t: float | None) -> None:
    actions = [mapping(action) for action in sequence(extra.get("actions"))]
    if actions:
        found = [(action.get("command"), action.get("tool_call_id")) for action in actions]
    elif calls := sequence(message.get("tool_calls")):
        found = [_function(mapping(call)) for call in calls]
    elif items := sequence(message.get("output")):
        found = [_function(item) for item in map(mapping, items) if item.get("type") == "function_call"]
    else:
        found = [(command, None) for command in fenced(said)]
    for command, ident in found:
        one.call(tool_of(command), {"command": command}, ident, t=t)


def _function(call: Mapping[str, Any]) -> tuple[Any, Any]:
    function = mapping(call.get("function")) or call
    return mapping(parsed(function.get("arguments"))).get("command"), call.get("call_id") or call.get("id")


def _result(message: Mapping[str, Any], extra: Mapping[str, Any], one: Recording) -> None:
    ident = message.get("tool_call_id") or message.get("call_id")
    call = one.find(ident) if ident else next((call for call in one.calls if not call.answered), None) if one.calls else None
    if call is None:
        return  # the task itself
    output, code, call.cut = observation(texts(message.get("content", message.get("output"))) or "", extra)
    call.answer(output, exit_code=code)
