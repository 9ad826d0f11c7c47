"""Write a synthetic coding session: real files in a workspace, so that whatever is read, found and edited always fits.

    python scripts/story.py MY_SESSION.py src/context_bench/datasets/sessions/NAME.jsonl.gz

`MY_SESSION.py` defines `LANGUAGE` and `tell()`, which returns a `Story`: `user` speaks, `act` says something and calls
tools, `say` ends a turn. Reading, searching and editing work on the story's own workspace; only the output of commands
is given by hand. The same story is the same bytes in every process. Its name is then added to the list in
`datasets/sessions/__init__.py`.
"""

from __future__ import annotations

import difflib
import gzip
import json
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from context_bench.core.keys import stable_hash

_TEXT = {"type": "string"}
_COUNT = {"type": "integer"}
_TOOLS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "Read": (
        "Read a text file; the output numbers its lines.",
        {"file_path": _TEXT, "offset": _COUNT, "limit": _COUNT},
        ["file_path"],
    ),
    "Grep": (
        "Find the lines of files that match a regular expression.",
        {"pattern": _TEXT, "path": _TEXT},
        ["pattern"],
    ),
    "Bash": (
        "Run a shell command in the workspace and return what it prints.",
        {"command": _TEXT, "description": _TEXT},
        ["command"],
    ),
    "Edit": (
        "Replace one piece of text in a file; the old text must occur exactly once.",
        {"file_path": _TEXT, "old_string": _TEXT, "new_string": _TEXT},
        ["file_path", "old_string", "new_string"],
    ),
    "Write": (
        "Create a file, or replace it as a whole.",
        {"file_path": _TEXT, "content": _TEXT},
        ["file_path", "content"],
    ),
    "TodoWrite": (
        "Keep the list of what is done and what is left.",
        {"todos": {"type": "array", "items": {"type": "object"}}},
        ["todos"],
    ),
}


def journal(random: Random, lines: int, start: str, kinds: Sequence[str], step: float = 1.0) -> str:
    """A log of so many lines by seed: `start` is the day and hour (`2026-04-02T09`), each kind a line with {n} and {ms}
    to fill in.
    """
    out = []
    for number in range(lines):
        second = int(number * step)
        text = (
            random.choice(kinds)
            .replace("{n}", str(random.randrange(1000, 9999)))
            .replace("{ms}", str(random.randrange(2, 480)))
        )
        out.append(f"{start}:{second // 60 % 60:02d}:{second % 60:02d}.{random.randrange(1000):03d}Z {text}")
    return "\n".join(out)


