"""Traces as this project writes them: one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.transcript import FACTS, Transcript


def sniff(peek: Peek) -> bool:
    """True if the first object has an instance and a list of our events."""
    events = peek.first.get("events")
    if not isinstance(peek.first.get("instance_id"), str):
        return False
    return isinstance(events, list) and all(
        isinstance(event, Mapping) and "step" in event and "kind" in event for event in events
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per line, as it is."""
    for value in source.values():
        try:
            trace = Trace.from_json(value)
            yield Transcript(trace.instance_id, settled=True, **{name: getattr(trace, name) for name in FACTS})
        except (ValueError, TypeError):
            source.skip("not a trace")


FORMAT = Format("context-bench", 50, sniff, read)
