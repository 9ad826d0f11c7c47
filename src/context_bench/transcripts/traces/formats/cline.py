"""Cline's sessions: `{sessionId, messages[…]}` with blocks as Anthropic has them; older releases keep the list of messages alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.usage import EDITORS, usage_of
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.claude import ClaudeRun
from context_bench.transcripts.traces.recording import Recording, mapping, money, run, sequence
from context_bench.transcripts.values import text

NAME = "cline"


def matches(sample: list[Any]) -> bool:
    """Whether the first object is a session with messages of blocks, or the file is a list of these."""
    first = mapping(sample[0] if sample else None)
    if isinstance(first.get("sessionId"), str) and isinstance(first.get("messages"), list):
        return "projectHash" not in first
    spoken = [mapping(value) for value in sample]
    return len(spoken) > 1 and all(_spoken(message) for message in spoken[:20]) and any(_uses(message) for message in spoken)


def _spoken(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("user", "assistant") and isinstance(message.get("content"), list) and "type" not in message


def _uses(message: Mapping[str, Any]) -> bool:
    return any(mapping(block).get("type") == "tool_use" for block in sequence(message.get("content")))


def recordings(source: Source) -> Iterator[Recording]:
    """One run per session; a bare list of messages is one."""
    bare = ClaudeRun(run("cline", None, lasting_shell=False))
    for row in map(mapping, source.values()):
        if isinstance(row.get("messages"), list):
            yield _session(row)
        elif _spoken(row):
            _message(row, bare)
        else:
            source.skip("not a message")
    if bare.recording.told:
        yield bare.finished()


def _result(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result as the model was given it: tools that do several things return a list of what came of each, which is sent as JSON."""
    content = block.get("content")
    if isinstance(content, list) and content and all("query" in part and "success" in part for part in map(mapping, content)):
        return {**block, "content": canonical_json(content)}
    return block


def _session(row: Mapping[str, Any]) -> Recording:
    one = ClaudeRun(run("cline", None, lasting_shell=False))
    one.recording.head.cwd = text(row.get("cwd"))
    for message in map(mapping, sequence(row.get("messages"))):
        _message(message, one)
    return one.finished()


def _message(message: Mapping[str, Any], one: ClaudeRun) -> None:
    line = {"timestamp": message.get("ts")}
    if message.get("role") == "assistant":
        one.assistant(line, message, sidechain=False)
        one.recording.head.model = one.recording.head.model or text(mapping(message.get("modelInfo")).get("id"))
        told = mapping(message.get("metrics"))
        one.recording.billed(usage_of(told, EDITORS))
        if (cost := money(told.get("cost"))) is not None:
            one.recording.head.cost = (one.recording.head.cost or 0.0) + cost
    elif message.get("role") == "user":
        one.user(line, {**message, "content": [_result(mapping(block)) for block in sequence(message.get("content"))]}, None)
    else:
        one.recording.skip(f"role {str(message.get('role'))[:30]}")
