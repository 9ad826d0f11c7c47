"""Codex's `exec --json`: events about items, of which only the completed ones are read.

The log tells commands and their output, not the calls themselves, nor the prompt: calls are put together from what ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.responses import Rollout
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import text

NAME = "codex-exec"


def matches(sample: list[Any]) -> bool:
    """Whether a line opens a thread."""
    return any(isinstance(value, dict) and "thread_id" in value and value.get("type") == "thread.started" for value in sample)


def sessions(source: Source) -> Iterator[Session]:
    """One session per thread in the file."""
    found: list[tuple[str, Rollout, dict[str, Any]]] = []
    for value in source.values():
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind == "thread.started":
            found.append((text(value.get("thread_id")) or source.path.stem, Rollout(), {}))
        elif not found:
            source.skip("before any thread")
        elif why := _take(value, *found[-1][1:]):
            source.skip(why)
    skipped = source.skipped_counts()
    for ident, rollout, meta in found:
        if rollout.answers:
            yield rollout.session(ident, str(source.path), {"format": NAME, **meta, "skipped": skipped})
            skipped = {}


def _take(value: Any, rollout: Rollout, meta: dict[str, Any]) -> str | None:
    if not isinstance(value, Mapping):
        return "not an object"
    kind, item = value.get("type"), value.get("item")
    if kind == "item.completed" and isinstance(item, Mapping):
        return _item(item, rollout)
    if kind == "turn.completed":
        if (usage := usage_of(value.get("usage"), OPENAI)) is not None:
            meta["usage"] = meta["usage"] + usage if "usage" in meta else usage
        return None
    return f"type {str(kind)[:40]}"


def _item(item: Mapping[str, Any], rollout: Rollout) -> str | None:
    kind, ident = item.get("type"), text(item.get("id")) or f"item_{len(rollout.items)}"
    if kind == "agent_message":
        rollout.made({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": str(item.get("text") or "")}]})
    elif kind == "reasoning":
        rollout.made({"type": "reasoning", "summary": [{"type": "summary_text", "text": str(item.get("text") or "")}]})
    elif kind == "command_execution":
        code, output = item.get("exit_code"), str(item.get("aggregated_output") or "")
        _call(rollout, ident, "shell", {"command": item.get("command")}, f"Exit code: {code}\nOutput:\n{output}" if code else output)
    elif kind == "file_change":
        _call(rollout, ident, "apply_patch", {"changes": item.get("changes")}, str(item.get("status") or ""))
    elif kind == "mcp_tool_call":
        result = item.get("error") or item.get("result")
        name = f"mcp__{item.get('server')}__{item.get('tool')}"
        _call(rollout, ident, name, item.get("arguments"), result if isinstance(result, str) else canonical_json(result))
    elif kind == "todo_list":
        _call(rollout, ident, "update_plan", {"items": item.get("items")}, "")
    else:
        return f"item {str(kind)[:40]}"
    return None


def _call(rollout: Rollout, ident: str, name: str, arguments: Any, output: str) -> None:
    rollout.made({"type": "function_call", "call_id": ident, "name": name, "arguments": canonical_json(arguments or {})})
    rollout.given({"type": "function_call_output", "call_id": ident, "output": output})
