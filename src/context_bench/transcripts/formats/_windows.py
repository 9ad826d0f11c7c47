"""SWE-agent's windowed editor: the file that is open, the lines of it that are shown, and what each command does to it.

Its commands name neither the file nor, but for some, the lines: they mean the open file and the lines in its window. Four editors have the
same name. `edit A:B` with a text down to `end_of_edit` replaces lines; `edit 'old' 'new'` replaces text in the window; `edit 'text'` the
window itself; `edit` with a text alone the lines between two cursors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.transcripts.record import ToolCall
from context_bench.transcripts.values import text

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
_LONGEST = 200_000
_LONGEST_WORDS = 50_000


@dataclass
class Window:
    """What the editor showed of a file. `lines` by their numbers; `cursors` the first and the last line between the cursors."""

    path: str
    total: int
    lines: dict[int, str] = field(default_factory=dict)
    cursors: tuple[int, int] | None = None

    def shown(self) -> str:
        """The window as the model saw it, its cursors aside."""
        return "".join(f"{number}:{line}\n" for number, line in self.lines.items())


@dataclass
class Editor:
    """The editor of one run, command by command. `path`: the file that is open; `window`: its lines as they are shown now."""

    path: str | None = None
    window: Window | None = None

    def call(self, name: str, action: str, output: str, state: Mapping[str, Any]) -> ToolCall:
        """The call that a command of the editor is, with what it shows afterwards."""
        shown = windows(output)
        known = text(state.get("open_file"))
        if self.path is None and known not in (None, "n/a"):
            self.path = known
        if name in SHOWING:
            return self._showing(name, action, output, shown)
        call = self._edit(name, action, shown)
        call.answer(output, failed=_failed(name, output, shown))
        self._now(shown, call)
        if shown and shown[-1].lines and name != "create":
            call.then = ToolCall("open_file", {"path": shown[-1].path})
            call.then.answer(shown[-1].shown())
        return call

    def _showing(self, name: str, action: str, output: str, shown: list[Window]) -> ToolCall:
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

    def _now(self, shown: list[Window], call: ToolCall) -> None:
        if shown:
            self.path, self.window = shown[-1].path, shown[-1]
        elif not call.failed:
            self.window = None

    def _edit(self, name: str, action: str, shown: list[Window]) -> ToolCall:
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


def windows(output: str) -> list[Window]:
    """The windows in an output, in order."""
    found: list[Window] = []
    mark, last = False, 0
    for line in output[:_LONGEST].split("\n"):
        line = line.removesuffix("\r")
        if head := _HEAD.match(line):
            found.append(Window(head[1], int(head[2])))
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


def _failed(name: str, output: str, shown: list[Window]) -> bool | None:
    """Whether the editor says that it did not do it; `None` where it says that it did."""
    if not output or any(sign in output for sign in _DONE) or _REPLACED.search(output):
        return None
    done = bool(shown) and name in ("insert", "create") and not any(sign in output for sign in _REFUSED)
    return None if done else True


def _words(action: str) -> list[str]:
    if len(action) > _LONGEST_WORDS:
        return action[:2000].split("\n", 1)[0].split()
    try:
        return shlex.split(action)
    except ValueError:
        return action.split("\n", 1)[0].split()
