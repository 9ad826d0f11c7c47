"""Claude Code's `--output-format stream-json --verbose` (and `json --verbose`, the same as one list).

The prompt is not part of this log unless the program was told to repeat it. Sub-agents (`parent_tool_use_id`) are sessions of their own;
the closing `result` line gives totals and the price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.claude import Thread
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import text

NAME = "claude-code-stream"
_RESULT = ("total_cost_usd", "num_turns", "duration_ms", "is_error")


def matches(sample: list[Any]) -> bool:
    """Whether the lines are this stream: an `init` line with tools, or messages with `parent_tool_use_id` and `session_id`."""
    if any(isinstance(value, dict) and value.get("type") == "tool_call" for value in sample):
        return False  # another program's stream, which has the same first line
    return any(isinstance(value, dict) and _ours(value) for value in sample)


def _ours(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "system":
        return value.get("subtype") == "init" and isinstance(value.get("tools"), list) and "session_id" in value
    return value.get("type") in ("user", "assistant") and "parent_tool_use_id" in value and isinstance(value.get("message"), Mapping)


@dataclass
class _Run:
    """What a whole stream tells: the threads by the call that started them, and the facts of the run."""

    ident: str
    threads: dict[str | None, Thread] = field(default_factory=lambda: {None: Thread()})
    tools: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)


def sessions(source: Source) -> Iterator[Session]:
    """The sessions of the file; several runs in one file are told apart by their session ids."""
    runs: dict[str, _Run] = {}
    for value in source.values():
        why = _take(value, runs, source.path.stem)
        if why:
            source.skip(why)
    skipped = source.skipped_counts()
    for run in runs.values():
        for parent, thread in run.threads.items():
            if thread.answers:
                meta = {"format": NAME, **run.meta, "sidechain": parent is not None, "skipped": skipped}
                skipped = {}
                yield thread.session(f"{run.ident}/{parent}" if parent else run.ident, str(source.path), meta, run.tools)


def _take(value: Any, runs: dict[str, _Run], fallback: str) -> str | None:
    if not isinstance(value, Mapping):
        return "not an object"
    kind = value.get("type")
    ident = text(value.get("session_id")) or next(reversed(runs), fallback)
    if kind == "system":
        return _system(value, runs.setdefault(ident, _Run(ident)))
    if kind == "result":
        run = runs.setdefault(ident, _Run(ident))
        run.meta["result"] = {name: value[name] for name in _RESULT if value.get(name) is not None}
        run.meta["usage"] = usage_of(value.get("usage"), ANTHROPIC)
        return None
    message = value.get("message")
    if kind not in ("user", "assistant") or not isinstance(message, Mapping):
        return f"type {str(kind)[:40]}"
    thread = runs.setdefault(ident, _Run(ident)).threads.setdefault(text(value.get("parent_tool_use_id")), Thread())
    own = text(value.get("uuid"))
    if thread.seen(own):
        return "repeated"
    if kind == "assistant":
        thread.assistant(message, value.get("timestamp"), own)
    else:
        thread.user(message, own, None)
    return None


def _system(value: Mapping[str, Any], run: _Run) -> str | None:
    if value.get("subtype") == "init":
        run.tools = [name for name in value["tools"] if isinstance(name, str)] if isinstance(value.get("tools"), list) else []
        told = {"cwd": value.get("cwd"), "version": value.get("claude_code_version")}
        run.meta.update({name: item for name, item in told.items() if isinstance(item, str)})
        return None
    if value.get("subtype") == "compact_boundary":
        run.threads[None].compacted()
        return None
    return f"type system/{str(value.get('subtype'))[:40]}"
