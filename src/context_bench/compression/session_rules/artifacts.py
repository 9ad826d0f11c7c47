"""Files of a session: created, modified, deleted or only read; the names that edits brought in; the first steps after a
compression.

Taken from parsed tool calls and shell commands, never from prose. `resumed` counts the calls that read again after a
compression and the rounds before anything new. Only recorded continuations count: they show what *that* compression
cost. A replay cannot show more.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from context_bench.compression.probes import ProbeAtom, Source
from context_bench.compression.session_rules.facts import command_in
from context_bench.compression.session_rules.utterances import Candidate, candidate
from context_bench.core.keys import load_json
from context_bench.shell.model import Budget, ShellReads
from context_bench.transcripts.format import mapping, parsed
from context_bench.transcripts.traces.events import command_of, events_of_call, parts_of
from context_bench.transcripts.traces.tool_calls import RunWorkspace, cleaned, is_absolute, root_of
from context_bench.transcripts.transcript import ToolCall
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of
from context_bench.wire.request import RESULT_ROLES

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
_MANAGING = [
    (re.compile(rf"(?:^|&&|;|\n)\s*{tool}\s+{does}\s+(?:-\S+\s+){{0,4}}(?!-)[@\w]"), name)
    for tool, does, name in _MANIFESTS
]
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
class ArtifactLedger:
    """Files by what became of them, in the order of their first appearance. `notes`: what could not be read, by
    reason.
    """

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
        return [
            file.path
            for file in self.files.values()
            if file.read and not (file.created or file.modified or file.deleted)
        ]

    def sources(self, path: str) -> tuple[Source, ...]:
        """The messages that touched a file."""
        return tuple(Source(at) for at in self.files[path].messages)

    def forms(self, path: str) -> tuple[str, ...]:
        """Other ways the file is called: as the calls had it, and by its name alone where no other file has it."""
        name = path.rsplit("/", 1)[-1]
        alone = [name] if name != path and sum(other.rsplit("/", 1)[-1] == name for other in self.files) == 1 else []
        return tuple(dict.fromkeys([*(form for form in self.files[path].written if form != path), *alone]))


def reads_commands() -> bool:
    """True if the grammar of the shell is installed (extra `traces`), by which the files that commands touch are
    found.
    """
    return find_spec("tree_sitter_bash") is not None


def artifact_ledger(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> ArtifactLedger:
    """The ledger of chat messages. `cwd`: the folder the agent works in, from which paths are told; without, found from
    the paths.

    A path that is written as a whole and was not seen before is created; one that is read and later changed is
    modified; calls that failed did nothing. Commands need the extra `traces`; without it they are counted in `notes`.
    """
    (ledger,) = ledgers(messages, [len(messages)], cwd=cwd)
    return ledger


def ledgers(messages: Sequence[ChatMessage], ends: Sequence[int], *, cwd: str | None = None) -> list[ArtifactLedger]:
    """The ledgers of the messages before each of `ends`; a file has one path in all of them, however it was written
    where.
    """
    touched = [(at, act, path) for at, _, act, path in acts_of(messages, cwd=cwd)]
    paths = [path for _, act, path in touched if act != "unread"]
    root = cwd or root_of(filter(is_absolute, paths), (path for path in paths if not is_absolute(path)))
    found = [ArtifactLedger() for _ in ends]
    for end, ledger in zip(ends, found, strict=True):
        for at, act, written in touched:
            if at < end and act == "unread":
                ledger.notes[written] = ledger.notes.get(written, 0) + 1
            elif at < end:
                _note(ledger, at, act, written, _below(written, root))
    return found


def _note(ledger: ArtifactLedger, at: int, act: str, written: str, path: str) -> None:
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
    outputs = {m.get("tool_call_id"): message_text(m) for m in messages if m.get("role") in RESULT_ROLES}
    budget = Budget.of_log()
    for at, message in enumerate(messages):
        for number, raw in enumerate(tool_calls_of(message)):
            call = ToolCall(str(raw["name"]), parsed(raw["arguments"]), raw["id"], outputs.get(raw["id"]), cwd=cwd)
            for act, path in _of_call(call, cwd, budget):
                yield at, number, act, path


def _of_call(call: ToolCall, cwd: str | None, budget: Budget) -> Iterator[tuple[str, str]]:
    place = RunWorkspace(cwd)
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
    """The kind of an edit: it writes a file as a whole, changes it, or deletes it."""
    if call.tool.lower().startswith("delete"):
        return "gone"
    given = mapping(call.arguments)
    patch = next(
        (value for value in [call.arguments, *given.values()] if isinstance(value, str) and "*** " in value), ""
    )
    for hit in _PATCHED.finditer(patch):
        if path.endswith((hit[2] or hit[3] or "\0").strip()):
            return {"Add": "whole", "Delete": "gone"}.get(hit[1] or "Add", "part")  # type: ignore[return-value]
    whole = any(name in given for name in _WHOLE) and not any(name in given for name in _OLD)
    return "whole" if whole and not _REPLACED.search((call.output or "")[:400]) else "part"


def _of_command(command: str, call: ToolCall, cwd: str | None, budget: Budget) -> Iterator[tuple[str, str]]:
    from context_bench.transcripts.traces.vocabulary import unwrapped

    text, code, _ = unwrapped(call.output) if call.output is not None else (None, None, False)
    try:
        from context_bench.shell import read_shell

        found = read_shell(command, cwd or "", None, output=text, exit_code=code, budget=budget)
    except ImportError:
        yield "unread", "commands, for want of the extra `traces`"
        return
    if found.too_large:
        yield "unread", "commands too large to read"
    for path in _shown(found, text or "", cwd or ""):
        if cleaned(path) and path != ".":
            yield "read", path
    for path, change in found.changes.items():
        yield change, path
    for pattern, name in _MANAGING:
        if pattern.search(command[:20_000]):
            yield "manifest", name


def _shown(found: ShellReads, output: str, cwd: str) -> Iterable[str]:
    """Files that a command read; those of a search are in its output. The name that it was given may be a folder's, and
    is taken for one where it has no dot and no capital (`Makefile` is a file).
    """
    if found.kind != "search":
        return found.reads
    from context_bench.transcripts.traces.vocabulary import search_hits

    folder = found.new_cwd if found.new_cwd != cwd else ""
    hits = (posixpath.normpath(posixpath.join(folder, name)) for name in search_hits(output).lines)
    named = (path for path in found.reads if "." in (name := path.rsplit("/", 1)[-1]) or not name.islower())
    return dict.fromkeys((*named, *hits))


#: Names that a line of code defines, and names that only code has.
_DEFINED = re.compile(
    r"\b(?:def|class|func|function|fn|struct|interface|enum|record|trait|const|module)\s+(?:\([^()\n]{0,60}\)\s*)?\"?(?:self\.)?([A-Za-z_]\w{2,60})"
    r"|^\s*([A-Z][A-Z0-9_]{2,60})\s*=|\bit\(\s*['\"]([^'\"\n]{4,80})['\"]",
    re.M,
)
_CODED = re.compile(
    r"\b(?:[A-Za-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)\b"
)
_FILE = re.compile(r"^(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add) File: )(\S+)")
_OLD_TEXT = ("old_string", "old_str", "oldText")
_NEW = ("new_string", "new_str", "newText")
_PATH = ("file_path", "path", "filePath", "filename", "target_file")
_MOST_NAMES = 5
_MOST_FILES = 3
_LONGEST = 50_000


def changes(prefix: Sequence[ChatMessage], ledger: ArtifactLedger) -> Iterator[Candidate]:
    """Changes of the files that were changed most, by the names that came in and are still new to the file."""
    modified = set(ledger.modified)
    places = {form: path for path in modified for form in (path, *ledger.files[path].written)}
    ends = {path.rsplit("/", 1)[-1]: path for path in modified}
    brought: dict[str, dict[str, int]] = {}
    taken: dict[str, set[str]] = {}
    for at, message in enumerate(prefix):
        for call in tool_calls_of(message):
            for told, old, new in _edits(call["arguments"]):
                written = cleaned(told) or told
                path = places.get(written) or ends.get(written.rsplit("/", 1)[-1], "")
                if not path or not (written in places or written.endswith("/" + path) or path.endswith("/" + written)):
                    continue
                before = set(_CODED.findall(old)) | set(_names(old))
                names = list(dict.fromkeys([*_names(new), *_CODED.findall(new)]))
                for name in names:
                    if name not in before and name not in taken.get(path, ()):
                        brought.setdefault(path, {}).setdefault(name, at)
                for name in before - set(names):
                    brought.get(path, {}).pop(name, None)
                taken.setdefault(path, set()).update(before)
    order = sorted(brought, key=lambda path: -len(brought[path]))
    for rank, path in enumerate([path for path in order if brought[path]][:_MOST_FILES]):
        found = [
            ProbeAtom(name, kind="identifier", sources=(Source(at),))
            for name, at in list(brought[path].items())[:_MOST_NAMES]
        ]
        yield candidate(
            "artifact", "changed", (f"`{path}`",), ", ".join(atom.text for atom in found), found, 2.5 + 0.1 * rank
        )


def _names(text: str) -> list[str]:
    return [next(part for part in hit.groups() if part) for hit in _DEFINED.finditer(text)]


def _edits(arguments: str) -> Iterator[tuple[str, str, str]]:
    """(path as written, text taken out, text put in) of a call."""
    command = command_in(arguments)
    patch = command if command and ("+++ " in command or "*** " in command) else None
    given = None
    if command is None:
        try:
            given = load_json(arguments)
        except ValueError:
            patch = arguments
    if isinstance(given, Mapping):
        patch = next((value for value in given.values() if isinstance(value, str) and "*** Begin Patch" in value), None)
        path = next((given[name] for name in _PATH if isinstance(given.get(name), str)), None)
        edits = given["edits"] if isinstance(given.get("edits"), list) else [given]
        for edit in edits:
            old, new = (
                (next((edit[n] for n in names if isinstance(edit.get(n), str)), None) for names in (_OLD_TEXT, _NEW))
                if isinstance(edit, Mapping)
                else (None, None)
            )
            if path and new is not None:
                yield path, (old or "")[:_LONGEST], new[:_LONGEST]
    if patch:
        yield from _patched(patch[:_LONGEST])


def _patched(patch: str) -> Iterator[tuple[str, str, str]]:
    path, old, new = None, [], []  # type: ignore[var-annotated]
    for line in [*patch.split("\n"), "+++ "]:
        found = _FILE.match(line)
        if found or line == "+++ ":
            if path and new:
                yield path, "\n".join(old), "\n".join(new)
            path, old, new = found[1] if found else None, [], []
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(("-", " ")):
            old.append(line[1:])


@dataclass(frozen=True, slots=True)
class ResumedCall:
    """One tool call. `round`: the assistant message that made it. `reads`, `changes`: paths, URLs or commands it looked
    at or changed.
    """

    round: int
    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """`refetches` of `calls` after the compression only read what had been read before and not been changed since.
    `rounds_to_resume`: the rounds of tool calls before the first that read something new or changed something; `None`
    if none did.
    """

    refetches: int
    calls: int
    rounds_to_resume: int | None

    @property
    def refetch_rate(self) -> float | None:
        """Share of the calls; `None` without any."""
        return self.refetches / self.calls if self.calls else None


def resumed(before: Sequence[ResumedCall], after: Sequence[ResumedCall]) -> Resumed:
    """Count over the calls after the compression, given those before it. A call that reads nothing known is neither a
    refetch nor news.
    """
    seen: set[str] = set()
    for move in before:
        seen = (seen | set(move.reads)) - set(move.changes)
    refetches, resumed_in = 0, None
    rounds = list(dict.fromkeys(move.round for move in after))
    for move in after:
        news = bool(move.changes) or any(name not in seen for name in move.reads)
        refetches += bool(move.reads) and not news
        if news and resumed_in is None:
            resumed_in = rounds.index(move.round)
        seen = (seen | set(move.reads)) - set(move.changes)
    return Resumed(refetches, len(after), resumed_in)


def actions(messages: Sequence[ChatMessage], *, cwd: str | None = None) -> list[ResumedCall]:
    """One move per tool call, in order; its round is the number of its message. Paths as the calls had them."""
    acts: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for at, number, act, path in acts_of(messages, cwd=cwd):
        acts.setdefault((at, number), []).append((act, path))
    found = []
    for at, message in enumerate(messages):
        for number in range(len(tool_calls_of(message))):
            own = acts.get((at, number), [])
            reads = tuple(path for act, path in own if act == "read")
            found.append(ResumedCall(at, reads, tuple(path for act, path in own if act not in ("read", "unread"))))
    return found


def resumed_at(messages: Sequence[ChatMessage], point: int, *, cwd: str | None = None) -> Resumed:
    """The course of a recorded session after `point`: refetches, calls, and rounds before anything new (compression.md
    §3.6).
    """
    every = actions(messages, cwd=cwd)
    return resumed([move for move in every if move.round < point], [move for move in every if move.round >= point])
