"""ContextBench's unified predictions: what a run read, step by step and at the end, already worked out by someone else.

Its reads are taken as given (`self_report`, `shown`): nobody can say here whether they were seen or guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.trace import Event
from context_bench.transcripts.transcript import Transcript, claim, run

NAME = "unified"


def sniff(peek: Peek) -> bool:
    """True if an object has predictions of this shape."""
    return any(isinstance(mapping(value).get("traj_data"), Mapping) for value in peek.sample[:20])


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per line."""
    for value in source.values():
        row = mapping(value)
        told = row.get("traj_data")
        if not isinstance(told, Mapping):
            source.skip("no traj_data")
            continue
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
    lines: dict[str, list[tuple[int, int]]] = {}
    for path, found in mapping(spans).items():
        for span in map(mapping, sequence(found)):
            first, last = whole(span.get("start")), whole(span.get("end"))
            if first is not None and last is not None:
                lines.setdefault(str(path), []).append((first, last))
    names = {str(path): tuple(str(name) for name in sequence(found)) for path, found in mapping(symbols).items()}
    listed = dict.fromkeys(path for path in sequence(files) if isinstance(path, str))
    return [
        claim(
            path,
            tuple(lines[path]) if path in lines else None,
            step,
            "prediction",
            names.get(path, ()),
            shown=True,
            named=path in listed,
        )
        for path in dict.fromkeys([*listed, *lines, *names])
    ]


FORMAT = Format(NAME, 250, sniff, read)
