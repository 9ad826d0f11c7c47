"""Cline's sessions: `{sessionId, messages[…]}` with blocks as Anthropic has them; older releases keep the list of
messages alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import EDITORS, money, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.formats.claude_code import ClaudeRun
from context_bench.transcripts.transcript import Transcript

NAME = "cline"


def sniff(peek: Peek) -> bool:
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


def read(source: LogSource) -> Iterator[Transcript]:
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


FORMAT = Format(NAME, 200, sniff, read, conversation=True)
