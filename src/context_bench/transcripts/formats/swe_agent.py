"""SWE-agent's `.traj` files, and checkpoints (one action and observation per line). The shell lasts; exit codes are not
recorded.

A file holds the steps (`trajectory`), the messages (`history`), or both; of a run with several attempts each attempt's.
The system prompt and the task stand in the messages, or in what the first step asked the model.

Commands of its windowed editor name neither the file nor, but for some, the lines: they mean the open file and the
lines in its window. Four editors have the same name. `edit A:B` with a text down to `end_of_edit` replaces lines;
`edit 'old' 'new'` replaces text in the window; `edit 'text'` the window itself; `edit` with a text alone the lines
between two cursors.

Context-aware runs leave `*.context.json` and `*patch_context.txt` (`File:` and `Lines:`) beside the trajectory: lists
made by the run's own program of what it says was looked at, in no order. They are the run's final context.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from context_bench.core.machine import file_text, opened
from context_bench.core.numbers import SWE_AGENT, money, usage_of
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
from context_bench.transcripts.trace import Event, claims_of, span_of, spans
from context_bench.transcripts.transcript import Message, ToolCall, Transcript, log_calls, run

SHOWING = ("open", "goto", "scroll_up", "scroll_down", "set_cursors")
EDITING = ("edit", "insert", "create")
_HEAD = re.compile(r"\[File: (.{1,4000}?) \((\d{1,9}) lines total\)\]\s*$")
_NUMBERED = re.compile(r"(\d{1,9}):(.*)$")
_CURSOR = re.compile(r"<{5} (START|END) CURSOR >{5}\s*$")
_RANGE = re.compile(r"edit[ \t]+(\d{1,9}):(\d{1,9})(?![^\s])[^\n]*(?:\n(.*))?$", re.S)
_END = re.compile(r"(?:\A|\n)end_of_edit\s*$")
_DONE = ("File updated.", "Text replaced.", "Edit successful.")
_REPLACED = re.compile(r"^Replaced \d+ occurrences?", re.M)
_REFUSED = ("NOT been applied", "was not applied", "No changes were made", "No file open", "Usage: ")
#: Longer commands are not taken apart, and of longer outputs only so much is looked at.
_LONGEST_OUTPUT = 200_000
#: A longer command is not taken apart.
_LONGEST_ACTION = 50_000


@dataclass
class EditorWindow:
    """Lines of a file that the editor showed. `lines` by their numbers; `cursors`: the first and the last line between
    the cursors.
    """

    path: str
    total: int
    lines: dict[int, str] = field(default_factory=dict)
    cursors: tuple[int, int] | None = None

    def shown(self) -> str:
        """The window as the model saw it, its cursors aside."""
        return "".join(f"{number}:{line}\n" for number, line in self.lines.items())


@dataclass
class Editor:
    """The editor of one run, command by command. `path`: the file that is open; `window`: its lines as they are shown
    now.
    """

    path: str | None = None
    window: EditorWindow | None = None

    def call(self, name: str, action: str, output: str, state: Mapping[str, Any]) -> ToolCall:
        """The call that a command of the editor is, with what it shows afterwards."""
        shown = windows(output)
        stated = text(state.get("open_file"))
        if self.path is None and stated not in (None, "n/a"):
            self.path = stated
        if name in SHOWING:
            return self._viewed(name, action, output, shown)
        call = self._edit(name, action, shown)
        call.answer(output, failed=_failed(name, output, shown))
        self._now(shown, call)
        if shown and shown[-1].lines and name != "create":
            call.then = ToolCall("open_file", {"path": shown[-1].path})
            call.then.answer(shown[-1].shown())
        return call

    def _viewed(self, name: str, action: str, output: str, shown: list[EditorWindow]) -> ToolCall:
        words = _words(action)
        named = words[1] if name == "open" and len(words) > 1 else None
        path = shown[-1].path if shown else named or self.path
        call = ToolCall("open_file", {"path": path})
        # a window without line numbers is a message: nothing of the file was shown
        seen = bool(shown and shown[-1].lines)
        call.answer(shown[-1].shown() if seen else output, failed=None if seen or not output else True)
        if shown:
            self._now(shown, call)
        return call

    def _now(self, shown: list[EditorWindow], call: ToolCall) -> None:
        if shown:
            self.path, self.window = shown[-1].path, shown[-1]
        elif not call.failed:
            self.window = None

    def _edit(self, name: str, action: str, shown: list[EditorWindow]) -> ToolCall:
        """The edit that a command asks for, in terms of the file."""
        path = shown[-1].path if shown else self.path
        arguments: dict[str, Any] = {"path": path}
        if name == "create":
            words = _words(action)
            arguments = {"path": words[1] if len(words) > 1 else path, "file_text": ""}
        elif name == "insert":
            arguments |= self._inserted(_words(action))
        elif told := _RANGE.match(action):
            arguments |= _replaced(int(told[1]), int(told[2]), _END.sub("", told[3] or ""))
        elif "\n" in action and action[:5].strip() == "edit" and _END.search(action):
            arguments |= self._between(_END.sub("", action.split("\n", 1)[1]))
        else:
            arguments |= self._by_text(_words(action)[1:])
        return ToolCall(name, arguments)

    def _between(self, new: str) -> dict[str, Any]:
        cursors = self.window.cursors if self.window is not None else None
        return _replaced(*cursors, new) if cursors else {}

    def _inserted(self, words: list[str]) -> dict[str, Any]:
        if len(words) < 2:
            return {}
        at = int(words[2]) if len(words) > 2 and words[2].isdecimal() and len(words[2]) < 10 else None
        if at is None:
            at = self.window.total if self.window is not None else 2**31 - 1
        return {"insert_line": at, "new_str": words[1].removesuffix("\n")}

    def _by_text(self, words: list[str]) -> dict[str, Any]:
        lines = self.window.lines if self.window is not None else {}
        if len(words) == 1:
            return _replaced(min(lines), max(lines), words[0]) if lines else {}
        if len(words) < 2:
            return {}
        old, new, everywhere = words[0], words[1], len(words) > 2 and words[2].lower() == "true"
        body = "\n".join(lines.values())
        place = -1 if everywhere else body.find(old)
        if place < 0 or not old:
            return {"old_string": old, "new_string": new, "replace_all": everywhere}
        numbers = list(lines)
        first, last = body.count("\n", 0, place), body.count("\n", 0, place + len(old))
        whole = "\n".join(lines[number] for number in numbers[first : last + 1])
        return _replaced(numbers[first], numbers[last], whole.replace(old, new))


def windows(output: str) -> list[EditorWindow]:
    """The windows in an output, in order."""
    found: list[EditorWindow] = []
    mark, last = False, 0
    for line in output[:_LONGEST_OUTPUT].split("\n"):
        line = line.removesuffix("\r")
        if head := _HEAD.match(line):
            found.append(EditorWindow(head[1], int(head[2])))
            mark, last = False, 0
        elif not found:
            continue
        elif (numbered := _NUMBERED.match(line)) and last in (0, int(numbered[1]) - 1):
            last = int(numbered[1])
            found[-1].lines[last] = numbered[2]
            if mark:
                found[-1].cursors, mark = (last, last), False
        elif cursor := _CURSOR.match(line):
            mark = cursor[1] == "START"
            if cursor[1] == "END" and found[-1].cursors and found[-1].lines:
                found[-1].cursors = (found[-1].cursors[0], last)
    return found


def _replaced(first: int, last: int, new: str) -> dict[str, Any]:
    return {"start_line": first, "end_line": last, "new_text": new}


def _failed(name: str, output: str, shown: list[EditorWindow]) -> bool | None:
    """True if the editor says that the edit failed; `None` if it says that it succeeded."""
    if not output or any(sign in output for sign in _DONE) or _REPLACED.search(output):
        return None
    done = bool(shown) and name in ("insert", "create") and not any(sign in output for sign in _REFUSED)
    return None if done else True


NAME = "swe-agent"
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool")
_SEARCH = ("search_file", "search_dir", "find_file")
_SUBMITTING = ("submit", "exit_cost", "exit_context", "exit_forfeit")
#: What stands in a model's place where actions are read from a file or from a person.
_NO_MODELS = ("replay", "human", "human_thought", "instant_empty_submit")
_ROLES = ("system", "user", "assistant", "tool")


def sniff(peek: Peek) -> bool:
    """True if the first object is a trajectory, or lines hold actions and observations."""
    first = peek.first
    if "info" in first and any(isinstance(first.get(name), list) for name in ("trajectory", "attempts")):
        return True
    if isinstance(history := first.get("history"), list) and "trajectory" not in first:
        return any(map(_is_own, history[:100]))
    step = isinstance(first.get("action"), str) and isinstance(first.get("observation"), str)
    return step and first.keys().isdisjoint(("args", "id"))


def _is_own(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("action"), str)


def read(source: LogSource) -> Iterator[Transcript]:
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


def _run(document: Mapping[str, Any], source: LogSource) -> Transcript:
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

    def __init__(self, one: Transcript, source: LogSource) -> None:
        self.one, self.source, self.editor, self.first = one, source, Editor(), True
        one.assumed = ["tools", "what was shown below each observation"]

    def attempt(self, part: Mapping[str, Any]) -> None:
        """One attempt: what was said before its first step, and its steps."""
        self.editor = Editor()
        history, steps = (
            list(map(mapping, sequence(part.get("history")))),
            list(map(mapping, sequence(part.get("trajectory")))),
        )
        begun = next(
            (place for place, message in enumerate(history) if _is_own(message) and not message.get("is_demo")),
            len(history),
        )
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
        state, output = mapping(parsed(step.get("state"))), texts(step.get("observation"))
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
            where = (
                {"path": words[2]}
                if len(words) > 2
                else {"path": state.get("open_file")}
                if name == "search_file"
                else {}
            )
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
    if len(action) > _LONGEST_ACTION:
        return action[:2000].split("\n", 1)[0].split()
    try:
        return shlex.split(action)
    except ValueError:
        return action.split("\n", 1)[0].split()


_TEXT_LIST = "patch_context.txt"
#: So large may a list in plain text be.
_LIST_LIMIT = 16 * 1024 * 1024


def _is_context(peek: Peek) -> bool:
    """True if the first object lists files that were viewed and their lines."""
    return _is_text_list(peek.path) or _lists(peek.first)


def _lists(first: Mapping[str, Any]) -> bool:
    return isinstance(first.get("file_line_ranges"), Mapping) or (
        isinstance(first.get("viewed_files"), list) and "messages" not in first and "trajectory" not in first
    )


def _is_text_list(path: Path) -> bool:
    """True if a file in plain text is such a list."""
    if not path.name.endswith(_TEXT_LIST) or path.stat().st_size > _LIST_LIMIT:
        return False
    with opened(path) as file:
        return any(line.lstrip().startswith(b"File:") for line in file)


def _contexts(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file."""
    if _is_text_list(source.path):
        source.skipped.clear()  # it is no JSON, and need not be
        one = run("swe-agent", None)
        one.final = spans(file_text(source.path, "replace"), 1, "patch_context")
        yield one
        return
    yield from map(_listed, source.rows(_lists, "no list of files"))


def _listed(value: Mapping[str, Any]) -> Transcript:
    one = run("swe-agent", value.get("instance_id"))
    lines: dict[str, list[tuple[int, int]]] = {
        str(path): [pair for span in map(mapping, sequence(spans)) if (pair := span_of(span))]
        for path, spans in mapping(value.get("file_line_ranges")).items()
    }
    viewed = [path for path in sequence(value.get("viewed_files")) if isinstance(path, str)]
    one.final = claims_of("context", 1, lines, files=[*lines, *viewed])
    edited = [path for path in sequence(value.get("edited_files")) if isinstance(path, str)]
    one.events = [Event(1, None, "edit", "context", path, None, "edit", "claimed") for path in dict.fromkeys(edited)]
    one.patch = text(mapping(value.get("info")).get("submission"))
    return one


FORMAT = {
    "swe_agent": Format(NAME, 40, sniff, read, conversation=True, about="SWE-agent's `.traj` files, and checkpoints."),
    "swe_context": Format(
        "swe-agent-context",
        230,
        _is_context,
        _contexts,
        about="`*.context.json` and `*patch_context.txt` of context-aware runs.",
    ),
}
