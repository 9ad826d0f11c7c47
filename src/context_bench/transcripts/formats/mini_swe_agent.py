"""mini-swe-agent's trajectories (`.traj.json`), versions 1 and 2: one shell command after the other, each in a fresh
shell.

Version 1 has one fenced block per answer and its observation in the next message; version 2 has tool calls,
`extra.actions`, or items of the Responses wire. `<explore_context>` and `<PATCH_CONTEXT>` blocks, where an agent was
asked to write them, are what it says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import OPENAI, moment, money, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
from context_bench.transcripts.transcript import FENCE, ToolCall, Transcript, claims, fenced, observation, run, tool_of

NAME = "mini-swe-agent"


def sniff(peek: Peek) -> bool:
    """True if the first object names the format, or has messages with fenced commands."""
    first = peek.first
    if str(first.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    if not isinstance(first.get("info"), Mapping) or not isinstance(first.get("messages"), list):
        return False
    spoken = [mapping(message) for message in first["messages"][:50]]
    return any(m.get("role") == "assistant" and FENCE.search(texts(m.get("content")) or "") for m in spoken)


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per object."""
    return map(_run, source.rows(lambda row: "messages" in row, "no messages"))


def _run(document: Mapping[str, Any]) -> Transcript:
    info = mapping(document.get("info"))
    one = run(NAME, document.get("instance_id"), opened=True)
    config = mapping(info.get("config"))
    one.cwd = text(mapping(config.get("environment")).get("cwd"))
    one.model = text(mapping(config.get("model")).get("model_name"))
    one.cost = money(mapping(info.get("model_stats")).get("instance_cost"))
    one.patch = text(info.get("submission"))
    for message in map(mapping, sequence(document.get("messages"))):
        _take(message, one)
    return one


def _take(message: Mapping[str, Any], one: Transcript) -> None:
    role, extra = message.get("role"), mapping(message.get("extra"))
    t = one.at(moment(extra.get("timestamp")))
    if role == "assistant" or (role is None and isinstance(message.get("output"), list)):
        one.turns += 1
        said = texts(message.get("content")) or texts(message.get("output")) or ""
        claims(said, one)
        reply = one.reply(said or None, at=t, thoughts=texts(message.get("reasoning_content")) or "")
        reply.calls = _calls(message, extra, said, one, t)
        told = (mapping(where.get("response")).get("usage") for where in (extra, message))
        reply.usage = next((usage for each in told if (usage := usage_of(each, OPENAI)) is not None), None)
        one.billed(reply.usage)
    elif role in ("tool", "user") or message.get("type") == "function_call_output":
        _result(message, extra, one)
    elif role == "exit":
        one.patch = one.patch or text(extra.get("submission"))
    elif role == "system":
        one.given("system", texts(message.get("content")), t)
    else:
        one.skip(f"role {str(role)[:30]}")


def _calls(
    message: Mapping[str, Any], extra: Mapping[str, Any], said: str, one: Transcript, t: float | None
) -> list[ToolCall]:
    actions = [mapping(action) for action in sequence(extra.get("actions"))]
    if actions:
        found = [(action.get("command"), action.get("tool_call_id")) for action in actions]
    elif calls := sequence(message.get("tool_calls")):
        found = [_function(mapping(call)) for call in calls]
    elif items := sequence(message.get("output")):
        found = [_function(item) for item in map(mapping, items) if item.get("type") == "function_call"]
    else:
        found = [(command, None) for command in fenced(said)]
    return [one.call(tool_of(command), {"command": command}, ident, t=t) for command, ident in found]


def _function(call: Mapping[str, Any]) -> tuple[Any, Any]:
    function = mapping(call.get("function")) or call
    return mapping(parsed(function.get("arguments"))).get("command"), call.get("call_id") or call.get("id")


def _result(message: Mapping[str, Any], extra: Mapping[str, Any], one: Transcript) -> None:
    ident = message.get("tool_call_id") or message.get("call_id")
    call = (
        one.find(ident)
        if ident
        else next((call for call in one.calls if not call.answered), None)
        if one.calls
        else None
    )
    said = texts(message.get("content", message.get("output"))) or ""
    if call is None:  # the task itself
        one.given("user", said)
        return
    output, code, call.cut = observation(said, extra)
    call.answer(output, exit_code=code)


FORMAT = Format(NAME, 110, sniff, read, conversation=True)
