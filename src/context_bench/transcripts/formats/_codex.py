"""Codex's logs as items of the Responses wire: what the model made between two things it was given is one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.transcripts.format import mapping, text, texts
from context_bench.transcripts.transcript import NO_PROMPT, Message, ToolCall, Transcript

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
MADE = ("reasoning", *CALLS)


class Items:
    """One conversation, fed item by item into its transcript."""

    def __init__(self, one: Transcript, *, calls_only: bool = False) -> None:
        self.one, self.calls_only = one, calls_only
        one.wire, one.tools, one.assumed = "openai-responses", [], ["tools", "instructions"]
        one.head = {"model": "", "store": False}
        self.reply: Message | None = None  # the answer that the model's next item belongs to
        self.last: Message | None = None

    def made(self, item: dict[str, Any], at: float | None = None) -> Message:
        """Read an item that the model made; a new answer begins if the last item was not the model's."""
        one = self.one
        if self.calls_only:
            self.reply = self.reply or Message("assistant")
            return self.reply
        if self.reply is None:
            if not one.context.messages:
                one.assumed += [] if "prompt" in one.assumed else ["prompt"]
                self.given({"type": "message", "role": "user", "content": [{"type": "input_text", "text": NO_PROMPT}]})
            self.reply = self.last = one.add(Message("assistant", made=True, at=at, head=dict(one.head), items=[]))
        if self.reply.items is not None:
            self.reply.items.append(item)
        return self.reply

    def given(self, item: dict[str, Any]) -> None:
        """Read an item that the model was given."""
        self.reply = None
        if not self.calls_only:
            self.one.add(Message("user", items=[item]))

    def restarted(self, items: list[dict[str, Any]]) -> None:
        """Start a new context with these items: the history was compacted."""
        self.one.restart([Message("user", items=items)])
        self.reply = None
        self.one.meta["compactions"] = self.one.meta.get("compactions", 0) + 1

    def call(self, item: Mapping[str, Any], cwd: str | None, at: float | None = None) -> ToolCall:
        """Note the call that an item of the wire is."""
        action = mapping(item.get("action"))
        name = item.get("name") or {"local_shell_call": "local_shell", "web_search_call": "web_search"}.get(
            str(item.get("type"))
        )
        arguments = item.get("arguments", item.get("input", dict(action)))
        call = self.one.call(name, arguments, text(item.get("call_id")) or text(item.get("id")), t=at, lasting_cwd=cwd)
        call.cwd = text(action.get("working_directory"))
        if self.reply is not None and not self.calls_only:
            self.reply.calls.append(call)
        return call

    def result(self, item: Mapping[str, Any]) -> None:
        """Give a call the result that an item of the wire is."""
        call, output = self.one.find(item.get("call_id")), item.get("output")
        if call is None:
            self.one.strays["a result without its call"] += 1
            return
        found = texts(output.get("content", output.get("output"))) if isinstance(output, Mapping) else texts(output)
        call.answer(found or "")
