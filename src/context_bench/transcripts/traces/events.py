"""One tool call as events: reads, searches, listings and edits, their evidence, and whether they reached the model.

The output counts before the arguments; if they disagree, the output wins and `RunWorkspace.counts` says so. Lines are
those of the files at the start of the run; an edit moves the lines of later calls. A tool that does several things in
one call is split, each part with its share of the result.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from context_bench.shell import ShellReads, read_shell
from context_bench.shell.files import complaints
from context_bench.shell.model import ranges_of
from context_bench.transcripts.format import mapping, parsed
from context_bench.transcripts.trace import Event, EventKind, Ranges
from context_bench.transcripts.traces.edited import Edits
from context_bench.transcripts.traces.tool_calls import (
    Handled,
    RunWorkspace,
    events_of_edit,
    events_of_list,
    events_of_read,
    events_of_search,
    is_absolute,
    patched_paths,
)
from context_bench.transcripts.traces.vocabulary import ToolRow, numbered, search_hits, unwrapped
from context_bench.transcripts.transcript import ToolCall

#: Commands that show a file as it was in some commit, or restore it to that.
_OLD_VERSION = re.compile(r"\bgit\b[^\n;&|]{0,300}\b(?:show|cat-file|diff|log|blame)\b")
_RESTORING = re.compile(r"\bgit\b[^\n;&|]{0,300}\b(?:checkout|restore)\b")
#: So much of a command is looked at for what is done with versions.
_LOOKED_AT = 20_000
#: Commands that run tests.
_TESTING = re.compile(
    r"(?:^|[\s;&|(/])(?:py\.?test|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|runtests\.py"
    r"|python[\d.]* -m (?:pytest|unittest)|\S*manage\.py test"
    r"|(?:npm|yarn|pnpm|bun|go|cargo|dotnet|swift|mix|rake|sbt|bazel|make|mvn|gradle|\./mvnw|\./gradlew)(?: run)?(?: "
    r"-\S+)*"
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
        if (
            len(words) == 3
            and words[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh")
            and words[1] in ("-c", "-lc", "-ic", "-cl")
        ):
            return words[2]
        return shlex.join(words) if words else None
    return value if isinstance(value, str) and value else None


def shows_old_version(command: str) -> bool:
    """True if a command shows files as they were in some commit, and not as they are."""
    return _OLD_VERSION.search(command[:_LOOKED_AT]) is not None


def restores_old_version(command: str) -> bool:
    """True if a command brings files back to what they were in some commit."""
    return _RESTORING.search(command[:_LOOKED_AT]) is not None


def events_of_command(one: Handled) -> list[Event]:
    """The command itself as one event, and what it read, searched, listed and edited."""
    command = command_of(one.call, one.row)
    _settle_folder(one)
    code = one.call.exit_code
    if one.text is not None:
        one.text, said, cut = unwrapped(one.text)
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
    """Events of a command, by the shell's interpreter."""
    place = one.place
    cwd = one.folder or place.cwd or place.root or ""
    base = place.root or (cwd if is_absolute(cwd) else ".")  # the interpreter's paths are from the root
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
        one.event("list", path, None, "command", "listed")
        for name in result.listed
        if (path := place.locate(name, base)) is not None
    ]
    if result.too_large:
        place.counts["commands too large to read"] += 1
    if result.mismatch:
        place.counts["output differs from what the command prints on the repository"] += 1
    if place.lasting_shell and result.new_cwd:
        place.cwd = result.new_cwd
    return events


def _interpreted(one: Handled, command: str, cwd: str, code: int | None) -> ShellReads:
    """Interpret a command on the files as they were, or on those as they are now where the two differ."""
    place = one.place
    result = read_shell(command, cwd, place.repo, output=one.text, exit_code=code, root=place.root, budget=place.budget)
    if place.edits and not shows_old_version(command):
        # the files as they are now make a repository of their own, which is dear: it is asked where it can matter
        named = (*result.reads, *(place.locate(name, place.root or cwd) for name in result.absent))
        if any(path in place.edits.differing for path in named):
            result = read_shell(
                command, cwd, place.edits, output=one.text, exit_code=code, root=place.root, budget=place.budget
            )
    return result


