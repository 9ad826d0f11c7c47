"""The `trace.jsonl` of benchkit: tool invocations by task, without what they returned.

Raw invocations fill gaps of curated ones, by `tool_use_id` or `call_index`. Lines are counted from 1, as the agents
count them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text
from context_bench.transcripts.transcript import Transcript, run

_KEYS = ("tool_invocations_curated", "tool_invocations_raw")
_ARGUMENTS = ("offset", "limit", "command", "pattern", "workdir", "cwd", "glob", "view_range", "start_line", "end_line")


def sniff(peek: Peek) -> bool:
    """True if an object has such invocations."""
    return any(map(_has_calls, map(mapping, peek.sample[:20])))


def _has_calls(row: Mapping[str, Any]) -> bool:
    return any(key in mapping(row.get("metadata")) for key in _KEYS)


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per line."""
    for row in source.rows(_has_calls, "no tool invocations"):
        meta = mapping(row.get("metadata"))
        one = run(str(row.get("agent") or meta.get("agent") or ""), row.get("instance_id"), outputs=False)
        one.model = text(row.get("model")) or text(meta.get("model"))
        one.cwd = text(meta.get("workspace_path")) or text(row.get("workspace_path"))
        one.patch = text(row.get("model_patch"))
        one.repo, one.commit = text(row.get("repo_url")), text(row.get("commit"))
        for invocation in _invocations(meta):
            _call(invocation, one)
        yield one


def _invocations(meta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    curated, raw = ([mapping(entry) for entry in sequence(meta.get(key))] for key in _KEYS)
    if not curated:
        return raw
    others = {key: entry for entry in raw for key in _ids(entry)}
    given = [{name: value for name, value in entry.items() if value is not None} for entry in curated]
    rests = (next((others[key] for key in _ids(entry) if key in others), {}) for entry in curated)
    return [{**rest, **entry} for rest, entry in zip(rests, given, strict=True)]


def _ids(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Pairs by which a raw and a curated invocation are known to be the same."""
    return [(key, entry[key]) for key in ("tool_use_id", "call_index") if isinstance(entry.get(key), str | int)]


def _call(entry: Mapping[str, Any], one: Transcript) -> None:
    arguments = dict(mapping(parsed(entry.get("raw_input_json"))))
    arguments.update({name: entry[name] for name in _ARGUMENTS if entry.get(name) is not None})
    if path := text(entry.get("path")) or text(entry.get("filePath")):
        arguments.setdefault("path", path)
        arguments["file_path"] = path
    state = mapping(mapping(entry.get("raw_event")).get("state"))
    meta, output = mapping(state.get("metadata")), state.get("output")
    call = one.call(entry.get("tool"), arguments, entry.get("tool_use_id"))
    if isinstance(output, str) or meta:
        call.answer(output if isinstance(output, str) else None, exit_code=whole(meta.get("exit")), structured=meta)


FORMAT = Format("benchkit", 240, sniff, read)
