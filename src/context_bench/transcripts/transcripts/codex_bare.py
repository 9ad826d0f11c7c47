"""Codex CLI's rollouts before they had an envelope (2025, up to September): a head line, then bare items of the Responses wire.

Of the same time, and older, is one document `{"session": …, "items": […]}`. Neither tells the model, usage or times of single items; the
folder stands in the first message, where the program tells the model of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from context_bench.core.numbers import moment
from context_bench.transcripts.source import Source
from context_bench.transcripts.transcripts import Peek
from context_bench.transcripts.transcripts.record import NO_PROMPT, Message, ToolCall, Transcript
from context_bench.transcripts.values import mapping, parsed, sequence, text, texts
from context_bench.wire.conversation import to_chat

#: The client and what it writes are those of `codex_rollout`; only the lines differ.
NAME = "codex-rollout"
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_ITEMS = ("message", "reasoning", *_CALLS, *_RESULTS)
_FOLDER = re.compile(r"<cwd>\s*(/[^<\n]{0,400}?)\s*</cwd>|Current working directory: (/[^\n<]{0,400})")


def sniff(peek: Peek) -> bool:
    """Whether the file begins with the head of a session that is followed by bare items, or is one document of both."""
    first = peek.first
    if isinstance(first.get("session"), dict) and isinstance(first.get("items"), list):
        return isinstance(first["session"].get("id"), str)
    if not all(isinstance(first.get(name), str) for name in ("id", "timestamp")) or "instructions" not in first or "type" in first:
        return False
    rest = [value for value in peek.sample[1:20] if isinstance(value, dict) and "record_type" not in value]
    return all(value.get("type") in _ITEMS and "payload" not in value for value in rest)


def transcripts(source: Source) -> Iterator[Transcript]:
    """The one session of the file."""
    reading: _Reading | None = None
    for value in map(mapping, source.values()):
        if isinstance(value.get("session"), Mapping):
            reading = _Reading(value["session"], source)
            for item in map(mapping, sequence(value.get("items"))):
                reading.take(item)
        elif reading is None:
            reading = _Reading(value, source)
        elif "record_type" not in value:
            reading.take(value)
    if reading is not None:
        yield reading.finished()


class _Reading:
    """A session being read. `reply`: the model's message that its next item belongs to."""

    def __init__(self, head: Mapping[str, Any], source: Source) -> None:
        self.source = source
        self.one = Transcript(text(head.get("id")) or "", NAME, "codex", wire="openai-responses", named=text(head.get("id")) is not None)
        git = mapping(head.get("git"))
        self.one.repo, commit = text(git.get("repository_url")), text(git.get("commit_hash"))
        self.one.commit = commit if commit and commit.strip("0") else None
        self.one.cwd, self.one.version = text(head.get("cwd")), text(head.get("cli_version"))
        self.began = moment(head.get("timestamp"))
        fields: dict[str, Any] = {"store": False}
        if self.one.ident:
            fields["prompt_cache_key"] = self.one.ident
        if told := text(head.get("instructions")):
            fields["instructions"] = told
        self.one.meta["head"] = fields
        self.one.assumed = ["model", "tools", "instructions"]  # what stands in the head is the user's part of the instructions
        self.reply: Message | None = None
        self.open: dict[str, tuple[Message, ToolCall]] = {}

    def finished(self) -> Transcript:
        """The session; what the head repeats of its first messages is sent once."""
        fields = self.one.meta["head"]
        if any(fields.get("instructions", "\0") in str(message.content) for message in self.one.context.messages[:4]):
            del fields["instructions"]
        return self.one

    def take(self, item: Mapping[str, Any]) -> None:
        """Read one item."""
        kind, role = item.get("type"), item.get("role")
        at = moment(item.get("timestamp"))
        item = {name: value for name, value in item.items() if name != "timestamp"}
        if kind in _RESULTS:
            self._result(item)
        elif kind in _CALLS or kind == "reasoning" or (kind == "message" and role == "assistant"):
            self._made(item, at)
        elif kind == "message":
            self._given(item, at)
        else:
            self.source.skip(f"item {str(kind)[:40]}")

    def _given(self, item: Mapping[str, Any], at: float | None) -> None:
        self.reply = None
        said = texts(item.get("content")) or ""
        if self.one.cwd is None and (told := _FOLDER.search(said[:20_000])):
            self.one.cwd = (told[1] or told[2]).strip().rstrip(".")
        role: Literal["user", "system"] = "user" if item.get("role") == "user" else "system"
        self._add_given(Message(role, said, at=at, items=[dict(item)]))

    def _add_given(self, message: Message) -> None:
        if message.at is None and not self.one.context.messages:
            message.at = self.began
        self.one.add(message)

    def _made(self, item: Mapping[str, Any], at: float | None) -> None:
        if self.reply is None:
            if not self.one.context.messages:
                self.one.assumed.append("prompt")
                asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": NO_PROMPT}]}
                self._add_given(Message("user", NO_PROMPT, items=[asked]))
            self.reply = self.one.add(Message("assistant", made=True, at=at, items=[]))
        reply = self.reply
        if reply.items is not None:
            reply.items.append(dict(item))
        if item.get("type") in _CALLS:
            call = self._call(item, at)
            reply.calls.append(call)
            if call.ident:
                self.open[call.ident] = reply, call
            return
        for said in to_chat("openai-responses", {"input": [item]}).messages:
            reply.thoughts = "\n".join(part for part in (reply.thoughts, said.get("reasoning_content")) if part)
            if content := said.get("content"):
                reply.content = content if reply.content is None else f"{texts(reply.content)}\n{texts(content)}"

    def _call(self, item: Mapping[str, Any], at: float | None) -> ToolCall:
        action = mapping(item.get("action"))
        name = item.get("name") or {"local_shell_call": "local_shell", "web_search_call": "web_search"}.get(str(item.get("type")))
        arguments = parsed(item.get("arguments", item.get("input", dict(action))))
        ident = text(item.get("call_id")) or text(item.get("id"))
        return ToolCall(str(name), arguments, ident, t=at, lasting_cwd=self.one.cwd, cwd=text(action.get("working_directory")))

    def _result(self, item: Mapping[str, Any]) -> None:
        self.reply = None
        found = self.open.get(str(item.get("call_id")))
        if found is None:
            self.source.skip("a result without its call")
            return
        message, call = found
        output = item.get("output")
        told = texts(output.get("content", output.get("output"))) if isinstance(output, Mapping) else texts(output)
        call.answer(told or "")
        message.results.append(dict(item))
