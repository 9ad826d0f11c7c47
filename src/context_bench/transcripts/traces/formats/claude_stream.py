"""Claude Code's `-p --output-format stream-json --verbose`, and the same list as one array (`--output-format json --verbose`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.formats.claude_code_stream import matches as matches
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.claude import ClaudeRun
from context_bench.transcripts.traces.recording import Recording, mapping, money
from context_bench.transcripts.values import text

NAME = "claude-code-stream"


def recordings(source: Source) -> Iterator[Recording]:
    """One recording per session id in the file."""
    return from_values(source.values())


def from_values(values: Iterable[Any]) -> Iterator[Recording]:
    """The same, of values."""
    runs: dict[str, ClaudeRun] = {}
    for value in values:
        line = mapping(value)
        name = text(line.get("session_id")) or next(reversed(runs), "")
        one = runs.get(name)
        if one is None:
            one = runs[name] = ClaudeRun(log_format="claude-code-stream")
        if why := _take(line, one):
            one.recording.skip(why)
    yield from (one.finished() for one in runs.values() if one.recording.told)


def _take(line: Mapping[str, Any], one: ClaudeRun) -> str | None:
    kind, head, message = line.get("type"), one.recording.head, line.get("message")
    if kind == "system" and line.get("subtype") == "init":
        head.cwd = head.cwd or text(line.get("cwd"))
        head.model = head.model or text(line.get("model"))
        return None
    if kind == "result":
        head.usage = usage_of(line.get("usage"), ANTHROPIC) or head.usage
        head.cost = money(line.get("total_cost_usd"))
        return None
    if kind not in ("user", "assistant") or not (type(message) is dict or isinstance(message, Mapping)):
        return f"type {str(kind)[:30]}" + (f"/{str(line.get('subtype'))[:30]}" if kind == "system" else "")
    if one.repeated(line.get("uuid")):
        return "repeated"
    if kind == "assistant":
        one.assistant(line, message, sidechain=line.get("parent_tool_use_id") is not None)
    else:
        one.user(line, message, line.get("tool_use_result"))
    return None
