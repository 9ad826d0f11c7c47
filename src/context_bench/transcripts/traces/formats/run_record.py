"""Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent says of itself.

`{agent, instance_id, workspace_path, model_patch, raw_response, final_output}`, or only `{agent, response_format, response | events}`.
What the agent reports of itself becomes `Trace.final`; it is never mixed with what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.transcripts.source import Source
from context_bench.transcripts.trace import Event
from context_bench.transcripts.traces.formats import claude_stream, codex_exec
from context_bench.transcripts.traces.recording import Recording, claim, mapping, run, sequence, whole
from context_bench.transcripts.values import text

NAME = "run-record"


def matches(sample: list[Any]) -> bool:
    """Whether the first object wraps a response."""
    first = mapping(sample[0] if sample else None)
    inner = mapping(first.get("raw_response")) or first
    return (isinstance(inner.get("response"), list) and "agent" in inner) or (
        isinstance(inner.get("events"), list) and "response_format" in inner
    )


def recordings(source: Source) -> Iterator[Recording]:
    """One recording per record."""
    for value in source.values():
        record = mapping(value)
        inner = mapping(record.get("raw_response")) or record
        response, events = inner.get("response"), inner.get("events")
        found = claude_stream.from_values(response) if isinstance(response, list) else codex_exec.from_values(sequence(events))
        one = next(iter(found), None)
        if one is None:
            if not record.get("instance_id"):
                source.skip("a record without a run")
                continue
            one = run(str(record.get("agent") or ""), record.get("instance_id"))
        yield _told(one, record)


def _told(one: Recording, record: Mapping[str, Any]) -> Recording:
    head = one.head
    if (name := text(record.get("instance_id"))) is not None:
        head.instance_id, one.named = name, True
    head.cwd = text(record.get("workspace_path")) or head.cwd
    head.patch = text(record.get("model_patch")) or head.patch
    if isinstance(record.get("final_output"), Mapping):
        head.final = _final(record["final_output"])
    return one


def _final(told: Mapping[str, Any]) -> list[Event]:
    """The context that the agent lists itself."""
    lines: dict[str, list[tuple[int, int]]] = {}
    for span in map(mapping, sequence(told.get("retrieved_context_spans"))):
        first, last, path = whole(span.get("start")), whole(span.get("end")), text(span.get("file"))
        if path and first is not None and last is not None:
            lines.setdefault(path, []).append((first, last))
    names: dict[str, list[str]] = {}
    for symbol in map(mapping, sequence(told.get("retrieved_context_symbols"))):
        if (path := text(symbol.get("file"))) and (name := text(symbol.get("name"))):
            names.setdefault(path, []).append(name)
    files = [path for path in sequence(told.get("retrieved_context_files")) if isinstance(path, str) and path]
    every = dict.fromkeys([*files, *lines, *names])
    return [claim(path, tuple(lines[path]) if path in lines else None, 1, "final_output", tuple(names.get(path, ()))) for path in every]
