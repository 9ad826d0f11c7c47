"""Cursor CLI's `--output-format stream-json`: calls as started and completed lines, paired by `call_id`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import EDITORS, moment, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, text, texts
from context_bench.transcripts.transcript import Transcript, run


def sniff(peek: Peek) -> bool:
    """True if a line is a call of this program, or the head of a stream without a list of tools."""
    return any(
        (
            "tool_call" in row
            and row.get("type") == "tool_call"
            and isinstance(row["tool_call"], Mapping)
            and "subtype" in row
        )
        or (
            "apiKeySource" in row
            and row.get("type") == "system"
            and row.get("subtype") == "init"
            and "tools" not in row
        )
        for row in map(mapping, peek.sample)
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per session id in the file."""
    runs: dict[str, Transcript] = {}
    models: dict[str, Any] = {}
    for row in map(mapping, source.values()):
        name = text(row.get("session_id")) or next(reversed(runs), "")
        one = runs.setdefault(name, run("cursor", None))
        if why := _take(row, one, models, name):
            one.skip(why)
    yield from (one for one in runs.values() if one.filled or one.cwd)


def _take(row: Mapping[str, Any], one: Transcript, models: dict[str, Any], name: str) -> str | None:
    kind, t = row.get("type"), one.at(moment(row.get("timestamp_ms")))
    if kind == "system" and row.get("subtype") == "init":
        one.cwd, one.model = text(row.get("cwd")), text(row.get("model"))
    elif kind == "tool_call":
        asked = row.get("model_call_id")
        if asked is None or models.get(name) != asked:
            models[name] = asked
            one.turns += 1
        return _tool(row, one, t)
    elif kind == "result":
        one.usage = usage_of(row.get("usage"), EDITORS)
    elif kind == "user":
        one.given("user", texts(mapping(row.get("message")).get("content")), t)
    elif kind == "assistant":
        reply = one.speaking(text(row.get("model_call_id")), at=t)
        if said := texts(mapping(row.get("message")).get("content")):
            reply.say(said)
    elif kind != "thinking":
        return f"type {str(kind)[:40]}"
    return None


def _tool(row: Mapping[str, Any], one: Transcript, t: float | None) -> str | None:
    ident = row.get("call_id")
    name, body = next(
        ((name, mapping(body)) for name, body in mapping(row.get("tool_call")).items() if isinstance(body, Mapping)),
        (None, {}),
    )
    if name is None:
        return "a call without a tool"
    if name == "function":  # a tool without a name of its own here
        name, body = str(body.get("name")), {**body, "args": body.get("arguments")}
    call = one.find(ident)
    if call is None:
        call = one.call(name, body.get("args"), ident, t=t)
        one.speaking(text(row.get("model_call_id")), at=t).calls.append(call)
    if row.get("subtype") != "completed":
        return None
    result = mapping(body.get("result"))
    good = mapping(result.get("success"))
    told = good or next((mapping(part) for part in result.values() if isinstance(part, Mapping)), {})
    failed = True if "success" not in result and result else None
    call.cut = bool(good.get("exceededLimit"))
    call.answer(_output(told), failed=failed, exit_code=whole(told.get("exitCode")), structured=good)
    return None


def _output(told: Mapping[str, Any]) -> str:
    if "stdout" in told or "stderr" in told:
        parts = (told.get("stdout"), told.get("stderr"))
        return "\n".join(part.removesuffix("\n") for part in parts if isinstance(part, str) and part)
    content = texts(told.get("content"))
    return (
        content
        if content is not None
        else text(told.get("errorMessage")) or text(told.get("message")) or _matches(told)
    )


def _matches(told: Mapping[str, Any]) -> str:
    """A search's result, which is an object here, as a search prints it."""
    lines: list[str] = []
    stack: list[Any] = [told]
    while stack and len(lines) < 100_000:
        value = stack.pop()
        if isinstance(value, Mapping):
            path = text(value.get("file")) or text(value.get("path"))
            found = value.get("matches")
            if path and isinstance(found, list):
                lines += [
                    f"{path}:{hit.get('lineNumber')}:{hit.get('content', '')}"
                    for hit in map(mapping, found)
                    if whole(hit.get("lineNumber"))
                ]
            else:
                stack += reversed(list(value.values()))
        elif isinstance(value, list):
            stack += reversed(value)
    return "\n".join(lines) if lines else canonical_json(dict(told)) if told else ""


FORMAT = Format("cursor", 160, sniff, read)
