"""Traces that are worked out already: as this project writes them, one JSON object per line, and ContextBench's unified
predictions, what a run read step by step and at the end.

The reads of a unified prediction are taken as given (`self_report`, `shown`): nobody can say here whether they were
seen or guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.trace import Event, Trace, claims_of, grouped, span_of
from context_bench.transcripts.transcript import FACTS, Transcript, run


def _is_own(peek: Peek) -> bool:
    """True if the first object has an instance and a list of our events."""
    events = peek.first.get("events")
    if not isinstance(peek.first.get("instance_id"), str):
        return False
    return isinstance(events, list) and all(
        isinstance(event, Mapping) and "step" in event and "kind" in event for event in events
    )


def _own(source: LogSource) -> Iterator[Transcript]:
    """One run per line, as it is."""
    for value in source.values():
        try:
            trace = Trace.from_json(value)
            yield Transcript(trace.instance_id, settled=True, **{name: getattr(trace, name) for name in FACTS})
        except (ValueError, TypeError):
            source.skip("not a trace")


def _is_unified(peek: Peek) -> bool:
    """True if an object has predictions of this shape."""
    return any(map(_has_steps, map(mapping, peek.sample[:20])))


def _has_steps(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("traj_data"), Mapping)


def _unified(source: LogSource) -> Iterator[Transcript]:
    """One run per line."""
    for row in source.rows(_has_steps, "no traj_data"):
        told = row["traj_data"]
        one = run(str(row.get("agent") or ""), row.get("instance_id"))
        one.settled = True
        one.patch, one.model = text(row.get("model_patch")), text(row.get("model"))
        one.repo, one.commit = text(row.get("repo_url")), text(row.get("commit"))
        steps = sequence(told.get("pred_steps"))
        for number, step in enumerate(map(mapping, steps), 1):
            found = _claims(step.get("files"), step.get("spans"), step.get("symbols"), number)
            # a step that found nothing is a step all the same
            one.events += found or [Event(number, None, "read", "prediction", None, None, "self_report", "shown")]
        one.steps = len(steps) or None
        if any(told.get(name) is not None for name in ("pred_files", "pred_spans", "pred_symbols")):
            one.final = _claims(
                told.get("pred_files"), told.get("pred_spans"), told.get("pred_symbols"), max(1, len(steps))
            )
        yield one


def _claims(files: Any, spans: Any, symbols: Any, step: int) -> list[Event]:
    pairs = ((str(path), mapping(span)) for path, found in mapping(spans).items() for span in sequence(found))
    lines = grouped((path, pair) for path, span in pairs if (pair := span_of(span)))
    names = {str(path): [str(name) for name in sequence(found)] for path, found in mapping(symbols).items()}
    listed = dict.fromkeys(path for path in sequence(files) if isinstance(path, str))
    return claims_of("prediction", step, lines, names, files=listed, shown=True, named=listed)


FORMAT = {
    "own": Format(
        "context-bench", 50, _is_own, _own, about="Traces as this project writes them: one JSON object per line."
    ),
    "unified": Format("unified", 250, _is_unified, _unified, about="ContextBench's unified predictions."),
}
