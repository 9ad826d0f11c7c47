"""Codex CLI's rollouts: `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-<time>-<uuid>.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.formats.codex_rollout import matches as matches
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.recording import Recording, ToolCall, mapping, run, texts, whole
from context_bench.transcripts.values import text

NAME = "codex-rollout"
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def recordings(source: Source) -> Iterator[Recording]:
    """The one run of the file."""
    rollout = _Rollout()
    for value in source.values():
        if why := rollout.take(mapping(value)):
            rollout.recording.skip(why)
    if rollout.recording.told or rollout.opened:
        yield rollout.recording


class _Rollout:
    def __init__(self) -> None:
        self.recording = run("codex", None)
        self.opened = False
        self.cwd: str | None = None
        self.answering = False

    def take(self, line: Mapping[str, Any]) -> str | None:
        """Read one line; returns why it is passed over."""
        kind, payload = line.get("type"), line.get("payload")
        if not isinstance(payload, Mapping):
            return "no payload"
        t = self.recording.at(moment(line.get("timestamp")))
        if kind == "response_item":
            return self._item(payload, t)
        if kind == "session_meta":
            return self._open(payload)
        if kind == "turn_context":
            self.cwd = text(payload.get("cwd")) or self.cwd
            self.recording.head.model = text(payload.get("model")) or self.recording.head.model
            return None
        if kind == "event_msg":
            return self._event(payload)
        return f"type {str(kind)[:40]}"

    def _open(self, payload: Mapping[str, Any]) -> str | None:
        if self.opened:  # a forked rollout repeats its parent's head
            return "repeated session_meta"
        head, git = self.recording.head, mapping(payload.get("git"))
        self.opened, self.cwd = True, text(payload.get("cwd"))
        head.cwd, head.repo = self.cwd, text(git.get("repository_url"))
        commit = text(git.get("commit_hash"))
        head.commit = commit if commit and commit.strip("0") else None
        return None

    def _item(self, item: Mapping[str, Any], t: float | None) -> str | None:
        kind = item.get("type")
        if kind in _CALLS:
            self._turn(True)
            self._call(item, t)
        elif kind in _RESULTS:
            self._turn(False)
            call = self.recording.find(item.get("call_id"))
            if call is None:
                return "a result without its call"
            call.answer(_output(item.get("output")) or "")
        elif kind in ("message", "reasoning"):
            self._turn(kind == "reasoning" or item.get("role") == "assistant")
        else:
            return f"item {str(kind)[:40]}"
        return None

    def _turn(self, made: bool) -> None:
        """A new answer of the model begins when something was given to it since the last one."""
        if made and not self.answering:
            self.recording.turns += 1
        self.answering = made

    def _call(self, item: Mapping[str, Any], t: float | None) -> ToolCall:
        action = mapping(item.get("action"))
        name = item.get("name") or {"local_shell_call": "local_shell", "web_search_call": "web_search"}.get(str(item.get("type")))
        arguments = item.get("arguments", item.get("input", dict(action)))
        call = self.recording.call(name, arguments, item.get("call_id") or item.get("id"), t=t, lasting_cwd=self.cwd)
        call.cwd = text(action.get("working_directory"))
        return call

    def _event(self, payload: Mapping[str, Any]) -> str | None:
        kind = payload.get("type")
        if kind == "token_count":
            usage = usage_of(mapping(payload.get("info")).get("total_token_usage"), OPENAI)
            if usage is not None:
                self.recording.head.usage = usage
                self.recording.processed = (usage.input_tokens or 0) + (usage.output_tokens or 0)
            return None
        if kind == "exec_command_end" and (call := self.recording.find(payload.get("call_id"))) is not None:
            call.exit_code, call.cwd = whole(payload.get("exit_code")), text(payload.get("cwd")) or call.cwd
            return None
        return f"event_msg/{str(kind)[:40]}"


def _output(value: Any) -> str | None:
    """The text of a result, which is text, a list of parts, or an object with one of these."""
    if isinstance(value, Mapping):
        return texts(value.get("content", value.get("output")))
    return texts(value)
