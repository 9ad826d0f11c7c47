"""What Claude Code's stream and its transcripts have in common: messages of content blocks, one answer over several lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.account import is_placeholder
from context_bench.transcripts.session import RecordedReply, reply_tokens
from context_bench.transcripts.traces.recording import Recording, mapping, run, sequence, texts
from context_bench.transcripts.values import text
from context_bench.wire.conversation import reply_message

_USES = ("tool_use", "server_tool_use", "mcp_tool_use")


@dataclass
class ClaudeRun:
    """One session, fed message by message."""

    recording: Recording = field(default_factory=lambda: run("claude-code", None, lasting_shell=True))
    log_format: str = "claude-code-transcript"
    _usage: dict[str, Usage] = field(default_factory=dict)
    _placeholders: dict[str, list[Any]] = field(default_factory=dict)  # answer whose output tokens are none → its blocks
    _models: dict[str, None] = field(default_factory=dict)
    _lines: set[str] = field(default_factory=set)
    _answer: str | None = None
    _processed: int | None = None

    def repeated(self, ident: Any) -> bool:
        """Whether a line of this id was read before (a resumed session repeats lines)."""
        if not isinstance(ident, str) or not ident:
            return False
        known = ident in self._lines
        self._lines.add(ident)
        return known

    def assistant(self, line: Mapping[str, Any], message: Mapping[str, Any], *, sidechain: bool, cwd: str | None = None) -> None:
        """A line with a part of an answer."""
        record, name = self.recording, text(message.get("id"))
        if name is None or name != self._answer:
            record.turns, self._answer = record.turns + 1, name
            record.processed = self._processed
        if (usage := usage_of(message.get("usage"), ANTHROPIC)) is not None:
            key = name or f"line {record.turns}"
            old = self._usage.get(key)
            self._usage[key] = new = _larger(old, usage)
            self._processed = (self._processed or 0) + _tokens(new) - (_tokens(old) if old else 0)
            self._predict(key, line, message)
        if (model := text(message.get("model"))) is not None:
            record.head.model = record.head.model or model
            self._models.setdefault(model)
        t = record.at(moment(line.get("timestamp")))
        for block in map(mapping, sequence(message.get("content"))):
            if block.get("type") in _USES and record.find(block.get("id")) is None:
                where = text(line.get("uuid"))
                record.call(block.get("name"), block.get("input"), block.get("id"), t=t, sidechain=sidechain, place=where, lasting_cwd=cwd)

    def user(self, line: Mapping[str, Any], message: Mapping[str, Any], structured: Any) -> None:
        """A line with a prompt or with results of tools."""
        self.recording.at(moment(line.get("timestamp")))
        blocks = [
            block for block in map(mapping, sequence(message.get("content"))) if block.get("type") in ("tool_result", "mcp_tool_result")
        ]
        for block in blocks:
            call = self.recording.find(block.get("tool_use_id"))
            if call is None:
                self.recording.skip("a result without its call")
                continue
            failed = True if block.get("is_error") else None
            output = texts(block.get("content"))
            call.answer(output if output is not None else "", failed=failed, structured=structured if len(blocks) == 1 else None)

    def _predict(self, key: str, line: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        """Keep what an answer says as long as its output tokens are a placeholder."""
        if is_placeholder(self.log_format, text(line.get("version")), text(message.get("stop_reason"))):
            said = self._placeholders.setdefault(key, [])
            said += [block for block in sequence(message.get("content")) if block not in said]
        else:
            self._placeholders.pop(key, None)

    def finished(self) -> Recording:
        """The recording, its usage summed over answers if no line told the total; output tokens that are placeholders are counted by us."""
        head = self.recording.head
        head.models = list(self._models) if len(self._models) > 1 else None
        if head.usage is None and self._usage:
            count = counter_for(head.model).count
            for key, said in self._placeholders.items():
                reply = RecordedReply.of(reply_message("anthropic", {"role": "assistant", "content": said}) or {})
                made = reply_tokens(reply.text, reply.tool_calls, count)
                self._usage[key] = replace(self._usage[key], output_tokens=made)
            if self._placeholders:
                head.notes.append(
                    f"output tokens ≈: this version of the client logs a placeholder for {len(self._placeholders):,} replies, "
                    "their texts were counted"
                )
            total = Usage()
            for usage in self._usage.values():
                total = total + usage
            head.usage = total
        return self.recording


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _larger(old: Usage | None, new: Usage) -> Usage:
    """Lines of one answer repeat its usage; the last ones may have grown."""
    return new if old is None or (new.output_tokens or 0) >= (old.output_tokens or 0) else old
