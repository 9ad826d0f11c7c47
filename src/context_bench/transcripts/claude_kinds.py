"""Kinds of lines in Claude Code's transcripts that are the program's own bookkeeping: known, of no use here, and no news to a reader."""

from __future__ import annotations

from typing import Any

BOOKKEEPING = frozenset(
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


def unread(kind: Any) -> str | None:
    """Why a line of a kind that is no message is passed over; `None` where nobody needs to be told."""
    return None if isinstance(kind, str) and kind in BOOKKEEPING else f"type {str(kind)[:40]}"
