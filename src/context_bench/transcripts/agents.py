"""Logs of agents as sessions, where the log is none of a conversation: its tool calls and what came of them, in order.

What was said between the calls is not in such a record, so a session made of one holds no instructions, questions or reasons; `meta`
says so (`assumed`). It is enough to ask what was read, changed and run, and what failed; it is not enough to be sent to a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.session import Session, conversation
from context_bench.transcripts.traces.read import ENDINGS, recordings
from context_bench.transcripts.traces.recording import Recording, ToolCall
from context_bench.wire.conversation import ChatMessage, call_of

__all__ = ["ENDINGS", "agent_sessions"]


def agent_sessions(path: Path) -> Iterator[Session]:
    """The sessions of one file of any format that `load_traces` reads. `BadInput` for any other file, and for one without a call."""
    found = 0
    for recording in recordings(path):
        if recording.calls:
            found += 1
            yield _session(recording, path)
    if not found:
        raise BadInput(f"{path}: no tool call in it was recorded with its arguments; nothing can be asked about such a session")


def _session(recording: Recording, path: Path) -> Session:
    head = recording.head
    messages = [message for number, call in enumerate(recording.calls) for message in _messages(call, number)]
    meta: dict[str, Any] = {"format": head.agent or "agent", "reconstructed": True, "assumed": ["what was said between the calls"]}
    meta |= {"cwd": head.cwd} if head.cwd else {}
    meta |= {"skipped": dict(head.skipped)} if head.skipped else {}
    return Session(head.instance_id, str(path), "openai-chat", conversation(messages, model=head.model), meta)


def _messages(call: ToolCall, number: int) -> Iterator[ChatMessage]:
    """A call and its result; a call whose result the log does not hold was answered by nothing."""
    ident = call.ident or f"call-{number}"
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False, default=repr)
    yield {"role": "assistant", "content": None, "tool_calls": [call_of(ident, call.tool, arguments)]}
    yield {"role": "tool", "tool_call_id": ident, "content": call.output or ""}
