"""Codex's `exec --json`: events about items, of which only the completed ones are read.

The log tells commands and their output, not the calls themselves, nor the prompt: calls are put together from what ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import whole
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, text, texts
from context_bench.transcripts.formats.codex_rollout import CodexItems
from context_bench.transcripts.transcript import Transcript, run

NAME = "codex-exec"
_KNOWN = ("turn.started", "item.started", "item.updated")


def sniff(peek: Peek) -> bool:
    """True if a line opens a thread."""
    return any(
        isinstance(value, dict) and "thread_id" in value and value.get("type") == "thread.started"
        for value in peek.sample
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per thread in the file."""
    return from_values(source.values(), source.skip)


def from_values(values: Iterable[Any], skip: Callable[[str], None]) -> Iterator[Transcript]:
    """The same, of values."""
    thread = _Thread(None)
    for value in map(mapping, values):
        if value.get("type") == "thread.started":
            if thread.one.filled:
                yield thread.one
            thread = _Thread(text(value.get("thread_id")))
        elif why := thread.take(value):
            skip(why)
    if thread.one.filled:
        yield thread.one


class _Thread:
    """A thread, fed event by event."""

    def __init__(self, ident: str | None) -> None:
        self.one = run("codex", None, format=NAME)
        self.one.ident = ident or ""
        self.items = CodexItems(self.one)
        self.length = 0  # items of the conversation

    def take(self, line: Mapping[str, Any]) -> str | None:
        """Read one event; returns why it is passed over."""
        kind, one = line.get("type"), self.one
        if kind == "item.completed":
            return self._item(mapping(line.get("item")))
        if kind == "turn.completed":
            one.billed(usage_of(line.get("usage"), OPENAI))
            one.meta |= {"usage": one.usage} if one.usage is not None else {}
            return None
        return None if kind in _KNOWN else f"type {str(kind)[:40]}"

    def _item(self, item: Mapping[str, Any]) -> str | None:
        kind, failed = item.get("type"), True if item.get("status") in ("failed", "declined") else None
        if kind == "agent_message":
            self.one.turns += 1
            self._made(
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": str(item.get("text") or "")}],
                }
            )
        elif kind == "reasoning":
            self._made(
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": str(item.get("text") or "")}]}
            )
        elif kind == "command_execution":
            code, output = item.get("exit_code"), item.get("aggregated_output")
            sent = f"Exit code: {code}\nOutput:\n{output or ''}" if code else str(output or "")
            call = self._call(item, kind, {"command": item.get("command")}, "shell", sent)
            call.answer(output if isinstance(output, str) else "", failed=failed, exit_code=whole(code))
        elif kind == "file_change":
            call = self._call(
                item, kind, {"changes": item.get("changes")}, "apply_patch", str(item.get("status") or "")
            )
            call.answer("", failed=failed)
        elif kind == "mcp_tool_call":
            self._mcp(item, failed)
        elif kind == "web_search":
            self._call(item, kind, {"query": item.get("query")}, kind, "").answer("")
        elif kind == "todo_list":
            self._sent(item, "update_plan", {"items": item.get("items")}, "")
        else:
            return f"item {str(kind)[:40]}"
        return None

    def _mcp(self, item: Mapping[str, Any], failed: bool | None) -> None:
        result, name = item.get("result"), f"mcp__{item.get('server')}__{item.get('tool')}"
        sent = item.get("error") or result
        found = texts(result)
        output = found if found is not None else canonical_json(result) if result is not None else ""
        call = self._call(
            item, name, item.get("arguments"), name, sent if isinstance(sent, str) else canonical_json(sent)
        )
        call.answer(output, failed=True if item.get("error") else failed)

    def _call(self, item: Mapping[str, Any], tool: str, arguments: Any, sent_as: str, output: str) -> Any:
        """A call as the log has it, and, under the name of its tool, as the model was sent it."""
        call = self.one.call(tool, arguments, item.get("id"))
        self._sent(item, sent_as, arguments, output).calls.append(call)
        return call

    def _sent(self, item: Mapping[str, Any], name: str, arguments: Any, output: str) -> Any:
        ident = text(item.get("id")) or f"item_{self.length}"
        called = {"type": "function_call", "call_id": ident, "name": name, "arguments": canonical_json(arguments or {})}
        message = self._made(called)
        self.items.given({"type": "function_call_output", "call_id": ident, "output": output})
        self.length += 1
        return message

    def _made(self, item: dict[str, Any]) -> Any:
        self.length += 1 + (not self.one.context.messages)
        return self.items.made(item)


FORMAT = Format(NAME, 150, sniff, read, conversation=True)
