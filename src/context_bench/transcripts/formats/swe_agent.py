"""SWE-agent's `.traj` files, and checkpoints (one action and observation per line). The shell lasts; exit codes are not recorded.

A file holds the steps (`trajectory`), the messages (`history`), or both; of a run with several attempts each attempt's. The system prompt
and the task stand in the messages, or in what the first step asked the model.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from context_bench.core.jsontext import load_json
from context_bench.core.numbers import money
from context_bench.core.usage import SWE_AGENT, usage_of
from context_bench.transcripts.claims import spans
from context_bench.transcripts.format import Format, Peek
from context_bench.transcripts.formats._windows import EDITING, SHOWING, Editor
from context_bench.transcripts.record import Message, ToolCall, Transcript, log_calls
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import mapping, parsed, sequence, text, texts

NAME = "swe-agent"
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool")
_SEARCH = ("search_file", "search_dir", "find_file")
_SUBMITTING = ("submit", "exit_cost", "exit_context", "exit_forfeit")
#: What stands in a model's place where actions are read from a file or from a person.
_NO_MODELS = ("replay", "human", "human_thought", "instant_empty_submit")
_ROLES = ("system", "user", "assistant", "tool")
#: A longer command is not taken apart.
_LONGEST = 50_000


def sniff(peek: Peek) -> bool:
    """Whether the first object is a trajectory, or lines hold actions and observations."""
    first = peek.first
    if isinstance(first.get("trajectory"), list) and "info" in first:
        return True
    if isinstance(first.get("attempts"), list) and "info" in first:
        return True
    if isinstance(history := first.get("history"), list) and "trajectory" not in first:
        return any(_is_own(message) for message in history[:100])
    return isinstance(first.get("action"), str) and isinstance(first.get("observation"), str) and "args" not in first and "id" not in first


def _is_own(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("action"), str)


def read(source: Source) -> Iterator[Transcript]:
    """One run per document; the lines of a checkpoint are one."""
    lines = _Reading(Transcript("", NAME, NAME, named=False, lasting_shell=True, retrace=log_calls), source)
    for document in map(mapping, source.values()):
        if "action" in document:
            lines.step(document)
        elif any(isinstance(document.get(key), list) for key in ("trajectory", "attempts", "history")):
            yield _run(document, source)
        elif isinstance(document.get("patch_context"), str):
            lines.one.final = spans(document["patch_context"], 1, "patch_context")
        else:
            source.skip("no action")
    if lines.one.context.messages or lines.one.final:
        yield lines.one


def _run(document: Mapping[str, Any], source: Source) -> Transcript:
    name = text(document.get("instance_id"))
    one = Transcript(name or "", NAME, NAME, named=name is not None, lasting_shell=True, retrace=log_calls)
    info = mapping(document.get("info"))
    stats = mapping(info.get("model_stats"))
    one.patch, one.cost = text(info.get("submission")), money(stats.get("instance_cost"))
    one.version = text(info.get("swe_agent_version"))
    model = text(mapping(mapping(mapping(parsed(document.get("replay_config"))).get("agent")).get("model")).get("name"))
    one.model = None if model in _NO_MODELS else model
    one.usage = usage_of(stats, SWE_AGENT)
    one.meta |= {"usage": one.usage} if one.usage is not None else {}
    if isinstance(info.get("patch_context"), str):
        one.final = spans(info["patch_context"], 1, "patch_context")
    attempts = [mapping(attempt) for attempt in sequence(document.get("attempts"))]
    parts = attempts if attempts and not isinstance(document.get("trajectory"), list) else [document]
    reading = _Reading(one, source)
    for number, part in enumerate(parts):
        if number:
            one.restart([])
        reading.attempt(part)
    return one


class _Reading:
    """A run being read, step by step."""

    def __init__(self, one: Transcript, source: Source) -> None:
        self.one, self.source, self.editor, self.first = one, source, Editor(), True
        one.assumed = ["tools", "what was shown below each observation"]

    def attempt(self, part: Mapping[str, Any]) -> None:
        """One attempt: what was said before its first step, and its steps."""
        self.editor = Editor()
        history, steps = list(map(mapping, sequence(part.get("history")))), list(map(mapping, sequence(part.get("trajectory"))))
        begun = next((place for place, message in enumerate(history) if _is_own(message) and not message.get("is_demo")), len(history))
        opening = history[:begun]
        if not opening and steps:
            opening = list(map(mapping, sequence(steps[0].get("query") or steps[0].get("messages"))))
        self._opened(opening)
        for step in steps or _steps(history[begun:]):
            self.step(step)

    def _opened(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """The system prompt, the task and what was shown as an example."""
        found = set()
        for message in messages:
            said, role = texts(message.get("content")), message.get("role")
            if said and role in _ROLES:
                speaker: Literal["system", "user", "assistant"] = role if role in ("system", "assistant") else "user"
                self.one.add(Message(speaker, said))
                found.add(role)
        self.one.assumed += [name for name, role in (("system", "system"), ("prompt", "user")) if role not in found]

    def step(self, step: Mapping[str, Any]) -> None:
        """One step: what the model thought, did and was shown."""
        action = step.get("action")
        message = Message("assistant", texts(step.get("thought")) or None, made=True)
        thoughts = [str(mapping(block).get("thinking") or "") for block in sequence(step.get("thinking_blocks"))]
        message.thoughts = "\n".join(thought for thought in thoughts if thought)
        self.one.add(message)
        if not isinstance(action, str) or not action.strip():
            message.content = message.content or texts(step.get("response"))
            self.source.skip("a step without an action")
            return
        state, output = _state(step.get("state")), texts(step.get("observation"))
        call = self._call(action.strip(), output or "", state)
        call.answer(output)
        message.calls.append(call)
        after = text(state.get("working_dir"))
        if self.first and self.one.cwd is None and after and not re.match(r"\s*(?:cd|pushd)\b", action):
            self.one.cwd = after
        self.first = False

    def _call(self, action: str, output: str, state: Mapping[str, Any]) -> ToolCall:
        """The call that an action is: an editor's, a window's, a search's, or a command."""
        name = action.split(None, 1)[0]
        if name in SHOWING or name in EDITING:
            return self.editor.call(name, action, output, state)
        words = _words(action) if name in (*_EDITORS, *_SEARCH) else []
        if name in _EDITORS and len(words) > 2:
            return ToolCall(name, _edit(words))
        if name in _SEARCH and len(words) > 1:
            where = {"path": words[2]} if len(words) > 2 else {"path": state.get("open_file")} if name == "search_file" else {}
            return ToolCall(name, {"pattern": words[1], **where})
        return ToolCall("submit", {}) if name in _SUBMITTING else ToolCall("bash", {"command": action})


