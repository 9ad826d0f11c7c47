"""Codex CLI: its rollouts (`$CODEX_HOME/sessions/YYYY/MM/DD/rollout-<time>-<uuid>.jsonl`), and what `exec --json`
prints.

A rollout's `response_item` lines are the conversation on the Responses wire as it was sent; `token_count` events say
what an answer cost. Tools and, in older files, the instructions are not recorded. Before September 2025 the items had
no envelope: a head line, then bare items; older still is one document `{"session": …, "items": […]}`. Neither tells the
model, usage or times of single items, and the folder stands in the first message, where the program tells the model of
it. Items that the model made between two things it was given are one answer.

`exec --json` prints events about items, of which only the completed ones are read. It tells commands and their output,
not the calls themselves, nor the prompt: calls are put together from what ran.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import OPENAI, moment, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text, texts
from context_bench.transcripts.transcript import NO_PROMPT, Boundary, Message, ToolCall, Transcript, run

_ROLLOUT, _EXEC = "codex-rollout", "codex-exec"
_FACTS = ("cwd", "originator", "cli_version", "source", "forked_from_id")
_FOLDER = re.compile(r"<cwd>\s*(/[^<\n]{0,400}?)\s*</cwd>|Current working directory: (/[^\n<]{0,400})")
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
MADE = ("reasoning", *CALLS)


class CodexItems:
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

    def restarted(self, items: list[dict[str, Any]], summary: str = "", at: float | None = None) -> None:
        """Start a new context with these items: the history was compacted. The last answer is the summary, if this has
        its text.
        """
        last = self.last
        said = texts(last.items) if last is not None and last.items else None
        made = last if said and said.strip() in summary and not self.calls_only else None
        self.one.restart([Message("user", items=items)], Boundary(summary=summary, made=made, at=at))
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
        output = item.get("output")
        found = texts(output.get("content", output.get("output"))) if isinstance(output, Mapping) else texts(output)
        self.one.result(item.get("call_id"), found or "", stray=True)


def _is_rollout(peek: Peek) -> bool:
    """True if a line is the head of a rollout, or the file begins with a bare one."""
    return _is_bare(peek) or any(
        isinstance(value, dict)
        and "payload" in value
        and value.get("type") == "session_meta"
        and isinstance(value["payload"], dict)
        for value in peek.sample
    )


def _is_bare(peek: Peek) -> bool:
    first = peek.first
    if isinstance(first.get("session"), dict) and isinstance(first.get("items"), list):
        return isinstance(first["session"].get("id"), str)
    if (
        not all(isinstance(first.get(name), str) for name in ("id", "timestamp"))
        or "instructions" not in first
        or "type" in first
    ):
        return False
    rest = [value for value in peek.sample[1:20] if isinstance(value, dict) and "record_type" not in value]
    return all(value.get("type") in ("message", *MADE, *RESULTS) and "payload" not in value for value in rest)


def _rollouts(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file."""
    rollout: _Rollout | None = None
    for value in source.values():
        if rollout is None:
            bare = "payload" not in (line := mapping(value)) and ("instructions" in line or "session" in line)
            rollout = (_Bare if bare else _Rollout)(source.view == "trace")
        if why := rollout.take(value):
            source.skip(why)
    if rollout is not None and (rollout.one.filled or rollout.one.context.messages):
        yield rollout.finished()


