"""opencode's `run --format json`: one event per line, each call with its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.recording import Recording, mapping, money, run, texts, whole
from context_bench.transcripts.transcripts.opencode_parts import usage_of
from context_bench.transcripts.values import text

NAME = "opencode"


def matches(sample: list[Any]) -> bool:
    """Whether a line has the program's envelope."""
    return any("sessionID" in row and isinstance(row.get("part"), Mapping) for row in map(mapping, sample))


def recordings(source: Source) -> Iterator[Recording]:
    """One run per session id in the file."""
    runs: dict[str, Recording] = {}
    for row in map(mapping, source.values()):
        name = text(row.get("sessionID")) or next(reversed(runs), "")
        one = runs.setdefault(name, run("opencode", None))
        if why := _take(row, one):
            one.skip(why)
    yield from (one for one in runs.values() if one.told)


def _take(row: Mapping[str, Any], one: Recording) -> str | None:
    kind, part, t = row.get("type"), mapping(row.get("part")), one.at(moment(row.get("timestamp")))
    if kind == "step_start":
        one.turns += 1
    elif kind == "tool_use":
        _tool(part, one, t)
    elif kind == "step_finish":
        _finished(part, one)
    elif kind not in ("text", "reasoning"):
        return f"type {str(kind)[:40]}"
    return None


def _tool(part: Mapping[str, Any], one: Recording, t: float | None) -> None:
    state = mapping(part.get("state"))
    meta = mapping(state.get("metadata"))
    call = one.find(part.get("callID")) or one.call(
        part.get("tool"), state.get("input"), part.get("callID"), t=t, place=text(part.get("id"))
    )
    if state.get("status") in ("completed", "error"):
        # `truncated` of a read also says that there is more in the file; what was shown is numbered.
        call.cut = bool(meta.get("truncated"))
        output = texts(state.get("output")) or text(state.get("error")) or ""
        call.answer(output, failed=True if state.get("status") == "error" else None, exit_code=whole(meta.get("exit")), structured=meta)


def _finished(part: Mapping[str, Any], one: Recording) -> None:
    one.billed(usage_of(part.get("tokens")))
    if (cost := money(part.get("cost"))) is not None:
        one.head.cost = (one.head.cost or 0.0) + cost