def _steps(history: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The steps that messages tell: what the model said and did, and the message after it."""
    for place, message in enumerate(history):
        if message.get("role") == "assistant":
            after = history[place + 1] if place + 1 < len(history) else {}
            shown = after.get("content") if after.get("role") in ("user", "tool") else None
            said = {"thought": message.get("thought") or message.get("content"), "action": message.get("action")}
            yield {**said, "observation": shown, "thinking_blocks": message.get("thinking_blocks")}


def _edit(words: list[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"command": words[1], "path": words[2]}
    if "--view_range" in words:
        place = words.index("--view_range")
        pair = [word.strip("[],") for word in words[place + 1 : place + 3]]
        if len(pair) == 2:
            arguments["view_range"] = pair
    for option in ("old_str", "new_str", "file_text", "insert_line"):
        if f"--{option}" in words[:-1]:
            arguments[option] = words[words.index(f"--{option}") + 1]
    return arguments


def _words(action: str) -> list[str]:
    if len(action) > _LONGEST:
        return action[:2000].split("\n", 1)[0].split()
    try:
        return shlex.split(action)
    except ValueError:
        return action.split("\n", 1)[0].split()


def _state(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            return mapping(load_json(value))
        except ValueError:
            return {}
    return mapping(value)


FORMAT = Format(NAME, 40, sniff, read, conversation=True)
