"""Claude Code's own transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, and its sub-agents' files.

Lines of types `user` and `assistant` are the conversation; others are bookkeeping, and kinds that nobody knows are counted. Sub-agents
that are told inline (`isSidechain`) are sessions of their own. Bodies were not recorded: see `logs.claude`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.transcripts.claude import Thread
from context_bench.transcripts.claude_kinds import unread
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import text

NAME = "claude-code-transcript"
_SPOKEN = ("user", "assistant")
_TOLD = ("cwd", "gitBranch", "version")


def matches(sample: list[Any]) -> bool:
    """Whether the lines have Claude Code's envelope."""
    return any(
        isinstance(value, dict) and "parentUuid" in value and isinstance(value.get("sessionId"), str) and value.get("type") in _SPOKEN
        for value in sample
    )


@dataclass
class _Found:
    thread: Thread = field(default_factory=Thread)
    meta: dict[str, Any] = field(default_factory=dict)


def sessions(source: Source) -> Iterator[Session]:
    """One session per session id and sub-agent in the file."""
    found: dict[str, _Found] = {}
    for value in source.values():
        why = _take(value, found)
        if why:
            source.skip(why)
    skipped = source.skipped_counts()
    for ident, one in found.items():
        if one.thread.answers:
            yield one.thread.session(ident, str(source.path), {"format": NAME, **one.meta, "skipped": skipped})
            skipped = {}


def _take(value: Any, found: dict[str, _Found]) -> str | None:
    """Read one line; returns why it is passed over."""
    if not isinstance(value, Mapping):
        return "not an object"
    kind, session = value.get("type"), value.get("sessionId")
    if not isinstance(session, str):
        return unread(kind)
    side = bool(value.get("isSidechain"))
    ident = f"{session}/{text(value.get('agentId')) or 'agent'}" if side else session
    own, parent = text(value.get("uuid")), text(value.get("parentUuid"))
    if kind not in _SPOKEN:
        if (one := found.get(ident)) is not None:
            one.thread.passed(own)
            if value.get("subtype") == "compact_boundary":
                one.thread.compacted()
                return None
        return unread(kind)
    message = value.get("message")
    if not isinstance(message, Mapping):
        return f"{kind} without a message"
    if value.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        return "a message of the program, not of the model"
    one = found.setdefault(ident, _Found(meta={"sidechain": side}))
    if one.thread.seen(own):
        return "repeated"
    one.meta.update({name: value[name] for name in _TOLD if isinstance(value.get(name), str) and name not in one.meta})
    if kind == "assistant":
        one.thread.assistant(message, value.get("timestamp"), own)
    else:
        one.thread.user(message, own, parent)
    return None
