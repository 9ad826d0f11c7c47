"""Logs of editors' agents: Cursor CLI's `--output-format stream-json`, whose calls are started and completed lines,
paired by `call_id`; and Cline's sessions, `{sessionId, messages[…]}` with blocks as Anthropic has them, of which older
releases keep the list of messages alone.

Gemini CLI leaves sessions (lines, or one document in older versions), and prints `--output-format stream-json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import EDITORS, GEMINI, GEMINI_TOTAL, moment, money, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text, texts
from context_bench.transcripts.formats.claude_code import ClaudeRun
from context_bench.transcripts.session import summary_in
from context_bench.transcripts.transcript import Boundary, Message, Transcript, run


def sniff(peek: Peek) -> bool:
    """True if a line is a call of this program, or the head of a stream without a list of tools."""
    return any(
        (
            "tool_call" in row
            and row.get("type") == "tool_call"
            and isinstance(row["tool_call"], Mapping)
            and "subtype" in row
        )
        or (
            "apiKeySource" in row
            and row.get("type") == "system"
            and row.get("subtype") == "init"
            and "tools" not in row
        )
        for row in map(mapping, peek.sample)
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per session id in the file."""
    runs: dict[str, Transcript] = {}
    models: dict[str, Any] = {}
    for row in map(mapping, source.values()):
        name = text(row.get("session_id")) or next(reversed(runs), "")
        one = runs.setdefault(name, run("cursor", None))
        if why := _take(row, one, models, name):
            one.skip(why)
    yield from (one for one in runs.values() if one.filled or one.cwd)


def _take(row: Mapping[str, Any], one: Transcript, models: dict[str, Any], name: str) -> str | None:
    kind, t = row.get("type"), one.at(moment(row.get("timestamp_ms")))
    if kind == "system" and row.get("subtype") == "init":
        one.cwd, one.model = text(row.get("cwd")), text(row.get("model"))
    elif kind == "tool_call":
        asked = row.get("model_call_id")
        if asked is None or models.get(name) != asked:
            models[name] = asked
            one.turns += 1
        return _tool(row, one, t)
    elif kind == "result":
        one.usage = usage_of(row.get("usage"), EDITORS)
    elif kind == "user":
        one.given("user", texts(mapping(row.get("message")).get("content")), t)
    elif kind == "assistant":
        reply = one.speaking(text(row.get("model_call_id")), at=t)
        if said := texts(mapping(row.get("message")).get("content")):
            reply.say(said)
    elif kind != "thinking":
        return f"type {str(kind)[:40]}"
    return None


def _tool(row: Mapping[str, Any], one: Transcript, t: float | None) -> str | None:
    ident = row.get("call_id")
    name, body = next(
        ((name, mapping(body)) for name, body in mapping(row.get("tool_call")).items() if isinstance(body, Mapping)),
        (None, {}),
    )
    if name is None:
        return "a call without a tool"
    if name == "function":  # a tool without a name of its own here
        name, body = str(body.get("name")), {**body, "args": body.get("arguments")}
    call = one.find(ident)
    if call is None:
        call = one.call(name, body.get("args"), ident, t=t)
        one.speaking(text(row.get("model_call_id")), at=t).calls.append(call)
    if row.get("subtype") != "completed":
        return None
    result = mapping(body.get("result"))
    good = mapping(result.get("success"))
    told = good or next((mapping(part) for part in result.values() if isinstance(part, Mapping)), {})
    failed = True if "success" not in result and result else None
    call.cut = bool(good.get("exceededLimit"))
    call.answer(_output(told), failed=failed, exit_code=whole(told.get("exitCode")), structured=good)
    return None


def _output(told: Mapping[str, Any]) -> str:
    if "stdout" in told or "stderr" in told:
        parts = (told.get("stdout"), told.get("stderr"))
        return "\n".join(part.removesuffix("\n") for part in parts if isinstance(part, str) and part)
    content = texts(told.get("content"))
    return (
        content
        if content is not None
        else text(told.get("errorMessage")) or text(told.get("message")) or _matches(told)
    )


