"""The git commands that show or change files, and commands that put two files side by side: diff and its like, comm,
paste; and what an output of diff shows of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from context_bench.shell import finding, search
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
    plain,
)
from context_bench.shell.text_commands import picked

_VALUED = (
    "label exclude exclude-from ignore-matching-lines show-function-line width starting-file horizon-lines "
    "tabsize to-file from-file"
)
_CHANGE = re.compile(r"(\d{1,7})(?:,\d{1,7})?[acd](\d{1,7})(?:,\d{1,7})?")
_HUNK = re.compile(r"@@ -(\d{1,7})(?:,(\d{1,7}))? \+(\d{1,7})(?:,(\d{1,7}))? @@")
_CONTEXT = re.compile(r"(\*\*\*|---) (\d{1,7})(?:,\d{1,7})? (?:\*\*\*\*|----)")
_HEADS = re.compile(r"--- |\+\+\+ |\*\*\* |\*{15}|diff |index |Only in |Binary files |\\ No newline|---$")
Sides = tuple[Sequence[FileLine], Sequence[FileLine]]
_Shown = tuple[int, int, str]  # side, number in it, text


def diff(call: CommandCall) -> Result:
    """diff: of two files what differs, nothing of equal ones; which lines differ, its output tells."""
    given = parse_options([arg for arg in call.args if arg != "--no-index"], "UCIxXWFLS", _VALUED)
    give_up_if(given.has("r", "recursive"))
    names = _paired(call, given.rest)
    streams, _ = call.inputs(names)
    if len(streams) < len(names):
        return LineStream(), 2
    (_, old), (_, new) = streams
    brief = given.has("q", "brief", "stat", "numstat", "shortstat", "name-only", "name-status")
    try:
        sides = old.texts(), new.texts()
    except Unknown:
        return LineStream([UnknownLines(None)]) if brief else _of_both(old, new), None
    if [(line.text, line.eol) for line in sides[0]] == [(line.text, line.eol) for line in sides[1]]:
        identical = f"Files {names[0]} and {names[1]} are identical\n"
        return (plain(identical, call.files.budget) if given.has("s", "report-identical-files") else LineStream()), 0
    if brief:
        return plain(f"Files {names[0]} and {names[1]} differ\n", call.files.budget), 1
    return LineStream([UnknownLines(part.path, sides=sides) for part in _of_both(old, new).parts], ordered=False), 1


def _paired(call: CommandCall, names: list[str]) -> list[str]:
    """The two files that are compared: beside a folder, the one in it that is called like the other."""
    give_up_if(len(names) != 2)
    folders = [
        bool(call.files.is_dir(path)) if (path := call.files.resolve(name)) is not None else False for name in names
    ]
    give_up_if(all(folders))
    return [
        f"{name.rstrip('/')}/{names[1 - at].rsplit('/', 1)[-1]}" if folders[at] else name
        for at, name in enumerate(names)
    ]


def _of_both(old: LineStream, new: LineStream) -> LineStream:
    return LineStream(
        [UnknownLines(path) for path in dict.fromkeys([*old.files(), *new.files()])] or [UnknownLines(None)],
        ordered=False,
    )


def aside(call: CommandCall) -> Result:
    """Other programs that show two files beside one another, in a form of their own."""
    streams, status = call.inputs([arg for arg in call.args if not arg.startswith(("-", "+"))])
    shown = [part for _, stream in streams for part in stream.unknown_selection().parts]
    return LineStream(shown, ordered=False), status or None


def comm(call: CommandCall) -> Result:
    """comm: the lines of two files, each in the column of who has it; of files that are not sorted all, if no column is
    left out.
    """
    given = parse_options(call.args, "", "output-delimiter")
    streams, status = call.inputs(given.rest)
    give_up_if(len(given.rest) != 2 or status or not set(given.given) <= {"1", "2", "3"})
    sides = [stream.texts() for _, stream in streams]
    unsorted = any(sorted(line.text or "" for line in side) != [line.text for line in side] for side in sides)
    give_up_if(unsorted and given.given)
    call.files.budget.make(sum(len(line.text or "") for side in sides for line in side), 2 * sum(map(len, sides)))
    first, second = "" if given.has("1") else "\t", "" if given.has("2") else "\t"
    out: list[FileLine] = []
    for old, new in _merged(*sides):
        if old and new:
            text = f"{first}{second}{old.text}"
            out += [] if given.has("3") else [old._replace(text=text, eol=False), new._replace(text="", eol=True)]
        elif old and not given.has("1"):
            out.append(old._replace(eol=True))
        elif new and not given.has("2"):
            out.append(new._replace(text=f"{first}{new.text}", eol=True))
    return LineStream(out, ordered=False), int(unsorted)


def _merged(old: Sequence[FileLine], new: Sequence[FileLine]) -> Iterator[tuple[FileLine | None, FileLine | None]]:
    at = to = 0
    while at < len(old) or to < len(new):
        left = (old[at].text or "") if at < len(old) else None
        right = (new[to].text or "") if to < len(new) else None
        takes_old = right is None or (left is not None and left <= right)
        takes_new = left is None or (right is not None and right <= left)
        yield old[at] if takes_old else None, new[to] if takes_new else None
        at, to = at + takes_old, to + takes_new


def paste(call: CommandCall) -> Result:
    """paste: the first lines of all files as one line, then the second ones."""
    given = parse_options(call.args, "d", "delimiters")
    streams, status = call.inputs(given.rest)
    delimiter = given.get("d", "delimiters")
    delimiter = "\t" if delimiter is None else delimiter
    give_up_if(given.has("s", "serial", "z") or len(delimiter) != 1 or "-" in given.rest)
    sides = [stream.texts() for _, stream in streams]
    rows = max(map(len, sides), default=0)
    call.files.budget.make(sum(len(line.text or "") for side in sides for line in side), rows * len(sides))
    out: list[FileLine] = []
    for row in zip_longest(*sides):
        for column, line in enumerate(row):
            end = "" if column == len(row) - 1 else delimiter
            text = f"{line.text if line else ''}{end}"
            out.append(line._replace(text=text, eol=not end) if line else FileLine(None, 0, text, eol=not end))
    return LineStream(out, ordered=False), status  # lines of several files in one: no lines to count


# -- what an output of diff shows ------------------------------------------------


def shown_sides(
    lines: Sequence[str], sides: Sides, tidy: Callable[[str], str]
) -> tuple[list[FileLine], list[FileLine]] | None:
    """The lines of both sides that an output of diff holds, and those that it holds otherwise; `None` where it is no
    such output.

    Normal, context and unified output carry their numbers. A line counts only where the side has this text at this
    number.
    """
    if not any(_CHANGE.fullmatch(line) or _HUNK.match(line) or _CONTEXT.fullmatch(line) for line in lines):
        return None
    same: list[FileLine] = []
    other: list[FileLine] = []
    for side, number, text in _numbered(lines):
        if not 1 <= number <= len(sides[side]):
            return None
        line = sides[side][number - 1]
        (same if tidy(line.text or "") == tidy(text) else other).append(line)
    return same, other


def _numbered(lines: Sequence[str]) -> Iterator[_Shown]:
    """The lines of an output of diff, each with its side and number; lines of another kind are passed over."""
    at = [0, 0]
    left = [0, 0]
    side: int | None = None  # of a section in context format
    for line in lines:
        mark = line[:1]
        sides: tuple[int, ...] = ()
        if left[0] > 0 or left[1] > 0:  # within a hunk of unified format
            sides = {"-": (0,), "+": (1,), "\\": ()}.get(mark, (0, 1))
            text = line[1:]
        elif hunk := _HUNK.match(line):
            at, left = [int(hunk[1]), int(hunk[3])], [int(hunk[2] or 1), int(hunk[4] or 1)]
            continue
        elif section := _CONTEXT.fullmatch(line):
            side = 0 if section[1] == "***" else 1
            at[side] = int(section[2])
            continue
        elif change := _CHANGE.fullmatch(line):
            at, side = [int(change[1]), int(change[2])], None
            continue
        elif side is not None and line[:2].rstrip() in ("", "-", "+", "!") and not _HEADS.match(line):
            sides, text = (side,), line[2:]
        elif side is None and mark in ("<", ">"):
            sides, text = (0 if mark == "<" else 1,), line[2:]
        else:
            side = None if line.startswith("****") else side
            continue
        for one in sides:
            yield one, at[one], text
            at[one] += 1
            left[one] -= 1 if left[one] > 0 else 0


# -- git -------------------------------------------------------------------------


def git(call: CommandCall) -> Result:
    """Run a git command; its name is "git NAME"."""
    command = _COMMANDS.get(call.name[4:])
    return command(call) if command is not None else (LineStream([UnknownLines(None)]), None)


def _diff(call: CommandCall) -> Result:
    return diff(call) if "--no-index" in call.args else _named(call)


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
    "status": lambda call: (LineStream([UnknownLines(None)]), 0),
    **dict.fromkeys(("show", "cat-file"), _show),
    **dict.fromkeys(("log", "stash", "format-patch"), _named),
    **dict.fromkeys(("checkout", "restore", "reset", "clean", "pull", "merge", "rebase", "switch"), _changed),
    **dict.fromkeys(("apply", "am"), _applied),
    **dict.fromkeys(("rm", "mv"), _taken_away),
    **dict.fromkeys(("add", "commit", "config", "fetch", "init", "tag", "push"), lambda call: (LineStream(), 0)),
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