def _looked_at(one: Handled, result: ShellReads, cwd: str, base: str) -> list[Event]:
    """Events of a command's reads and searches, failed ones included."""
    place = one.place
    kind: EventKind = "search" if result.kind == "search" else "read"
    refused, _ = complaints(one.text or "")
    absent = [
        path for name in result.absent if refused or not result.ok if (path := place.locate(name, base)) is not None
    ]
    # what the shell's interpreter did not open is looked for where the command ended
    others = [
        path
        for name in refused
        if name not in result.unresolved and (path := place.locate(name, result.new_cwd or cwd)) is not None
    ]
    events: list[Event] = []
    failed: list[str] = []
    for name, lines in result.reads.items():
        if (path := place.locate(name or ".", base)) is None:
            continue
        if not result.ok or path in absent or path in others:
            failed.append(path)
            continue
        if lines == "unknown" and kind == "search" and place.repo_paths is None:
            events += _printed(one, path, base)
        elif path != ".":
            ranges: Ranges = None if lines == "unknown" else lines
            events.append(one.event(kind, path, ranges, result.provenance, one.asked, cut=result.truncated))
    read = {event.path for event in events}
    missed = dict.fromkeys([*failed, *absent, *others])
    return events + [one.event("read", path, None, "command", ok=False) for path in missed if path not in read]


def _printed(one: Handled, searched: str, base: str) -> list[Event]:
    """Lines of files at or below what a command searched, by its output; nobody knows here whether that is a file or a
    folder.
    """
    below = "" if searched == "." else searched + "/"
    events = []
    hits = search_hits(one.text or "")
    for name, numbers in hits.lines.items():
        path = one.place.locate(name, base)
        if path is not None and (path == searched or path.startswith(below)) and not path.startswith(("/", "../")):
            events.append(
                one.event("search", path, ranges_of([n for n in numbers if n > 0]), "output_numbered", cut=hits.cut)
            )
    return events or ([one.event("search", searched, None, "command", "listed")] if searched != "." else [])


#: So many things are told apart in one call.
_MOST = 500


def parts_of(call: ToolCall, row: ToolRow) -> list[ToolCall]:
    """The things that a call does, in order; the call itself where its tool does one."""
    items = _items(row.first(row.each, call.arguments)) if row.each else []
    if not items:
        return [call]
    results = _results(call.output, len(items))
    return [_part(call, row, item, result) for item, result in zip(items, results, strict=True)]


def _items(given: Any) -> list[Any]:
    value = parsed(given)
    if isinstance(value, list):
        return value[:_MOST]
    return [value] if isinstance(value, str | Mapping) and value else []


def _part(call: ToolCall, row: ToolRow, item: Any, result: Any) -> ToolCall:
    arguments: Any = item
    if not isinstance(item, Mapping):
        arguments = {next(iter((*row.command, *row.paths)), "item"): item}
    elif isinstance(args := item.get("args"), list | str) and row.command and isinstance(item.get(row.command[0]), str):
        arguments = {row.command[0]: [item[row.command[0]], *([args] if isinstance(args, str) else args)]}
    told = mapping(result)
    output = told.get("result", told.get("output")) if told else result
    failed = True if told.get("success") is False else call.failed
    if failed and not output:
        output = told.get("error")
    return replace(
        call,
        arguments=arguments,
        output=output if isinstance(output, str) else call.output and "",
        failed=failed,
        then=None,
    )


def _results(output: str | None, number: int) -> list[Any]:
    """The results of so many things: a list of as many, or the one text of one thing."""
    value = parsed(output)
    if isinstance(value, list) and len(value) == number:
        return value
    return [output] if number == 1 else [None] * number


#: So many lines of an output are looked at.
_MOST_LINES = 100_000