def _matches(told: Mapping[str, Any]) -> str:
    """A search's result, which is an object here, as a search prints it."""
    lines: list[str] = []
    stack: list[Any] = [told]
    while stack and len(lines) < 100_000:
        value = stack.pop()
        if isinstance(value, Mapping):
            path = text(value.get("file")) or text(value.get("path"))
            found = value.get("matches")
            if path and isinstance(found, list):
                lines += [
                    f"{path}:{hit.get('lineNumber')}:{hit.get('content', '')}"
                    for hit in map(mapping, found)
                    if whole(hit.get("lineNumber"))
                ]
            else:
                stack += reversed(list(value.values()))
        elif isinstance(value, list):
            stack += reversed(value)
    return "\n".join(lines) if lines else canonical_json(dict(told)) if told else ""


NAME = "cline"


def _cline_sniff(peek: Peek) -> bool:
    """True if the first object is a session with messages of blocks, or the file is a list of these."""
    first = peek.first
    if isinstance(first.get("sessionId"), str) and isinstance(first.get("messages"), list):
        return "projectHash" not in first
    spoken = [mapping(value) for value in peek.sample]
    return (
        len(spoken) > 1
        and all(_spoken(message) for message in spoken[:20])
        and any(_uses(message) for message in spoken)
    )


def _spoken(message: Mapping[str, Any]) -> bool:
    return (
        message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), list)
        and "type" not in message
    )


def _uses(message: Mapping[str, Any]) -> bool:
    return any(mapping(block).get("type") == "tool_use" for block in sequence(message.get("content")))


def _cline_read(source: LogSource) -> Iterator[Transcript]:
    """One run per session; a bare list of messages is one."""
    bare = _begun(None)
    for row in map(mapping, source.values()):
        if isinstance(row.get("messages"), list):
            one = _begun(row.get("cwd"), text(row.get("sessionId")) or "")
            one.one.opened = True
            for message in map(mapping, row["messages"]):
                _message(message, one)
            yield from one.transcripts()
        elif _spoken(row):
            _message(row, bare)
        else:
            source.skip("not a message")
    if bare.one.filled:
        yield from bare.transcripts()


def _begun(cwd: Any, ident: str = "") -> ClaudeRun:
    run = ClaudeRun(Transcript(format=NAME, agent=NAME, named=False, cwd=text(cwd)))
    run.thread(None, ident).one.meta.clear()
    return run


def _result(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result as the model was given it: tools that do several things return a list of what came of each, which is
    sent as JSON.
    """
    content = block.get("content")
    if (
        isinstance(content, list)
        and content
        and all("query" in part and "success" in part for part in map(mapping, content))
    ):
        return {**block, "content": canonical_json(content)}
    return block


def _message(message: Mapping[str, Any], run: ClaudeRun) -> None:
    line, one, thread = {"timestamp": message.get("ts")}, run.one, run.threads[None]
    if message.get("role") == "assistant":
        run.assistant(thread, line, message)
        one.model = one.model or text(mapping(message.get("modelInfo")).get("id"))
        figures = mapping(message.get("metrics"))
        one.billed(usage_of(figures, EDITORS))
        if (cost := money(figures.get("cost"))) is not None:
            one.cost = (one.cost or 0.0) + cost
    elif message.get("role") == "user":
        content = [_result(mapping(block)) for block in sequence(message.get("content"))]
        run.user(thread, line, {**message, "content": content}, None, None)
    else:
        one.skip(f"role {str(message.get('role'))[:30]}")


def _gemini_sniff(peek: Peek) -> bool:
    """True if there is a session's head, or a stream's calls."""
    return any(
        ("projectHash" in row and "sessionId" in row and "startTime" in row)
        or ("tool_name" in row and "parameters" in row and row.get("type") == "tool_use")
        for row in map(mapping, peek.sample)
    )


def _gemini_read(source: LogSource) -> Iterator[Transcript]:
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
            output, failed = _gemini_result(call.get("result"))
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


def _gemini_result(value: Any) -> tuple[str | None, bool | None]:
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


FORMAT = {
    "cursor": Format(
        "cursor",
        160,
        sniff,
        read,
        about="Cursor CLI's `--output-format stream-json`: calls as started and completed lines, paired by `call_id`.",
    ),
    "cline": Format(
        NAME,
        200,
        _cline_sniff,
        _cline_read,
        conversation=True,
        about="Cline's sessions: `{sessionId, messages[…]}` with blocks as Anthropic has them; older releases keep the "
        "list of messages alone.",
    ),
    "gemini": Format(
        "gemini-cli",
        130,
        _gemini_sniff,
        _gemini_read,
        about="Gemini CLI: its sessions (lines, or one document in older versions), and `--output-format stream-json`.",
    ),
}
