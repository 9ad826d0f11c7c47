"""Reads of an agent's shell command: files and line ranges, from the command, the repository and the output.

The command is run on the repository's lines, each of which knows the file and number it comes from; what reaches the
end of the pipe was read. Nothing is executed. Where lines cannot be told, the answer is "unknown" and never a guess.
"""

from __future__ import annotations

import re

from context_bench.shell.files import Files
from context_bench.shell.model import (
    Budget,
    BudgetSpent,
    FileLine,
    Kind,
    LineStream,
    Ranges,
    Read,
    ShellExit,
    ShellReads,
    Unknown,
    UnknownLines,
    ranges_of,
)
from context_bench.shell.repo import FilesByPath

__all__ = ["Budget", "Ranges", "Read", "ShellReads", "read_shell"]

_LONGEST = 200_000
#: What may be the name of a file before the number of a line, and that number alone, which is found much sooner.
_NAMED, _NUMBER = re.compile(r"^([^:\n]+?)[:-]\d{1,7}[:-]", re.M), re.compile(r"[:-]\d{1,7}[:-]")


def read_shell(
    command: str,
    cwd: str,
    repo: FilesByPath | None,
    output: str | None = None,
    exit_code: int | None = None,
    *,
    root: str | None = None,
    budget: Budget | None = None,
) -> ShellReads:
    """Lines of files that `command` showed.

    `cwd`: the directory it ran in, relative to the repository, or absolute; then `root` is where the repository lay
    (left out: `cwd` is its root). `output`: standard output, or both streams mixed; it wins over what the command says.
    `None`: not recorded, "": nothing was shown. `budget`: what may be spent on all commands of the log that this is one
    of; left out: on this one alone. Never raises, whatever the text; needs the packages of the extra `traces`.
    """
    from context_bench.shell.commands import named_files
    from context_bench.shell.running import Shell

    left = Budget() if budget is None else budget.lend()
    files = Files(repo, cwd, root, output or "", left)
    shell = Shell(files)
    status: int | None = None
    stream = LineStream([UnknownLines(None)])
    whole = True
    try:
        if len(command) <= _LONGEST:
            stream, status = shell.source(command)
        else:
            whole, left.over = False, True
    except ShellExit as stop:
        stream = stop.shown
    except (Unknown, RecursionError, BudgetSpent):
        whole = False
    if not whole:
        stream = LineStream(
            [*(UnknownLines(part.path) for part in named_files(files, command[:_LONGEST])), UnknownLines(None)]
        )
    if exit_code is not None and output is None and exit_code != 0 and status == 0:
        stream = stream.unknown_selection()
    found = ShellReads(kind="exec", new_cwd=cwd if (where := files.where()) is None else where)
    found.edits, found.changes = tuple(sorted(files.edits)), dict(sorted(files.edits.items()))
    found.unresolved = tuple(name for name in files.unresolved if name not in files.pipes)
    found.absent = tuple(files.absent)
    if output is None:
        found.reads = _collect(stream)
        found.listed = tuple(
            dict.fromkeys(
                part.path for part in stream.parts if isinstance(part, FileLine) and part.path and not part.no
            )
        )
    else:
        _from_output(found, files, stream, output)
    if budget is not None:
        budget.take_back(left)
    found.too_large = left.over
    found.ok = bool(found.reads) or exit_code in (None, 0)
    found.kind = _kind(found, shell.kinds)
    return found


def _kind(found: ShellReads, kinds: set[str]) -> Kind:
    if found.edits:
        return "edit"
    order: tuple[Kind, ...] = ("search", "read", "list")
    return next((kind for kind in order if kind in kinds), "read" if found.reads else "exec")


def _collect(stream: LineStream) -> dict[str, Read]:
    """The line sets of a stream, from the command alone."""
    numbers: dict[str, set[int]] = {}
    rest: dict[str, int] = {}
    unknown: dict[str, None] = {}  # in their order: that of a set is another one in each process
    for part in stream.parts:
        if isinstance(part, UnknownLines):
            if part.path is not None and not part.weak:
                unknown[part.path] = None
        elif part.path is not None and part.no:
            numbers.setdefault(part.path, set()).add(part.no)
            if part.rest:
                rest[part.path] = min(part.no, rest.get(part.path, part.no))
    reads: dict[str, Read] = {}
    for path in [*numbers, *unknown]:
        if path in unknown:
            reads[path] = "unknown"
        elif path in rest:
            # a file whose length nobody knows, from a line after the first on
            reads[path] = "all" if set(range(1, rest[path])) <= numbers[path] else "unknown"
        else:
            reads[path] = ranges_of(numbers[path])
    return reads


def _from_output(found: ShellReads, files: Files, stream: LineStream, output: str) -> None:
    from context_bench.shell.output import OutputReader, output_lines

    if files.tree is None:
        found.reads = _collect(stream) if output_lines(output) else {}
        return

    names: dict[str, str] = {}
    beginning = output[:1_000_000]
    for token in dict.fromkeys(_NAMED.findall(beginning) if _NUMBER.search(beginning) else ()):
        path = files.resolve(token)
        if path and files.is_file(path):
            names[token] = path
    reader = OutputReader(files.tree, names, stream)
    shown = reader.read(output)
    files.budget.over = files.budget.over or reader.effort <= 0
    found.reads = {path: ranges_of(numbers) for path, numbers in shown.lines.items() if path not in shown.unknown}
    found.reads.update(dict.fromkeys(sorted(shown.unknown), "unknown"))
    found.truncated, found.mismatch = shown.truncated, shown.mismatch
    found.provenance = (
        "output_numbered" if shown.how == "output_numbered" else "output_matched" if shown.lines else "command"
    )
    # a name that the command itself prints stands for a file below what was listed, not below the working directory
    told = {part.text: part.path for part in stream.parts if isinstance(part, FileLine) and part.path and not part.no}
    lines = beginning.split("\n")[:20_000]
    own = [path for line in lines if (path := told.get(line)) is not None]
    found.listed = tuple(dict.fromkeys([*own, *files.named([line for line in lines if line not in told])]))