def tools() -> list[dict[str, Any]]:
    """The tools of every story, as an OpenAI chat request defines them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": about,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": False,
                },
            },
        }
        for name, (about, properties, required) in _TOOLS.items()
    ]


@dataclass(slots=True)
class Done:
    """A tool call that was made, and its output."""

    name: str
    arguments: dict[str, Any]
    output: str


@dataclass
class Story:
    """A session in the making. `messages` is what the last request and its reply say; `at`: seconds when each was
    written.
    """

    name: str
    cwd: str
    system: str
    files: dict[str, str]
    messages: list[dict[str, Any]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    truth: dict[str, Any] = field(default_factory=dict)
    _read: list[str] = field(default_factory=list)
    _created: list[str] = field(default_factory=list)
    _modified: list[str] = field(default_factory=list)
    _deleted: list[str] = field(default_factory=list)
    _todos: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.name)
        self._clock = 0.0
        self._add({"role": "system", "content": self.system}, 0.0)

    # What is said

    def user(self, text: str) -> None:
        """The user asks for something."""
        self._add({"role": "user", "content": text.strip()}, self.random.uniform(20, 240))

    def act(self, text: str, *calls: Done) -> None:
        """The assistant says `text` and calls tools; their outputs follow."""
        made: list[dict[str, Any]] = []
        for call in calls:
            ident = f"call_{stable_hash([self.name, len(self.messages), call.name, len(made)], 20)}"
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            made.append({"id": ident, "type": "function", "function": {"name": call.name, "arguments": arguments}})
        self._add(
            {"role": "assistant", "content": text.strip() or None, "tool_calls": made}, self.random.uniform(2, 14)
        )
        for call, entry in zip(calls, made, strict=True):
            self._add(
                {"role": "tool", "tool_call_id": entry["id"], "content": call.output}, self.random.uniform(0.1, 6)
            )

    def say(self, text: str) -> None:
        """The assistant ends its turn."""
        self._add({"role": "assistant", "content": text.strip()}, self.random.uniform(3, 18))

    def _add(self, message: dict[str, Any], pause: float) -> None:
        self._clock += pause
        self.messages.append(message)
        self.at.append(round(self._clock, 3))

    # What is done

    def read(self, path: str, offset: int | None = None, limit: int | None = None) -> Done:
        """Read a file of the workspace, or `limit` lines of it from line `offset` on."""
        lines = self.files[path].split("\n")
        first = offset or 1
        shown = lines[first - 1 : first - 1 + limit if limit else None]
        self._note(self._read, path)
        arguments = {"file_path": f"{self.cwd}/{path}", **({"offset": first, "limit": limit} if limit else {})}
        return Done("Read", arguments, "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, first)))

    def grep(self, pattern: str, path: str = "") -> Done:
        """Search the workspace, or what lies under `path`."""
        found = [
            f"{name}:{number}:{line}"
            for name, text in sorted(self.files.items())
            if name.startswith(path)
            for number, line in enumerate(text.split("\n"), 1)
            if re.search(pattern, line)
        ]
        arguments = {"pattern": pattern, **({"path": f"{self.cwd}/{path}".rstrip("/")} if path else {})}
        return Done("Grep", arguments, "\n".join(found) or "No matches found")

    def bash(self, command: str, output: str, about: str = "") -> Done:
        """Run a command; the teller knows what it prints."""
        return Done("Bash", {"command": command, **({"description": about} if about else {})}, output.strip("\n"))

    def edit(self, path: str, old: str, new: str) -> Done:
        """Replace a piece of a file that occurs in it once."""
        if self.files[path].count(old) != 1:
            raise ValueError(f"{self.name}: {old!r} is in {path} {self.files[path].count(old)} times")
        self.files[path] = self.files[path].replace(old, new)
        self._note(self._modified, path)
        arguments = {"file_path": f"{self.cwd}/{path}", "old_string": old, "new_string": new}
        return Done("Edit", arguments, f"The file {self.cwd}/{path} has been updated.")

    def write(self, path: str, content: str) -> Done:
        """Write a file as a whole."""
        new = path not in self.files
        self._note(self._created if new else self._modified, path)
        self.files[path] = content
        said = f"File created: {self.cwd}/{path}" if new else f"The file {self.cwd}/{path} has been replaced."
        return Done("Write", {"file_path": f"{self.cwd}/{path}", "content": content}, said)

    def shell(
        self,
        command: str,
        output: str,
        about: str = "",
        *,
        reads: Sequence[str] = (),
        writes: Mapping[str, str] | None = None,
        deletes: Sequence[str] = (),
    ) -> Done:
        """Run a command that does something to files: those it shows, those it writes with what is in them then, those
        it deletes.
        """
        for path in reads:
            self._note(self._read, path)
        for path, content in (writes or {}).items():
            self._note(self._modified if path in self.files else self._created, path)
            self.files[path] = content
        for path in deletes:
            del self.files[path]
            self._note(self._deleted, path)
        return self.bash(command, output, about)

    def cat(self, path: str, first: int | None = None, last: int | None = None) -> Done:
        """Show a file, or its lines from `first` to `last`, with a command."""
        lines = self.files[path].rstrip("\n").split("\n")
        command = f"sed -n '{first},{last}p' {path}" if first else f"cat {path}"
        return self.shell(command, "\n".join(lines[first - 1 : last] if first else lines), reads=[path])

    def patch(self, path: str, old: str, new: str, then: str = "", output: str = "") -> Done:
        """Replace a piece of a file, as a diff that git applies; `then`: a command that follows at once, with its
        output.
        """
        before = self.files[path]
        after = before.replace(old, new)
        if before.count(old) != 1:
            raise ValueError(f"{self.name}: {old!r} is in {path} {before.count(old)} times")
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
        command = "git apply <<'EOF'\n" + "\n".join(lines) + "\nEOF" + (f"\n{then}" if then else "")
        return self.shell(command, output or "(no output)", writes={path: after})

    def todos(self, **states: Sequence[str]) -> Done:
        """The list of what is done and left: texts by their state."""
        self._todos = [{"content": text, "status": state} for state, texts in states.items() for text in texts]
        return Done("TodoWrite", {"todos": self._todos}, "The list has been updated.")

    @staticmethod
    def _note(where: list[str], path: str) -> None:
        if path not in where:
            where.append(path)

    def told(self) -> dict[str, Any]:
        """What is true of the story: files created, modified and only read, what is still to be done, and what the
        teller noted.
        """
        changed = {*self._created, *self._modified, *self._deleted}
        gone = {path for path in self._deleted if path not in self.files}
        return {
            "files_created": sorted(path for path in self._created if path not in gone),
            "files_modified": sorted(path for path in self._modified if path not in {*self._created, *gone}),
            "files_only_read": sorted(path for path in self._read if path not in changed),
            **({"files_deleted": deleted} if (deleted := sorted(gone - {*self._created})) else {}),
            "open": [todo["content"] for todo in self._todos if todo["status"] != "completed"],
            **self.truth,
        }


def packed(story: Story, language: str) -> bytes:
    """The file of a session: a header, then a line for each message with the second of its writing."""
    header = {"language": language, "cwd": story.cwd, "tools": tools(), "truth": story.told()}
    messages = ({"at": at, "message": message} for at, message in zip(story.at, story.messages, strict=True))
    lines = (json.dumps(line, ensure_ascii=False) for line in (header, *messages))
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)


if __name__ == "__main__":
    made = runpy.run_path(sys.argv[1])
    Path(sys.argv[2]).write_bytes(packed(made["tell"](), made["LANGUAGE"]))
