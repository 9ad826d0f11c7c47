"""What a run looked at, step by step: from a trace, or from a prediction in the original's shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.spans import Range
from context_bench.transcripts.trace import Event, Trace

RETRIEVAL = ("read", "search", "list")  # the kinds of calls that are steps


@dataclass(slots=True)
class Selection:
    """What one step, or the whole of a run, looked at. `spans` may name a file more than once; its ranges are lines, `"all"`, or `None`.

    `tokens`, `t`: where in the run it was (tokens processed before it, seconds since the epoch). `edited`: files changed since the step
    before. `turn`: the model's reply the step was part of, where the log tells.
    """

    files: list[str] = field(default_factory=list)
    spans: list[tuple[str, Sequence[Range] | Literal["all"] | None]] = field(default_factory=list)
    symbols: dict[str, list[str]] = field(default_factory=dict)
    tokens: int | None = None
    t: float | None = None
    edited: set[str] = field(default_factory=set)
    turn: int | None = None

    def __bool__(self) -> bool:
        return bool(self.files or self.spans or self.symbols)


def prediction(traj_data: Mapping[str, Any]) -> tuple[list[Selection], Selection]:
    """Steps and final context of a unified prediction (`pred_steps`, `pred_files`, `pred_spans`, `pred_symbols`).

    Without `pred_steps` the final context, if there is any, is the only step. Malformed parts are left out.
    """
    final = _selection(traj_data, "pred_")
    rows = traj_data.get("pred_steps")
    steps = [_selection(row, "") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    if not steps and final:
        steps = [final]
    return steps, final


def selections(
    trace: Trace, *, count: Collection[str] = ("shown",), by: Literal["call", "turn"] = "call"
) -> tuple[list[Selection], Selection | None]:
    """Steps and self-named final context of a trace.

    A step is a call that reads, searches or lists, whatever came of it (`by="turn"`: all such calls of one reply of the model). Only events
    of a strength in `count` add to it, and never failed ones; `"edits"` in `count` takes edited lines as read.
    """
    steps: dict[tuple[bool, int], Selection] = {}
    edited: set[str] = set()
    for event in trace.events:
        if event.kind == "edit" and event.ok and event.path:
            edited.add(event.path)
        looked = event.kind in RETRIEVAL or (event.kind == "exec" and event.path is not None) or (event.kind == "edit" and "edits" in count)
        if not looked:
            continue
        whole_turn = by == "turn" and event.turn is not None
        key = (whole_turn, (event.turn or 0) if whole_turn else event.step)
        step = steps.get(key)
        if step is None:
            step = steps[key] = Selection(tokens=event.tokens_before, t=event.t, edited=edited, turn=event.turn)
            edited = set()
        if event.ok and event.path and (event.strength in count or event.kind == "edit"):
            _take(step, event)
    final = None
    if trace.final is not None:
        final = Selection()
        for event in trace.final:
            _take(final, event)
    return list(steps.values()), final


def step_statistics(trace: Trace) -> dict[str, Any]:
    """What the calls of a run were: of each kind, failed, cut; reads of each provenance and strength."""
    kinds: dict[str, set[int]] = {}
    for event in trace.events:
        kinds.setdefault(event.kind, set()).add(event.step)
    looked = [event for event in trace.events if event.path and event.kind != "edit"]
    return {
        "steps": trace.step_count,
        "calls": {kind: len(steps) for kind, steps in sorted(kinds.items())},
        "failed_reads": len({(e.step, e.path) for e in looked if not e.ok}),
        "truncated": len({e.step for e in trace.events if e.truncated}),
        "sidechain_calls": len({e.step for e in trace.events if e.sidechain}),
        "files_read": len({e.path for e in looked if e.ok and e.strength == "shown"}),
        "files_edited": len({e.path for e in trace.events if e.kind == "edit" and e.ok and e.path}),
        "provenance": dict(Counter(e.provenance for e in looked if e.ok)),
        "strength": dict(Counter(e.strength for e in looked if e.ok)),
    }


def _selection(row: Mapping[str, Any], prefix: str) -> Selection:
    files, spans, symbols = (row.get(prefix + name) for name in ("files", "spans", "symbols"))
    out = Selection(files=[path for path in files if isinstance(path, str)] if isinstance(files, list) else [])
    for path, ranges in spans.items() if isinstance(spans, Mapping) else ():
        rows = [r for r in ranges if isinstance(r, Mapping)] if isinstance(ranges, list) else []
        pairs = [(r["start"], r["end"]) for r in rows if _whole(r.get("start")) and _whole(r.get("end"))]
        if pairs:
            out.spans.append((str(path), pairs))
    for path, names in symbols.items() if isinstance(symbols, Mapping) else ():
        if isinstance(names, list):
            out.symbols[str(path)] = [name for name in names if isinstance(name, str)]
    return out


def _take(selection: Selection, event: Event) -> None:
    if event.path is None:
        return
    if event.named:
        selection.files.append(event.path)
    if event.ranges is not None:
        selection.spans.append((event.path, event.ranges))
    if event.symbols:
        selection.symbols.setdefault(event.path, []).extend(event.symbols)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
