"""Traces as this project writes them: one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.transcripts.source import Source
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.recording import Recording

NAME = "context-bench"


def matches(sample: list[Any]) -> bool:
    """Whether the first object has an instance and a list of our events."""
    if not sample or not isinstance(sample[0], Mapping) or not isinstance(sample[0].get("instance_id"), str):
        return False
    events = sample[0].get("events")
    return isinstance(events, list) and all(isinstance(event, Mapping) and "step" in event and "kind" in event for event in events)


def recordings(source: Source) -> Iterator[Recording]:
    """One run per line, as it is."""
    for value in source.values():
        try:
            yield Recording(Trace.from_json(value), named=True, settled=True)
        except (ValueError, TypeError):
            source.skip("not a trace")
