"""Inspect AI's evaluation logs, version 2: a JSON document, or a `.eval` file (a zip with one JSON per sample)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import INSPECT, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text, texts
from context_bench.transcripts.inspect_files import holds_samples, is_document, log_of, resolved
from context_bench.transcripts.transcript import ToolCall, Transcript, run

NAME = "inspect"


def sniff(peek: Peek) -> bool:
    """True if the file is a zip with samples, or its first object is such a log."""
    return holds_samples(peek.path) or (is_document(peek.first) and isinstance(peek.first.get("samples"), list))


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per sample and epoch."""
    header, samples = log_of(source, source.skip)
    for sample in samples:
        yield _run(mapping(resolved(sample, ("events", "messages"))), mapping(header.get("eval")))


def _run(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Transcript:
    ident = sample.get("id")
    one = run("inspect", str(ident) if isinstance(ident, str | int) and ident != "" else None)
    one.model = text(header.get("model"))
    for event in map(mapping, sequence(sample.get("events"))):
        if event.get("event") == "tool":
            _tool(event, one)
        elif event.get("event") == "model":
            one.turns += 1
    asked: dict[str, ToolCall] = {}
    for message in map(mapping, sequence(sample.get("messages"))):
        _said(message, one, asked)
    for usage in mapping(sample.get("model_usage")).values():
        one.billed(usage_of(usage, INSPECT))
    return one


def _said(message: Mapping[str, Any], one: Transcript, asked: dict[str, ToolCall]) -> None:
    """Read a message of the conversation as it stood at the end (`asked`: calls by their ids); results are in the
    events, or here.
    """
    role, said = message.get("role"), texts(message.get("content"))
    if role == "assistant":
        parts = [mapping(part) for part in sequence(message.get("content"))]
        thoughts = [str(part.get("reasoning") or "") for part in parts if part.get("type") == "reasoning"]
        reply = one.reply(said or None, model=text(message.get("model")), thoughts="\n".join(filter(None, thoughts)))
        for call in map(mapping, sequence(message.get("tool_calls"))):
            ident = text(call.get("id"))
            reply.calls.append(one.find(ident) or ToolCall(str(call.get("function")), call.get("arguments"), ident))
            asked[ident or ""] = reply.calls[-1]
    elif role == "tool":
        if (known := asked.get(text(message.get("tool_call_id")) or "")) is not None:
            known.answer(said or "")
    elif role in ("system", "user"):
        one.given("system" if role == "system" else "user", said)


def _tool(event: Mapping[str, Any], one: Transcript) -> None:
    t = one.at(moment(event.get("timestamp")))
    call = one.call(event.get("function"), event.get("arguments"), event.get("id"), t=t, place=text(event.get("uuid")))
    call.cut = bool(event.get("truncated"))
    call.sidechain = False
    error = mapping(event.get("error"))
    call.answer(texts(event.get("result")) or text(error.get("message")) or "", failed=True if error else None)


FORMAT = Format(NAME, 25, sniff, read)
