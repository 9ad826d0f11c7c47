"""A conversation from its requests and replies in the three wire formats: texts, calls and results, in order.

Each request repeats the messages before it, and every call counts once. Nothing is lost that a trace needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.keys import canonical_json, hash_text
from context_bench.transcripts.format import mapping, sequence, text, texts
from context_bench.transcripts.requests import Logged, items_of
from context_bench.transcripts.transcript import ToolCall, Transcript, claims, fenced, observation, tool_of
from context_bench.wire.conversation import tool_calls_of
from context_bench.wire.request import RESULT_ROLES

_TEXTS = ("text", "input_text", "output_text")
_USES = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_result", "mcp_tool_result")
_CALLED = ("function_call", "custom_tool_call", "local_shell_call")
_RETURNED = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")

Asked = tuple[str | None, Any, Any, str | None]


@dataclass(slots=True)
class ModelInput:
    """Texts that the model was given: instructions, a task, or what its last answer led to."""

    parts: list[str]


@dataclass(slots=True)
class ModelOutput:
    """A part of an answer of the model. `calls`: (id, tool, arguments, folder it runs in)."""

    text: str
    calls: list[Asked] = field(default_factory=list)


@dataclass(slots=True)
class CallOutput:
    """Output of a call."""

    ident: str | None
    content: str
    failed: bool | None = None


Spoken = ModelInput | ModelOutput | CallOutput


def spoken(wire: str, item: Any) -> Iterator[Spoken]:
    """Parts of one item of a conversation; an item of a kind that does not matter has none."""
    if isinstance(item, str):
        yield ModelInput([item])
    elif isinstance(item, Mapping):
        yield from _BY_WIRE[wire](item)


def instructions(wire: str, body: Mapping[str, Any]) -> list[str]:
    """Instructions of a body to the model, outside of the conversation."""
    given = (
        body.get("system") if wire == "anthropic" else body.get("instructions") if wire == "openai-responses" else None
    )
    return _parts(given)


def reply_items(wire: str, body: Any) -> list[Any]:
    """The items that the next request will repeat of a reply."""
    if wire == "openai-chat":
        choice = mapping(next(iter(sequence(mapping(body).get("choices"))), None))
        message = mapping(choice.get("message"))
        return [{**message, "role": "assistant"}] if message else []
    if wire == "openai-responses":
        return sequence(mapping(body).get("output"))
    content = mapping(body).get("content")
    return [{"role": "assistant", "content": content}] if isinstance(content, list) else []


def _chat(message: Mapping[str, Any]) -> Iterator[Spoken]:
    role = message.get("role")
    if role == "assistant":
        calls: list[Asked] = [
            (text(call["id"]), call["name"], call["arguments"], None) for call in tool_calls_of(message)
        ]
        yield ModelOutput(texts(message.get("content")) or "", calls)
    elif role in RESULT_ROLES:
        yield CallOutput(text(message.get("tool_call_id")), texts(message.get("content")) or "")
    else:
        yield ModelInput(_parts(message.get("content")))


def _responses(item: Mapping[str, Any]) -> Iterator[Spoken]:
    kind = item.get("type")
    if kind in _CALLED:
        action = mapping(item.get("action"))
        name = item.get("name") or "local_shell"
        arguments = item.get("arguments", item.get("input", dict(action)))
        yield ModelOutput(
            "",
            [
                (
                    text(item.get("call_id")) or text(item.get("id")),
                    name,
                    arguments,
                    text(action.get("working_directory")),
                )
            ],
        )
    elif kind in _RETURNED:
        given = item.get("output")
        inner = mapping(given)
        yield CallOutput(
            text(item.get("call_id")), texts(inner.get("content", inner.get("output")) if inner else given) or ""
        )
    elif item.get("role") == "assistant":
        yield ModelOutput(texts(item.get("content")) or "")
    elif "role" in item:
        yield ModelInput(_parts(item.get("content")))


def _anthropic(message: Mapping[str, Any]) -> Iterator[Spoken]:
    blocks = [mapping(block) for block in sequence(message.get("content"))]
    if message.get("role") == "assistant":
        calls: list[Asked] = [
            (text(b.get("id")), b.get("name"), b.get("input"), None) for b in blocks if b.get("type") in _USES
        ]
        yield ModelOutput("\n".join(_parts(message.get("content"))), calls)
        return
    for block in blocks:
        if block.get("type") in _RESULTS:
            yield CallOutput(
                text(block.get("tool_use_id")),
                texts(block.get("content")) or "",
                True if block.get("is_error") else None,
            )
    if parts := _parts(message.get("content")):
        yield ModelInput(parts)


def _parts(content: Any) -> list[str]:
    """The texts of a content, part by part."""
    if isinstance(content, str):
        return [content]
    found = [part if isinstance(part, str) else mapping(part).get("text") for part in sequence(content) if _plain(part)]
    return [part for part in found if isinstance(part, str)]


def _plain(part: Any) -> bool:
    return isinstance(part, str) or mapping(part).get("type") in _TEXTS


_BY_WIRE = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _anthropic}


#: Programs by how their user agents begin.
_AGENTS = (("claude-cli", "claude-code"), ("codex", "codex"), ("geminicli", "gemini-cli"))
_FOLDER = re.compile(
    r"(?:[Ww]orking directory|[Cc]wd|working_directory)[\"'`*]{0,3}(?:: ?|>| is )[\"'`*]{0,3}(/[^\s<>\"'`*,;]{1,400})"
)
_SHELL_FOLDER = re.compile(r"^\[Current working directory: (/[^\n\]]{0,400})\]", re.M)
_FRESH = re.compile(r"not persistent|new subshell|fresh (?:sub)?shell", re.I)
_MARK = re.compile(r'"cache_control":(?:null|\{[^{}]*\}),?')


def task_key(task: str) -> str:
    """Hash of a text, without the blanks around it."""
    return hash_text(task.strip(), 16)


@dataclass
class Dialogue:
    """One conversation, fed request by request.

    `waiting`: calls of replies that no request has repeated yet. `taken`: ids and texts of answers that were taken.
    `before`: the items of the request before.
    """

    one: Transcript
    waiting: dict[str, ToolCall] = field(default_factory=dict)
    taken: dict[str, ToolCall] = field(default_factory=dict)
    before: list[Any] = field(default_factory=list)
    plain: ToolCall | None = None  # the command in plain text that the next message answers

    def take(self, logged: Logged, reply: list[Any]) -> None:
        """Read one request and the items of its reply."""
        one, items = self.one, items_of(logged)
        text_mode = not (logged.body.get("tools") or logged.body.get("functions"))
        new = items if logged.follows else items[_common(self.before, items) :]
        rewritten = bool(self.before) and not logged.follows and len(items) - len(new) < len(self.before)
        if not self.before:
            self._opened(logged, items)
        t = one.at(logged.at)
        self.plain = None
        for item in new:
            for part in spoken(logged.wire, item):
                self._heard(part, None, text_mode, again=True)
        if self.waiting and not rewritten and not logged.follows:
            self._drop()
        self.waiting.clear()
        self.before = items
        one.turns += 1
        for item in reply:
            for part in spoken(logged.wire, item):
                self._heard(part, t, text_mode, again=False)
        one.billed(logged.usage)
        one.model = one.model or logged.model or text(logged.body.get("model"))

    def _heard(
        self, part: ModelInput | ModelOutput | CallOutput, t: float | None, text_mode: bool, *, again: bool
    ) -> None:
        if isinstance(part, ModelOutput):
            self._answered(part, t, text_mode, again)
        elif isinstance(part, CallOutput):
            call = self.one.find(part.ident)
            if call is not None:
                if not call.answered and (folder := _SHELL_FOLDER.search(part.content[-2000:])):
                    self.one.note_folder(folder[1], call)
                text_shown, code, call.cut = (
                    observation(part.content, {}) if not call.answered else ("", None, call.cut)
                )
                call.answer(text_shown, failed=part.failed, exit_code=code)
            else:
                self.one.skip("a result without its call")
        elif self.plain is not None:
            output, code, self.plain.cut = observation("\n".join(part.parts), {})
            self.plain.answer(output, exit_code=code)
            self.plain = None

    def _answered(self, output: ModelOutput, t: float | None, text_mode: bool, again: bool) -> None:
        """An answer, or a part of it: from a reply, or (`again`) as a request repeats it."""
        self.plain = None
        call: ToolCall | None
        for ident, name, arguments, folder in output.calls:
            key = ident or task_key(f"{name} {arguments}")
            if self._taken(key, again) is None:
                self._take(key, self.one.call(name, arguments, key, t=t, cwd=folder), again)
        commands = fenced(output.text) if text_mode and not output.calls else []
        for command in commands:
            key = task_key(output.text)
            if (call := self._taken(key, again)) is None:
                call = self.one.call(tool_of(command), {"command": command}, None, t=t)
                self._take(key, call, again)
                self.one.lasting_shell = False
            self.plain = call if again and not call.answered else None
        if not again:
            claims(output.text, self.one)

    def _taken(self, key: str, again: bool) -> ToolCall | None:
        """The call of that key, if this is it again."""
        if again and key in self.waiting:
            return self.waiting.pop(key)
        return self.taken.get(key) if again else None

    def _take(self, key: str, call: ToolCall, again: bool) -> None:
        self.taken[key] = call
        if not again:
            self.waiting[key] = call

    def _drop(self) -> None:
        """Take out calls of replies that the conversation went on without: an agent that asked once more threw them
        away.
        """
        gone = {id(call) for call in self.waiting.values()}
        self.one.calls = [call for call in self.one.calls if id(call) not in gone]
        for _ in gone:
            self.one.skip("a call that the agent threw away")

    def _opened(self, line: Logged, items: list[Any]) -> None:
        """Take from the first request the program, its folder, and whether its shell lasts."""
        told = line.headers.get("user-agent", "").lower()
        one = self.one
        one.agent = (
            next((name for start, name in _AGENTS if told.startswith(start)), "")
            or told.partition("/")[0][:40]
            or one.agent
        )
        parts = [*instructions(line.wire, line.body)]
        for item in items[:4]:
            parts += [part for one in spoken(line.wire, item) if isinstance(one, ModelInput) for part in one.parts]
        tools = [
            str(mapping(mapping(tool).get("function") or tool).get("description") or "")
            for tool in sequence(line.body.get("tools"))
        ]
        one.cwd = next((hit[1].rstrip(".") for part in parts if (hit := _FOLDER.search(part))), None)
        if one.agent == "codex" or any(_FRESH.search(part) for part in (*parts, *tools)):
            self.one.lasting_shell = False


def _common(before: list[Any], items: list[Any]) -> int:
    """Number of items that two requests share at their beginning, cache marks aside."""
    number = 0
    for old, new in zip(before, items, strict=False):
        if old != new and unmarked(old) != unmarked(new):
            break
        number += 1
    return number


def unmarked(item: Any) -> str:
    """An item as text without its cache marks, for telling it from others."""
    return _MARK.sub("", canonical_json(item)).replace(",}", "}")
