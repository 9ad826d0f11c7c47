"""Claude Code's `--output-format stream-json --verbose` (and `json --verbose`, the same as one list).

The prompt is not part of this log unless the program was told to repeat it. Sub-agents (`parent_tool_use_id`) are
sessions of their own; the closing `result` line gives totals and the price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.numbers import money
from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, View, mapping, sequence, text
from context_bench.transcripts.formats.claude_code_transcript import ClaudeRun
from context_bench.transcripts.transcript import Transcript

NAME = "claude-code-stream"
_RESULT = ("total_cost_usd", "num_turns", "duration_ms", "is_error")


def sniff(peek: Peek) -> bool:
    """True if the lines are this stream: an `init` line with tools, or messages with `parent_tool_use_id` and
    `session_id`.
    """
    if any(isinstance(value, dict) and value.get("type") == "tool_call" for value in peek.sample):
        return False  # another program's stream, which has the same first line
    return any(isinstance(value, dict) and _is_ours(value) for value in peek.sample)


def _is_ours(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "system":
        return value.get("subtype") == "init" and isinstance(value.get("tools"), list) and "session_id" in value
    return (
        value.get("type") in ("user", "assistant")
        and "parent_tool_use_id" in value
        and isinstance(value.get("message"), Mapping)
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """The runs of the file, told apart by their session ids, and those of their sub-agents."""
    return from_values(source.values(), source.skip, source.view)


def from_values(values: Iterable[Any], skip: Callable[[str], None], view: View = "whole") -> Iterator[Transcript]:
    """The same, of values."""
    runs: dict[str, ClaudeRun] = {}
    for value in values:
        name = text(mapping(value).get("session_id")) or next(reversed(runs), "")
        run = runs.get(name)
        if run is None:
            run = runs[name] = ClaudeRun(log_format=NAME, view=view)
            run.one.format = NAME
            run.thread(None, name)
        if why := _take(mapping(value), run, name):
            skip(why)
    for run in runs.values():
        for one in run.transcripts():
            one.meta, one.tools = {**run.one.meta, "sidechain": one.helper}, run.one.tools
            if one.filled or one.helper:
                yield one


def _take(value: Mapping[str, Any], run: ClaudeRun, name: str) -> str | None:
    """Read one line; returns why it is passed over."""
    kind, one, message = value.get("type"), run.one, value.get("message")
    if kind == "system":
        return _system(value, run)
    if kind == "result":
        one.meta["result"] = {key: value[key] for key in _RESULT if value.get(key) is not None}
        one.meta["usage"] = usage_of(value.get("usage"), ANTHROPIC)
        one.usage, one.cost = one.meta["usage"] or one.usage, money(value.get("total_cost_usd"))
        return None
    if kind not in ("user", "assistant") or not isinstance(message, Mapping):
        return f"type {str(kind)[:40]}"
    if run.repeated(value.get("uuid")):
        return "repeated"
    parent = None if value.get("parent_tool_use_id") is None else text(value["parent_tool_use_id"]) or "agent"
    thread = run.thread(parent, f"{name}/{parent}")
    if kind == "assistant":
        run.assistant(thread, value, message)
    else:
        run.user(thread, value, message, value.get("tool_use_result"), None)
    return None


def _system(value: Mapping[str, Any], run: ClaudeRun) -> str | None:
    one = run.one
    if value.get("subtype") == "init":
        one.cwd, one.model = one.cwd or text(value.get("cwd")), one.model or text(value.get("model"))
        one.tools = [name for name in sequence(value.get("tools")) if isinstance(name, str)]
        facts = {"cwd": value.get("cwd"), "version": value.get("claude_code_version")}
        one.meta.update({name: item for name, item in facts.items() if isinstance(item, str)})
        return None
    if value.get("subtype") == "compact_boundary":
        run.threads[None].compacted()
        one.strays["type system/compact_boundary"] += 1
        return None
    return f"type system/{str(value.get('subtype'))[:40]}"


FORMAT = Format(NAME, 170, sniff, read, conversation=True)
