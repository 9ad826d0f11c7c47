"""Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent says of itself.

`{agent, instance_id, workspace_path, model_patch, raw_response, final_output}`, or only
`{agent, response_format, response | events}`. What the agent reports of itself becomes `Trace.final`; it is never mixed
with what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.formats import claude_code as claude_code_stream, codex as codex_exec
from context_bench.transcripts.trace import Event, claims_of, grouped, span_of
from context_bench.transcripts.transcript import Transcript, run


def sniff(peek: Peek) -> bool:
    """True if the first object wraps a response."""
    first = peek.first
    inner = mapping(first.get("raw_response")) or first
    return (isinstance(inner.get("response"), list) and "agent" in inner) or (
        isinstance(inner.get("events"), list) and "response_format" in inner
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One recording per record."""
    for value in source.values():
        record = mapping(value)
        inner = mapping(record.get("raw_response")) or record
        response, events = inner.get("response"), inner.get("events")
        if isinstance(response, list):
            found = claude_code_stream.from_values(response, source.skip)
        else:
            found = codex_exec.from_values(sequence(events), source.skip)
        one = next(found, None)
        if one is None:
            if not record.get("instance_id"):
                source.skip("a record without a run")
                continue
            one = run(str(record.get("agent") or ""), record.get("instance_id"))
        yield _with_record(one, record)
        yield from takewhile(lambda part: part.helper, found)


def _with_record(one: Transcript, record: Mapping[str, Any]) -> Transcript:
    if (name := text(record.get("instance_id"))) is not None:
        one.ident, one.named = name, True
    one.cwd = text(record.get("workspace_path")) or one.cwd
    one.patch = text(record.get("model_patch")) or one.patch
    if isinstance(record.get("final_output"), Mapping):
        one.final = _final(record["final_output"])
    return one


def _final(output: Mapping[str, Any]) -> list[Event]:
    """The context that the agent lists itself."""
    spans = map(mapping, sequence(output.get("retrieved_context_spans")))
    symbols = map(mapping, sequence(output.get("retrieved_context_symbols")))
    names = ((text(symbol.get("file")), text(symbol.get("name"))) for symbol in symbols)
    return claims_of(
        "final_output",
        1,
        grouped((path, pair) for span in spans if (path := text(span.get("file"))) and (pair := span_of(span))),
        grouped((path, name) for path, name in names if path and name),
        files=filter(text, sequence(output.get("retrieved_context_files"))),
    )


FORMAT = Format("run-record", 70, sniff, read)
