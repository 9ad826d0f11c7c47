"""Gemini CLI: its sessions (lines, or one document in older versions), and `--output-format stream-json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import GEMINI, GEMINI_TOTAL, moment, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text, texts
from context_bench.transcripts.session import summary_in
from context_bench.transcripts.transcript import Boundary, Message, Transcript, run


def sniff(peek: Peek) -> bool:
    """True if there is a session's head, or a stream's calls."""
    return any(
        ("projectHash" in row and "sessionId" in row and "startTime" in row)
        or ("tool_name" in row and "parameters" in row and row.get("type") == "tool_use")
        for row in map(mapping, peek.sample)
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file."""
    one = run("gemini-cli", None)
    messages: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(map(mapping, source.values())):
        if isinstance(row.get("messages"), list):
            for place, message in enumerate(map(mapping, row["messages"])):
                messages[str(message.get("id") or place)] = message
        elif "$rewindTo" in row:
            _rewind(messages, str(row["$rewindTo"]))
        elif "$set" in row or "projectHash" in row:
            messages = _replaced(mapping(row.get("$set")), messages, one)
        elif row.get("type") in ("tool_use", "tool_result", "result", "init", "message") and "toolCalls" not in row:
            _streamed(row, one)
        elif row.get("type") in ("user", "gemini"):
            messages[str(row.get("id") or f"line {number}")] = row
        else:
            one.skip(f"type {str(row.get('type'))[:40]}")
    for said in one.messages():
        said.content = "".join(said.content) if isinstance(said.content, list) else said.content
    _messages(messages.values(), one)
    yield one


def _replaced(
    row: Mapping[str, Any], messages: dict[str, Mapping[str, Any]], one: Transcript
) -> dict[str, Mapping[str, Any]]:
    """The messages that follow: none if these lines replace the history by a summary of it, else those so far.

    After a compression the program writes down what the model remembers now; after a rewind or a masked output it does
    so, too, and those hold no new summary.
    """
    held = [
        Message("user" if each.get("type") == "user" else "assistant", said)
        for each in map(mapping, sequence(row.get("messages")))
        if (said := texts(each.get("content")))
    ]
    summary = next((str(each.content) for each in held if each.role == "user" and summary_in(str(each.content))), "")
    known = [context.boundary.summary for context in one.contexts if context.boundary is not None]
    if not summary or summary in known:
        return messages
    _messages(messages.values(), one)
    one.restart(held, Boundary(summary=summary, at=one.ended))
    one.meta["compactions"] = one.meta.get("compactions", 0) + 1
    return {}


def _rewind(messages: dict[str, Mapping[str, Any]], target: str) -> None:
    """Drop what came after the message gone back to."""
    names = list(messages)
    if target in messages:
        for name in names[names.index(target) + 1 :]:
            del messages[name]


def _messages(messages: Iterable[Mapping[str, Any]], one: Transcript) -> None:
    for message in messages:
        t = one.at(moment(message.get("timestamp")))
        if message.get("type") != "gemini":
            one.given("user", texts(message.get("content")) if message.get("type") == "user" else None, t)
            continue
        one.turns += 1
        reply = one.reply(
            texts(message.get("content")) or None, at=t, model=text(message.get("model")), thoughts=_thoughts(message)
        )
        one.model = one.model or text(message.get("model"))
        for call in map(mapping, sequence(message.get("toolCalls"))):
            made = one.call(call.get("name"), call.get("args"), call.get("id"), t=moment(call.get("timestamp")) or t)
            reply.calls.append(made)
            output, failed = _result(call.get("result"))
            if call.get("status") in ("error", "cancelled"):
                failed = True
            if output is not None or failed:
                made.answer(output or "", failed=failed)
        reply.usage = usage_of(message.get("tokens"), GEMINI)
        one.billed(reply.usage)


def _thoughts(message: Mapping[str, Any]) -> str:
    """Thoughts of the model before a message: a heading and a text each."""
    told = (
        (text(part.get("subject")), text(part.get("description")))
        for part in map(mapping, sequence(message.get("thoughts")))
    )
    return "\n".join(": ".join(filter(None, pair)) for pair in told)


def _result(value: Any) -> tuple[str | None, bool | None]:
    """Text of a result and whether it is an error."""
    if isinstance(value, str):
        return value, None
    for part in map(mapping, sequence(value)):
        response = mapping(mapping(part.get("functionResponse")).get("response"))
        if "error" in response:
            return texts(response["error"]) or canonical_json(response["error"]), True
        if "output" in response:
            return texts(response["output"]), None
    return texts(value), None


def _stream_message(row: Mapping[str, Any], one: Transcript, t: float | None) -> None:
    """Read a message of a stream, where the model's come whole or piece by piece."""
    said = texts(row.get("content"))
    if row.get("role") != "assistant":
        one.given("user", said, t)
    elif said:
        reply = one.speaking(at=t)
        reply.content = reply.content or []
        reply.content.append(said)


def _streamed(row: Mapping[str, Any], one: Transcript) -> None:
    kind, t = row.get("type"), one.at(moment(row.get("timestamp")))
    if kind == "init":
        one.model = text(row.get("model"))
    elif kind == "tool_use":
        one.speaking(at=t).calls.append(one.call(row.get("tool_name"), row.get("parameters"), row.get("tool_id"), t=t))
    elif kind == "tool_result":
        output = texts(row.get("output")) or texts(mapping(row.get("error")).get("message")) or ""
        one.result(row.get("tool_id"), output, failed=row.get("status") == "error" or bool(row.get("error")) or None)
    elif kind == "message":
        one.turns += row.get("role") == "assistant" and not row.get("delta")
        _stream_message(row, one, t)
    else:
        one.usage = usage_of(row.get("stats"), GEMINI_TOTAL)


FORMAT = Format("gemini-cli", 130, sniff, read)
