"""Codex's `exec --json`: of its events about items only the completed ones are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.formats.codex_exec import matches as matches
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.recording import Recording, mapping, run, texts, whole

NAME = "codex-exec"


def recordings(source: Source) -> Iterator[Recording]:
    """One recording per thread in the file."""
    return from_values(source.values())


def from_values(values: Iterable[Any]) -> Iterator[Recording]:
    """The same, of values."""
    one = run("codex", None)
    for value in values:
        line = mapping(value)
        if line.get("type") == "thread.started" and one.told:
            yield one
            one = run("codex", None)
        if why := _take(line, one):
            one.skip(why)
    if one.told:
        yield one


def _take(line: Mapping[str, Any], one: Recording) -> str | None:
    kind = line.get("type")
    if kind == "item.completed":
        return _item(mapping(line.get("item")), one)
    if kind == "turn.completed":
        one.billed(usage_of(line.get("usage"), OPENAI))
        return None
    return None if kind in ("thread.started", "turn.started", "item.started", "item.updated") else f"type {str(kind)[:40]}"


def _item(item: Mapping[str, Any], one: Recording) -> str | None:
    kind, ident, failed = item.get("type"), item.get("id"), True if item.get("status") in ("failed", "declined") else None
    if kind == "command_execution":
        output = item.get("aggregated_output")
        one.call("command_execution", {"command": item.get("command")}, ident).answer(
            output if isinstance(output, str) else "", failed=failed, exit_code=whole(item.get("exit_code"))
        )
    elif kind == "file_change":
        one.call("file_change", {"changes": item.get("changes")}, ident).answer("", failed=failed)
    elif kind == "mcp_tool_call":
        result = item.get("result")
        output = texts(result) if texts(result) is not None else canonical_json(result) if result is not None else ""
        name = f"mcp__{item.get('server')}__{item.get('tool')}"
        one.call(name, item.get("arguments"), ident).answer(output, failed=True if item.get("error") else failed)
    elif kind == "web_search":
        one.call("web_search", {"query": item.get("query")}, ident).answer("")
    elif kind in ("agent_message", "reasoning", "todo_list"):
        one.turns += kind == "agent_message"
    else:
        return f"item {str(kind)[:40]}"
    return None
