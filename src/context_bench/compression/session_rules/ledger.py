"""What a session did to files: created, modified, deleted, only read. From parsed tool calls and shell commands, never from prose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from context_bench.compression.probes.probe import Source
from context_bench.shell.budget import Budget
from context_bench.transcripts.format import mapping, parsed
from context_bench.transcripts.traces.events import command_of, events_of_call, parts_of
from context_bench.transcripts.traces.tool_calls import Workspace
from context_bench.transcripts.traces.vocabulary import cleaned, is_absolute, root_of
from context_bench.transcripts.transcript import ToolCall
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of

Act = Literal["read", "whole", "part", "gone", "touched", "manifest"]

_WHOLE = ("content", "file_text", "contents", "new_text")
_OLD = ("old_string", "old_str", "oldText", "old_text", "insert_line", "start_line", "diff", "edits")
#: Commands that add, take out or raise packages change the file that lists them.
_MANIFESTS = (
    (r"(?:npm|pnpm|yarn|bun)", r"(?:install|i|add|uninstall|un|remove|rm|upgrade|update)", "package.json"),
    (r"(?:poetry|uv|pdm)", r"(?:add|remove)", "pyproject.toml"),
    (r"cargo", r"(?:add|remove|rm)", "Cargo.toml"),
    (r"go", r"get", "go.mod"),
    (r"bundle", r"(?:add|remove)", "Gemfile"),
    (r"composer", r"(?:require|remove)", "composer.json"),
)
_MANAGING = [(re.compile(rf"(?:^|&&|;|\n)\s*{tool}\s+{does}\s+(?:-\S+\s+){{0,4}}(?!-)[@\w]"), name) for tool, does, name in _MANIFESTS]
_REPLACED = re.compile(r"\b(?:updated|replaced|overwritten|overwrote)\b", re.IGNORECASE)
_PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+?)\s*$|^\*\*\* Move to: (.+?)\s*$", re.M)


@dataclass(slots=True)
class Artifact:
    """A file of the session. `written`: the paths as they stood in the calls. `messages`: those that touched it."""

    path: str
    written: dict[str, None] = field(default_factory=dict)
    messages: list[int] = field(default_factory=list)
    read: bool = False
    created: bool = False
    modified: bool = False
    deleted: bool = False


@dataclass(slots=True)
class Ledger:
    """Files by what became of them, in the order of their first appearance. `notes`: what could not be read, by reason."""

    files: dict[str, Artifact] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def created(self) -> list[str]:
        """Files that were not there before, and still are."""
        return [file.path for file in self.files.values() if file.created and not file.deleted]

    @property
    def modified(self) -> list[str]:
        """Files that were there before and were changed, whether they were read or not."""
        return [file.path for file in self.files.values() if file.modified and not file.created and not file.deleted]

    @property
    def deleted(self) -> list[str]:
        """Files that were there before and are gone."""
        return [file.path for file in self.files.values() if file.deleted and not file.created]

    @property
    def read_only(self) -> list[str]:
        """Files that were read and never changed."""
        return [file.path for file in self.files.values() if file.read and not (file.created or file.modified or file.deleted)]

    def sources(self, path: str) -> tuple[Source, ...]:
        """The messages that touched a file."""
        return tuple(Source(at) for at in self.files[path].messages)

    def forms(self, path: str) -> tuple[str, ...]:
        """Other ways the file is called: as the calls had it, and by its name alone where no other file has it."""
        name = path.rsplit("/", 1)[-1]
        alone = [name] if name != path and sum(other.rsplit("/", 1)[-1] == name for other in self.files) == 1 else []
        return tuple(dict.fromkeys([*(form for form in self.files[path].written if form != path), *alone]))


def artifact_ledger(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> Ledger:
    """The ledger of chat messages. `cwd`: the folder the agent works in, from which paths are told; without, found from the paths.

    A path that is written as a whole and was not seen before is created; one that is read and later changed is modified; calls that
    failed did nothing. Commands need the extra `traces`; without it they are counted in `notes`.
    """
    (ledger,) = ledgers(messages, [len(messages)], cwd=cwd)
    return ledger


def ledgers(messages: Sequence[ChatMessage], ends: Sequence[int], *, cwd: str | None = None) -> list[Ledger]:
    """The ledgers of the messages before each of `ends`; a file has one path in all of them, however it was written where."""
    touched = [(at, act, path) for at, _, act, path in acts_of(messages, cwd=cwd)]
    paths = [path for _, act, path in touched if act != "unread"]
    root = cwd or root_of(filter(is_absolute, paths), (path for path in paths if not is_absolute(path)))
    found = [Ledger() for _ in ends]
    for end, ledger in zip(ends, found, strict=True):
        for at, act, written in touched:
            if at < end and act == "unread":
                ledger.notes[written] = ledger.notes.get(written, 0) + 1
            elif at < end:
                _note(ledger, at, act, written, _below(written, root))
    return found


def _note(ledger: Ledger, at: int, act: str, written: str, path: str) -> None:
    new = path not in ledger.files
    if (act == "manifest" and new) or (act == "touched" and not new and not ledger.files[path].deleted):
        return
    file = ledger.files.setdefault(path, Artifact(path))
    file.written[written] = None
    if not file.messages or file.messages[-1] != at:
        file.messages.append(at)
    if act == "gone":
        file.deleted = True
    elif act == "read":
        file.read = True
    elif act in ("whole", "touched") and (new or file.deleted):
        file.created, file.deleted = file.created or new, False
        file.modified = not file.created
    else:
        file.modified, file.deleted = True, False


def _below(path: str, root: str | None) -> str:
    return path[len(root.rstrip("/")) + 1 :] if root and path.startswith(root.rstrip("/") + "/") else path


def acts_of(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> Iterator[tuple[int, int, str, str]]:
    """(message, number of the call in it, act, path as written) of everything that the calls did."""
    outputs = {m.get("tool_call_id"): message_text(m) for m in messages if m.get("role") in ("tool", "function")}
    budget = Budget.of_log()
    for at, message in enumerate(messages):
        for number, raw in enumerate(tool_calls_of(message)):
            call = ToolCall(str(raw["name"]), parsed(raw["arguments"]), raw["id"], outputs.get(raw["id"]), cwd=cwd)
            for act, path in _of_call(call, cwd, budget):
                yield at, number, act, path


def _of_call(call: ToolCall, cwd: str | None, budget: Budget) -> Iterator[tuple[str, str]]:
    place = Workspace(cwd)
    row, _ = place.vocabulary.find(call.tool)
    if row is not None and row.kind_of(call.arguments) == "exec":
        commands = [(part, command) for part in parts_of(call, row) if (command := command_of(part, row)) is not None]
        for part, command in commands:
            yield from _of_command(command, part, cwd, budget)
        if commands:
            return
    for event in events_of_call(call, 1, place):
        if not event.ok or event.path in (None, "."):
            continue
        path = str(event.path)
        if event.kind == "edit":
            yield _edit(call, path), path
        elif event.kind in ("read", "search") and event.strength == "shown":
            yield "read", path


def _edit(call: ToolCall, path: str) -> Act:
    """Whether an edit writes a file as a whole, changes it, or takes it away."""
    given = mapping(call.arguments)
    patch = next((value for value in [call.arguments, *given.values()] if isinstance(value, str) and "*** " in value), "")
    for hit in _PATCHED.finditer(patch):
        if path.endswith((hit[2] or hit[3] or "\0").strip()):
            return {"Add": "whole", "Delete": "gone"}.get(hit[1] or "Add", "part")  # type: ignore[return-value]
    whole = any(name in given for name in _WHOLE) and not any(name in given for name in _OLD)
    return "whole" if whole and not _REPLACED.search((call.output or "")[:400]) else "part"


def _of_command(command: str, call: ToolCall, cwd: str | None, budget: Budget) -> Iterator[tuple[str, str]]:
    from context_bench.transcripts.traces import outputs

    text, code, _ = outputs.unwrapped(call.output) if call.output is not None else (None, None, False)
    try:
        from context_bench.shell import read_shell

        found = read_shell(command, cwd or "", None, output=text, exit_code=code, budget=budget)
    except ImportError:
        yield "unread", "commands, for want of the extra `traces`"
        return
    if found.too_large:
        yield "unread", "commands too large to read"
    for path in found.reads:
        if cleaned(path) and path != ".":
            yield "read", path
    for path, change in found.changes.items():
        yield change, path
    for pattern, name in _MANAGING:
        if pattern.search(command[:20_000]):
            yield "manifest", name