class _Rollout:
    """A rollout of lines with an envelope."""

    def __init__(self, calls_only: bool) -> None:
        self.one = run("codex", None, format=_ROLLOUT)
        self.items = CodexItems(self.one, calls_only=calls_only)
        self.cwd: str | None = None

    def take(self, line: Any) -> str | None:
        """Read one line; returns why it is passed over."""
        payload = line.get("payload") if isinstance(line, Mapping) else None
        if not isinstance(payload, Mapping):
            return "no payload"
        kind, at = line.get("type"), self.one.at(moment(line.get("timestamp")))
        if kind == "response_item":
            return self.item(payload if self.items.calls_only else dict(payload), at)
        if kind == "session_meta":
            return self.open(payload)
        if kind == "turn_context":
            self._turn(payload)
        elif kind == "compacted":
            self.items.restarted(_history(payload), str(payload.get("message") or ""), at)
        elif kind == "event_msg":
            return self._event(payload)
        else:
            return f"type {str(kind)[:40]}"
        return None

    def open(self, head: Mapping[str, Any]) -> str | None:
        """Read the head of a rollout; a forked one repeats its parent's, which is not read again."""
        one, git = self.one, mapping(head.get("git"))
        if one.opened:
            return "repeated session_meta"
        one.opened, self.cwd = True, text(head.get("cwd"))
        one.cwd, one.repo, commit = self.cwd, text(git.get("repository_url")), text(git.get("commit_hash"))
        one.commit = commit if commit and commit.strip("0") else None
        if ident := text(head.get("id")):
            one.ident = one.head["prompt_cache_key"] = ident
        one.meta.update({name: head[name] for name in _FACTS if isinstance(head.get(name), str)})
        given = head.get("base_instructions") or head.get("instructions")
        instructions = text(given.get("text")) if isinstance(given, Mapping) else text(given)
        if instructions:
            one.head["instructions"] = instructions
            one.assumed.remove("instructions")
        return None

    def item(self, item: Any, at: float | None) -> str | None:
        """Read an item of the conversation; returns why it is passed over."""
        kind = item.get("type")
        if kind in MADE or (kind == "message" and item.get("role") == "assistant"):
            self.one.turns += self.items.reply is None
            self.items.made(item, at)
            if kind in CALLS:
                self.items.call(item, self.cwd, at)
        elif kind in RESULTS or kind == "message":
            self.items.given(item)
            if kind in RESULTS:
                self.items.result(item)
        else:
            return f"item {str(kind)[:40]}"
        return None

    def finished(self) -> Transcript:
        """The run, once all its lines are read."""
        return self.one

    def _turn(self, payload: Mapping[str, Any]) -> None:
        self.cwd = text(payload.get("cwd")) or self.cwd
        if isinstance(model := payload.get("model"), str):
            self.one.head["model"], self.one.model = model, model or self.one.model
        if isinstance(payload.get("effort"), str):
            self.one.head["reasoning"] = {"effort": payload["effort"]}

    def _event(self, payload: Mapping[str, Any]) -> str | None:
        kind, one = payload.get("type"), self.one
        if kind == "token_count":
            info = mapping(payload.get("info"))
            last = usage_of(info.get("last_token_usage"), OPENAI)
            total = usage_of(info.get("total_token_usage"), OPENAI)
            if self.items.last is not None and last is not None and last.input_tokens:  # 0: no call, a new estimate
                self.items.last.usage = last
                if total is None or total != one.usage:  # an answer ends with its usage
                    self.items.reply = None
            if total is not None:
                one.usage = one.meta["usage"] = total
                one.processed = (total.input_tokens or 0) + (total.output_tokens or 0)
            return None
        if kind == "exec_command_end" and (call := one.find(payload.get("call_id"))) is not None:
            call.exit_code, call.cwd = whole(payload.get("exit_code")), text(payload.get("cwd")) or call.cwd
            return None
        return f"event_msg/{str(kind)[:40]}"


class _Bare(_Rollout):
    """A rollout of bare items behind a head, or of one document."""

    def take(self, line: Any) -> str | None:
        """Read one line; returns why it is passed over."""
        value = mapping(line)
        if isinstance(value.get("session"), Mapping):
            self._head(value["session"])
            for item in map(mapping, sequence(value.get("items"))):
                if why := self._bare_item(item):
                    self.one.skip(why)
        elif not self.one.opened:
            self._head(value)
        elif "record_type" not in value:
            return self._bare_item(value)
        return None

    def finished(self) -> Transcript:
        """The run; what the head repeats of its first messages is sent once."""
        one = self.one
        first = [
            texts(item.get("content")) or "" for message in one.context.messages[:4] for item in message.items or ()
        ]
        if any(one.head.get("instructions", "\0") in said for said in first):
            for message in one.messages():
                (message.head or {}).pop("instructions", None)
        return one

    def _head(self, head: Mapping[str, Any]) -> None:
        self.open(head)
        one = self.one
        one.named, one.version, one.tools = bool(one.ident), text(head.get("cli_version")), None
        one.meta.clear()
        # the head's instructions are the user's part of them
        one.assumed = ["model", "tools", "instructions"]
        self.began = moment(head.get("timestamp"))

    def _bare_item(self, item: Mapping[str, Any]) -> str | None:
        at, one = moment(item.get("timestamp")), self.one
        if at is None:  # only the first item has the head's time
            at = self.began
        self.began = None
        if (
            one.cwd is None
            and item.get("type") == "message"
            and (found := _FOLDER.search((texts(item.get("content")) or "")[:20_000]))
        ):
            self.cwd = one.cwd = (found[1] or found[2]).strip().rstrip(".")
        one.at(at)
        return self.item({name: value for name, value in item.items() if name != "timestamp"}, at)


def _history(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    history = payload.get("replacement_history")
    if isinstance(history, list):
        return [dict(item) for item in history if isinstance(item, Mapping)]
    return [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": str(payload.get("message") or "")}],
        }
    ]


_KNOWN = ("turn.started", "item.started", "item.updated")


def _is_exec(peek: Peek) -> bool:
    """True if a line opens a thread."""
    return any(
        isinstance(value, dict) and "thread_id" in value and value.get("type") == "thread.started"
        for value in peek.sample
    )


def from_values(values: Iterable[Any], skip: Callable[[str], None]) -> Iterator[Transcript]:
    """One run per thread that these events of `exec --json` open."""
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
        self.one = run("codex", None, format=_EXEC)
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


FORMAT = {
    "codex_rollout": Format(_ROLLOUT, 35, _is_rollout, _rollouts, conversation=True, about="Codex CLI's rollouts."),
    "codex_exec": Format(
        _EXEC,
        150,
        _is_exec,
        lambda source: from_values(source.values(), source.skip),
        conversation=True,
        about="What Codex's `exec --json` prints.",
    ),
}
