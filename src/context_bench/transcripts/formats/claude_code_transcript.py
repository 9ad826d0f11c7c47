"""Claude Code's own transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, and its sub-agents' files.

Lines of types `user` and `assistant` are the conversation; others are bookkeeping, and kinds that nobody knows are
counted. A sub-agent inline (`isSidechain`) is a session of its own, and part of its run's trace. Bodies were not
recorded: see `_claude`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, is_note, mapping, text
from context_bench.transcripts.formats._claude import ClaudeRun
from context_bench.transcripts.transcript import Transcript

NAME = "claude-code-transcript"
_SPOKEN = ("user", "assistant")
_TOLD = ("cwd", "gitBranch", "version")
#: Kinds of lines that are the program's own bookkeeping: known, of no use here, and no news to a reader.
_BOOKKEEPING = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "attachment",
        "bridge-session",
        "content-replacement",
        "cost-state",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "speculation-accept",
        "summary",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    }
)


def sniff(peek: Peek) -> bool:
    """True if the lines have Claude Code's envelope."""
    return any(
        isinstance(value, dict)
        and "parentUuid" in value
        and isinstance(value.get("sessionId"), str)
        and value.get("type") in _SPOKEN
        for value in peek.sample
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per session id and sub-agent in the file."""
    runs: dict[str, ClaudeRun] = {}
    _lines(source, runs)
    yield from _finished(runs)


def with_helpers(source: LogSource) -> Iterator[Transcript]:
    """The same with the sub-agents' files beside, whose calls are their run's."""
    runs: dict[str, ClaudeRun] = {}
    _lines(source, runs)
    for path in sorted((source.path.with_suffix("") / "subagents").glob("*.jsonl")):
        other = LogSource(path, calls_only=source.calls_only)
        _lines(other, runs)
        source.skipped.update(other.skipped)
    yield from _finished(runs)


def is_beside(path: Path) -> bool:
    """True if a file is a sub-agent's that is read along with its session's, or describes one."""
    if is_note(path):
        return True
    return (
        path.parent.name == "subagents" and path.parent.parent.with_name(path.parent.parent.name + ".jsonl").is_file()
    )


def _finished(runs: dict[str, ClaudeRun]) -> Iterator[Transcript]:
    for run in runs.values():
        if all(call.t is not None for call in run.one.calls):
            run.one.calls.sort(key=lambda call: call.t or 0.0)
        yield from run.transcripts()


def _lines(source: LogSource, runs: dict[str, ClaudeRun]) -> None:
    for value in source.values():
        session = text(mapping(value).get("sessionId"))
        if session is None:
            why = _unread(mapping(value).get("type"))
        else:
            run = runs.get(session)
            if run is None:
                run = runs[session] = ClaudeRun(calls_only=source.calls_only)
                run.one.format = NAME
            why = _take(value, run, session)
        if why:
            source.skip(why)


def _take(line: dict[str, Any], run: ClaudeRun, session: str) -> str | None:
    """Read one line; returns why it is passed over."""
    kind, message, own = line.get("type"), line.get("message"), text(line.get("uuid"))
    name = (text(line.get("agentId")) or "agent") if line.get("isSidechain") else None
    if kind not in _SPOKEN:
        if (thread := run.threads.get(name)) is not None:
            thread.passed(own)
            if line.get("subtype") == "compact_boundary":
                thread.compacted()
                return None
        return _unread(kind)
    if not isinstance(message, dict):
        return f"{kind} without a message"
    if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        return "a message of the program, not of the model"
    if run.repeated(line.get("uuid")):
        return "repeated"
    thread = run.thread(name, f"{session}/{name}" if name else session)
    if len(thread.one.meta) <= len(_TOLD):  # with `sidechain` there is one more once all are there
        thread.one.meta.update(
            {key: line[key] for key in _TOLD if isinstance(line.get(key), str) and key not in thread.one.meta}
        )
    cwd = text(line.get("cwd"))
    run.one.cwd = run.one.cwd or cwd
    if kind == "assistant":
        run.assistant(thread, line, message, cwd)
    else:
        run.user(thread, line, message, line.get("toolUseResult"), text(line.get("parentUuid")))
    return None


def _unread(kind: Any) -> str | None:
    """Reason to skip a line of a kind that is no message; `None` if nobody needs to know."""
    return None if isinstance(kind, str) and kind in _BOOKKEEPING else f"type {str(kind)[:40]}"


FORMAT = Format(NAME, 180, sniff, read, conversation=True, beside=with_helpers, is_beside=is_beside)
