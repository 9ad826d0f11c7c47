"""Commands of a shell: what they showed and changed, by the shell's interpreter and their output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from context_bench.shell import ShellReads, read_shell
from context_bench.shell.files import complaints
from context_bench.transcripts.trace import Event, EventKind, Ranges
from context_bench.transcripts.traces import outputs
from context_bench.transcripts.traces.calls.editing import patched_paths
from context_bench.transcripts.traces.calls.workspace import Handled
from context_bench.transcripts.traces.recording import ToolCall
from context_bench.transcripts.traces.vocabulary import ToolRow

#: Commands that show a file as it was in some commit, or restore it to that.
_OLD_VERSION = re.compile(r"\bgit\b[^\n;&|]{0,300}\b(?:show|cat-file|diff|log|blame)\b")
_RESTORING = re.compile(r"\bgit\b[^\n;&|]{0,300}\b(?:checkout|restore)\b")
#: So much of a command is looked at for what is done with versions.
_LOOKED_AT = 20_000
#: Commands that run tests.
_TESTING = re.compile(
    r"(?:^|[\s;&|(/])(?:py\.?test|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|runtests\.py"
    r"|python[\d.]* -m (?:pytest|unittest)|\S*manage\.py test"
    r"|(?:npm|yarn|pnpm|bun|go|cargo|dotnet|swift|mix|rake|sbt|bazel|make|mvn|gradle|\./mvnw|\./gradlew)(?: run)?(?: -\S+)*"
    r" (?:test|tests|check|verify))"
    r"(?![\w.-])"
)
#: So much of a command that runs tests is kept.
_TEST_COMMAND = 500


def command_of(call: ToolCall, row: ToolRow) -> str | None:
    """The command as text for a shell; an argv of `bash -c` is its script."""
    value = row.first(row.command, call.arguments)
    if isinstance(value, Mapping):
        value = value.get("command")
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]
        if len(words) == 3 and words[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc", "-ic", "-cl"):
            return words[2]
        return shlex.join(words) if words else None
    return value if isinstance(value, str) and value else None


def shows_old_version(command: str) -> bool:
    """Whether a command shows files as they were in some commit, and not as they are."""
    return _OLD_VERSION.search(command[:_LOOKED_AT]) is not None


def restores_old_version(command: str) -> bool:
    """Whether a command brings files back to what they were in some commit."""
    return _RESTORING.search(command[:_LOOKED_AT]) is not None


def events_of_command(one: Handled) -> list[Event]:
    """The command itself as one event, and what it read, searched, listed and edited."""
    command = command_of(one.call, one.row)
    _settle_folder(one)
    code = one.call.exit_code
    if one.text is not None:
        one.text, said, cut = outputs.unwrapped(one.text)
        code, one.call.cut = (said if code is None else code), one.call.cut or cut
    failed = one.call.failed if one.call.failed is not None else code not in (None, 0)
    if command is None:
        return [_itself(one, not failed)]
    one.command = command
    if one.place.first_test is None and _TESTING.search(command[:_TEST_COMMAND]):
        one.place.first_test = command[:_TEST_COMMAND]
    if command.startswith("apply_patch ") and "*** Begin Patch" in command:
        return [one.event("edit", path, None, "edit", "claimed", ok=not failed) for path in patched_paths(one, command)]
    return _commanded(one, command, code if code is not None else (1 if failed else None))


def _settle_folder(one: Handled) -> None:
    """The folder that the call's own arguments name, where the log names none."""
    told = one.row.first(one.row.cwd, one.call.arguments) if isinstance(one.call.arguments, Mapping) else None
    if isinstance(told, str) and told and one.call.cwd is None:
        base = one.call.lasting_cwd or one.place.cwd or one.place.root
        one.call.cwd = told if told.startswith("/") or not base else f"{base.rstrip('/')}/{told}"


def _itself(one: Handled, ok: bool) -> Event:
    return one.event("exec", None, None, "command", "listed", ok=ok)


def _commanded(one: Handled, command: str, code: int | None) -> list[Event]:
    """What a command did, by the shell's interpreter."""
    place = one.place
    cwd = one.folder or place.cwd or place.root or ""
    base = place.root or cwd
    try:
        result = _interpreted(one, command, cwd, code)
    except ImportError:
        place.counts["commands not read, for want of the packages of the extra `traces`"] += 1
        return [_itself(one, code in (None, 0))]
    events = [_itself(one, code in (None, 0) and result.ok), *_looked_at(one, result, cwd, base)]
    for name in result.edits:
        if (path := place.locate(name, base)) is not None:
            one.changes[path] = result.changes.get(name, "part")
            events.append(one.event("edit", path, None, "edit", "claimed"))
    events += [
        one.event("list", path, None, "command", "listed") for name in result.listed if (path := place.locate(name, base)) is not None
    ]
    if result.too_large:
        place.counts["commands too large to read"] += 1
    if result.mismatch:
        place.counts["output differs from what the command prints on the repository"] += 1
    if place.lasting_shell and result.new_cwd:
        place.cwd = result.new_cwd
    return events


def _interpreted(one: Handled, command: str, cwd: str, code: int | None) -> ShellReads:
    """What the interpreter makes of a command on the files as they were, or on those as they are now where the two differ."""
    place = one.place
    result = read_shell(command, cwd, place.repo, output=one.text, exit_code=code, root=place.root, budget=place.budget)
    if place.edits and not shows_old_version(command):
        # the files as they are now make a repository of their own, which is dear: it is asked where it can matter
        named = (*result.reads, *(place.locate(name, place.root or cwd) for name in result.absent))
        if any(path in place.edits.differing for path in named):
            result = read_shell(command, cwd, place.edits, output=one.text, exit_code=code, root=place.root, budget=place.budget)
    return result


def _looked_at(one: Handled, result: ShellReads, cwd: str, base: str) -> list[Event]:
    """What a command read or searched, and what it tried to and could not."""
    place = one.place
    kind: EventKind = "search" if result.kind == "search" else "read"
    refused, _ = complaints(one.text or "")
    absent = [path for name in result.absent if refused or not result.ok if (path := place.locate(name, base)) is not None]
    # what the shell's interpreter did not open is looked for where the command ended
    others = [path for name in refused if name not in result.unresolved and (path := place.locate(name, result.new_cwd or cwd)) is not None]
    events: list[Event] = []
    failed: list[str] = []
    for name, lines in result.reads.items():
        if (path := place.locate(name or ".", base)) is None:
            continue
        if not result.ok or path in absent or path in others:
            failed.append(path)
            continue
        if lines == "unknown" and kind == "search" and place.known is None:
            events += _printed(one, path, base)
        elif path != ".":
            ranges: Ranges = None if lines == "unknown" else lines
            events.append(one.event(kind, path, ranges, result.provenance, one.asked, cut=result.truncated))
    read = {event.path for event in events}
    missed = dict.fromkeys([*failed, *absent, *others])
    return events + [one.event("read", path, None, "command", ok=False) for path in missed if path not in read]


def _printed(one: Handled, searched: str, base: str) -> list[Event]:
    """Lines of files at or below what a command searched, by its output; nobody knows here whether that is a file or a folder."""
    below = "" if searched == "." else searched + "/"
    events = []
    hits = outputs.found(one.text or "")
    for name, numbers in hits.lines.items():
        path = one.place.locate(name, base)
        if path is not None and (path == searched or path.startswith(below)) and not path.startswith(("/", "../")):
            events.append(one.event("search", path, outputs.runs([n for n in numbers if n > 0]), "output_numbered", cut=hits.cut))
    return events or ([one.event("search", searched, None, "command", "listed")] if searched != "." else [])