def events_of_call(call: ToolCall, step: int, place: RunWorkspace) -> list[Event]:
    """The events of one call; at least one, so that steps can be counted. A tool that the table does not name is
    `other` and counted.
    """
    row, foreign = place.vocabulary.find(call.tool)
    if row is None:
        place.counts[f"unknown tool {call.tool[:60]}"] += 1
        row = ToolRow("none")
    if call.lasting_cwd is not None:
        place.cwd = call.lasting_cwd
    made = [event for part in parts_of(call, row) for event in _events(part, row, foreign, step, place)]
    if call.then is not None:
        made += events_of_call(_following(call, call.then), step, place)
    return made or [
        Handled(call, step, row, place, foreign, None).event("other", None, None, "args", "listed", ok=not call.failed)
    ]


def _events(call: ToolCall, row: ToolRow, foreign: bool, step: int, place: RunWorkspace) -> list[Event]:
    """Events of one part of a call."""
    one = Handled(call, step, row, place, foreign, _bounded(call))
    kind = row.kind_of(call.arguments)
    made = _BY_KIND[kind](one)
    if place.edits is not None:
        changed = [(event, event.path) for event in made if event.kind == "edit" and event.ok and event.path]
        _in_base(one, place.edits, made)
        _carry_out(one, place.edits, kind, [path for _, path in changed])
        for event, path in changed:
            event.ranges = event.ranges or place.edits.taken_out(path)
    return made


def _following(call: ToolCall, then: ToolCall) -> ToolCall:
    """Events of a later part of a call."""
    return replace(
        then,
        ident=call.ident,
        turn=call.turn,
        t=call.t,
        tokens_before=call.tokens_before,
        sidechain=call.sidechain,
        then=None,
    )


def _bounded(call: ToolCall) -> str | None:
    """The output, of one with more lines than any model takes their beginning: the rest would only take memory."""
    text = call.output
    if text is None or len(text) < _MOST_LINES or text.count("\n") < _MOST_LINES:
        return text
    call.cut = True
    return "\n".join(text.split("\n", _MOST_LINES)[:_MOST_LINES])


def _in_base(one: Handled, edits: Edits, made: list[Event]) -> None:
    """Files and lines as the commit has them that the agent started from."""
    if not edits or shows_old_version(one.command):
        return
    seen = numbered(one.text or "") if edits.lost else []
    for event in made:
        if event.path is None:
            continue
        if event.provenance != "output_matched" or event.path not in edits.lost:
            event.ranges, sure = edits.to_base(event.path, event.ranges, seen)
            if not sure and event.kind != "edit":
                one.place.counts["reads of edited files whose lines could not be followed"] += 1
        event.path = edits.origin(event.path)


def _carry_out(one: Handled, edits: Edits, kind: str, changed: list[str]) -> None:
    """Note what the call changed, so that later reads are understood."""

    def locate(name: str) -> str | None:
        return one.place.locate(name, one.folder)

    arguments = one.call.arguments
    if not changed:
        return
    if kind == "exec":
        _after_command(one, edits, changed, locate)
        return
    patch = one.row.first(one.row.patch, arguments) if one.row.patch else None
    if isinstance(patch, str):
        done = edits.patch(patch, locate)
        changed = [path for path in changed if path not in done]
    for path in changed:
        if patch is not None or mapping(arguments).get("changes"):
            edits.lose(path)
        else:
            edits.edit(path, arguments, one.call.structured)


def _after_command(one: Handled, edits: Edits, changed: list[str], locate: Callable[[str], str | None]) -> None:
    gone = [path for path in changed if one.changes.get(path) == "gone"]
    patched = "*** Begin Patch" in one.command
    done = edits.patch(one.command, locate) if patched else edits.follow_renames(one.command, gone)
    for path in changed:
        if path in done:
            continue
        if restores_old_version(one.command):
            edits.restore(path)
        elif one.changes.get(path) == "gone":
            edits.remove(path)
        else:
            edits.lose(path)


_BY_KIND: dict[str, Callable[[Handled], list[Event]]] = {
    "read": events_of_read,
    "search": events_of_search,
    "list": events_of_list,
    "edit": events_of_edit,
    "exec": events_of_command,
    "none": lambda one: [],
}
