"""opencode's `run --format json`: one event per line, each call with its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment, money, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, text, texts
from context_bench.transcripts.formats.opencode_export import usage_of
from context_bench.transcripts.transcript import Transcript, run


def sniff(peek: Peek) -> bool:
    """True if a line has the program's envelope."""
    return any("sessionID" in row and isinstance(row.get("part"), Mapping) for row in map(mapping, peek.sample))


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per session id in the file."""
    runs: dict[str, Transcript] = {}
    for row in map(mapping, source.values()):
        name = text(row.get("sessionID")) or next(reversed(runs), "")
        one = runs.setdefault(name, run("opencode", None))
        if why := _take(row, one):
            one.skip(why)
    yield from (one for one in runs.values() if one.filled)


def _take(row: Mapping[str, Any], one: Transcript) -> str | None:
    kind, part, t = row.get("type"), mapping(row.get("part")), one.at(moment(row.get("timestamp")))
    if kind == "step_start":
        one.turns += 1
        one.reply(at=t)
    elif kind == "tool_use":
        _tool(part, one, t)
    elif kind == "step_finish":
        _finished(part, one)
    elif kind == "text" and (said := text(part.get("text"))):
        one.speaking(at=t).say(said)
    elif kind == "reasoning":
        reply = one.speaking(at=t)
        reply.thoughts = reply.thoughts or text(part.get("text")) or ""
    elif kind != "text":
        return f"type {str(kind)[:40]}"
    return None


def _tool(part: Mapping[str, Any], one: Transcript, t: float | None) -> None:
    state = mapping(part.get("state"))
    meta = mapping(state.get("metadata"))
    call = one.find(part.get("callID"))
    if call is None:
        call = one.call(part.get("tool"), state.get("input"), part.get("callID"), t=t, place=text(part.get("id")))
        one.speaking(at=t).calls.append(call)
    if state.get("status") in ("completed", "error"):
        # `truncated` of a read also says that there is more in the file; what was shown is numbered.
        call.cut = bool(meta.get("truncated"))
        output = texts(state.get("output")) or text(state.get("error")) or ""
        call.answer(
            output,
            failed=True if state.get("status") == "error" else None,
            exit_code=whole(meta.get("exit")),
            structured=meta,
        )


def _finished(part: Mapping[str, Any], one: Transcript) -> None:
    one.billed(usage_of(part.get("tokens")))
    if (cost := money(part.get("cost"))) is not None:
        one.cost = (one.cost or 0.0) + cost


FORMAT = Format("opencode", 190, sniff, read)
