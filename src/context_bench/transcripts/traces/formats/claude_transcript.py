"""Claude Code's own transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, with sub-agents inline or in files beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.transcripts.claude_kinds import unread
from context_bench.transcripts.formats.claude_code_transcript import matches as matches
from context_bench.transcripts.source import Source, is_note
from context_bench.transcripts.traces.claude import ClaudeRun
from context_bench.transcripts.traces.recording import Recording, mapping
from context_bench.transcripts.values import text

NAME = "claude-code-transcript"


def recordings(source: Source) -> Iterator[Recording]:
    """One recording per session id; what a sub-agent did is part of it, marked."""
    runs: dict[str, ClaudeRun] = {}
    _lines(source, runs)
    for path in sorted((source.path.with_suffix("") / "subagents").glob("*.jsonl")):
        other = Source(path)
        _lines(other, runs)
        source.skipped.update(other.skipped)
    for one in runs.values():
        if all(call.t is not None for call in one.recording.calls):
            one.recording.calls.sort(key=lambda call: call.t or 0.0)
    yield from (one.finished() for one in runs.values() if one.recording.told)


def beside(path: Path) -> bool:
    """Whether a file is a sub-agent's that is read along with its session's, or describes one."""
    if is_note(path):
        return True
    return path.parent.name == "subagents" and path.parent.parent.with_name(path.parent.parent.name + ".jsonl").is_file()


def _lines(source: Source, runs: dict[str, ClaudeRun]) -> None:
    for value in source.values():
        line = mapping(value)
        session = text(line.get("sessionId"))
        if session is None:
            if why := unread(line.get("type")):
                source.skip(why)
            continue
        one = runs.get(session)
        if one is None:
            one = runs[session] = ClaudeRun()
        if why := _take(line, one):
            one.recording.skip(why)


def _take(line: Mapping[str, Any], one: ClaudeRun) -> str | None:
    kind, message = line.get("type"), line.get("message")
    if kind not in ("user", "assistant"):
        return unread(kind)
    if not isinstance(message, Mapping):
        return f"{kind} without a message"
    if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        return "a message of the program, not of the model"
    if one.repeated(line.get("uuid")):
        return "repeated"
    head, cwd = one.recording.head, text(line.get("cwd"))
    head.cwd = head.cwd or cwd
    if kind == "assistant":
        one.assistant(line, message, sidechain=bool(line.get("isSidechain")), cwd=cwd)
    else:
        one.user(line, message, line.get("toolUseResult"))
    return None
