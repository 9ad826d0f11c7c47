"""The git commands that show or change files."""

from __future__ import annotations

import re
from collections.abc import Callable

from context_bench.shell import comparing, finding, search
from context_bench.shell.model import (
    Change,
    CommandCall,
    FileLine,
    LineStream,
    Part,
    Result,
    Unknown,
    UnknownLines,
    give_up_if,
    parse_options,
)
from context_bench.shell.text_commands import picked


def git(call: CommandCall) -> Result:
    """Run a git command; its name is "git NAME"."""
    command = _COMMANDS.get(call.name[4:])
    return command(call) if command is not None else (LineStream([UnknownLines(None)]), None)


def _silent(call: CommandCall) -> Result:
    return LineStream(), 0


def _status(call: CommandCall) -> Result:
    return LineStream([UnknownLines(None)]), 0


def _diff(call: CommandCall) -> Result:
    return comparing.diff(call) if "--no-index" in call.args else _named(call)


def _changed(call: CommandCall) -> Result:
    """checkout, restore and the like: the files named are others afterwards."""
    for path in _paths(call):
        call.files.edits[path] = "part"
        call.files.written[path] = LineStream([UnknownLines(path)])
    return LineStream([UnknownLines(None)]), None


def _applied(call: CommandCall) -> Result:
    patched(call)
    return LineStream(), None


def _taken_away(call: CommandCall) -> Result:
    """Apply git rm and git mv. Without a repository, every name that is no option is taken for a file."""
    files, moved = call.files, call.name == "git mv"
    names = [arg for arg in call.args if not arg.startswith("-")]
    for name in names[:-1] if moved else ([] if "--cached" in call.args else names):
        path = files.resolve(name)
        if path and files.is_file(path) is not False:
            files.edits[path] = "gone"
            files.written[path] = None
    if moved and len(names) >= 2 and (place := files.resolve(names[-1])):
        for name in names[:-1]:
            into = len(names) > 2 or names[-1].endswith("/") or files.is_dir(place)
            target = f"{place.rstrip('/')}/{name.rstrip('/').rsplit('/', 1)[-1]}" if into else place
            files.edits[target] = "whole"
            files.written[target] = LineStream([UnknownLines(target)])
    return LineStream(), None


def _paths(call: CommandCall) -> list[str]:
    return [path for arg in call.args if (path := call.files.resolve(arg)) and call.files.is_file(path)]


def _named(call: CommandCall) -> Result:
    """Output whose lines only the output tells; files count once they are seen in it."""
    return LineStream([*(UnknownLines(path, weak=True) for path in _paths(call)), UnknownLines(None)], ordered=False), 0


def _show(call: CommandCall) -> Result:
    objects = [arg for arg in call.args if not arg.startswith("-") and ":" in arg and not arg.startswith(":")]
    others = [arg for arg in call.args if not arg.startswith("-") and arg not in objects and arg not in ("blob",)]
    if not objects or others:
        return _named(call)
    out = LineStream()
    for one in objects:
        revision, _, name = one.partition(":")
        path = call.files.resolve(name) if name.startswith("./") else name
        if not path or (call.files.tree is not None and path not in call.files.tree.paths):
            call.files.unresolved[one] = None
            return out, 128
        if revision != "HEAD":
            out.extend(LineStream([UnknownLines(path)]))  # another commit: the same lines may stand elsewhere
            continue
        lines = call.files.tree.lines(path) if call.files.tree is not None else [FileLine(path, 1, None, rest=True)]
        out.extend(LineStream(lines if lines is not None else [UnknownLines(path)]))
    return out, 0


def _blame(call: CommandCall) -> Result:
    given = parse_options(call.args, "LMCS", "since contents ignore-rev")
    names = [
        name for name in given.rest if (path := call.files.resolve(name)) and call.files.is_file(path) is not False
    ]
    give_up_if(len(names) != 1 or len(given.rest) > 2 or len(given.values("L")) > 1)
    stream = call.files.open(names[0])
    if stream is None:
        return LineStream(), 128
    window = given.get("L")
    if window is not None:
        found = re.fullmatch(r"(\d{1,9}),(\+?)(\d{1,9})", window)
        if not found:
            raise Unknown
        last = int(found[1]) + int(found[3]) - 1 if found[2] else int(found[3])
        stream = picked(stream, int(found[1]), last, call.files.budget)
    if len(given.rest) > 1 and given.rest[0] != "HEAD":
        return stream.unknown_selection(), 0
    parts: list[Part] = [part._replace(text=None) if isinstance(part, FileLine) else part for part in stream.parts]
    return LineStream(parts), 0


_COMMANDS: dict[str, Callable[[CommandCall], Result]] = {
    "grep": search.git_grep,
    "ls-files": finding.ls_files,
    "blame": _blame,
    "diff": _diff,
    "status": _status,
    **dict.fromkeys(("show", "cat-file"), _show),
    **dict.fromkeys(("log", "stash", "format-patch"), _named),
    **dict.fromkeys(("checkout", "restore", "reset", "clean", "pull", "merge", "rebase", "switch"), _changed),
    **dict.fromkeys(("apply", "am"), _applied),
    **dict.fromkeys(("rm", "mv"), _taken_away),
    **dict.fromkeys(("add", "commit", "config", "fetch", "init", "tag", "push"), _silent),
}
_PATCHED: dict[str | None, Change] = {"Add": "whole", "Delete": "gone"}
_NAMED = re.compile(
    r"(\+\+\+|---|rename from|rename to|\*\*\* (?:Update|Add|Delete) File:|\*\*\* Move to:) (?:[ab]/)?(\S+)"
)
_NOWHERE = "/dev/null"


def patched(call: CommandCall) -> None:
    """Note the files a patch on standard input changes, adds, renames or takes away."""
    texts = (
        [part.text or "" for part in call.stdin.parts if isinstance(part, FileLine)] if call.stdin is not None else []
    )
    before = ""
    for text in [*texts, *(line for arg in call.args if "\n" in arg for line in arg.split("\n"))]:
        found = _NAMED.match(text)
        if found is None:
            continue
        mark, name = found.groups()
        change: Change | None = None
        if mark == "+++":
            name, change = (before, "gone") if name == _NOWHERE else (name, "whole" if before == _NOWHERE else "part")
        elif mark in ("rename from", "rename to", "*** Move to:"):
            change = "gone" if mark == "rename from" else "whole"
        elif mark != "---":
            change = _PATCHED.get(mark.split(" ")[1], "part")
        before = name
        if change is not None and name != _NOWHERE and (path := call.files.resolve(name)):
            call.files.edits[path] = change
            call.files.written[path] = None if change == "gone" else LineStream([UnknownLines(path)])
