"""Streams of a shell pipeline, seen as lines of files of a repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, NamedTuple

from context_bench.shell.budget import Budget

UNKNOWN = "\0"
"""Stands in a word for text that cannot be told; no real word can hold it."""

MOST_ROUNDS = 300
"""A loop, or a command that runs others, is not followed for more rounds."""

Ranges = tuple[tuple[int, int], ...]
"""1-based inclusive line ranges, sorted, disjoint, not touching."""

Kind = Literal["read", "search", "list", "edit", "exec"]

Read = Ranges | Literal["all", "unknown"]

Change = Literal["whole", "part", "gone", "touched"]
"""What was done to a file: written as a whole, changed or appended to, deleted, made if it was not there."""


class Unknown(Exception):
    """Lines that pass cannot be determined from the command and the repository."""


class ShellExit(Exception):
    """The shell ends here, having shown this."""

    def __init__(self, shown: LineStream) -> None:
        super().__init__()
        self.shown = shown


class FileLine(NamedTuple):
    """One line of text; where `path` is set, it shows line `no` of that file (`no` 0: it names the file only)."""

    path: str | None
    no: int
    text: str | None
    eol: bool = True
    rest: bool = False
    """Stands for this line and all that follow in a file of unknown length."""


class UnknownLines(NamedTuple):
    """An unknown number of lines: of a file, or of no file (`None`)."""

    path: str | None
    weak: bool = False
    """The file was only named; without proof in the output it was not read."""
    sides: tuple[Sequence[FileLine], Sequence[FileLine]] | None = None
    """What diff compared: the numbers in its output count the lines of these."""


Part = FileLine | UnknownLines
_LINES = {FileLine}
_REST = itemgetter(FileLine._fields.index("rest"))


def all_lines(parts: Sequence[Part]) -> bool:
    """True if none of the parts is an unknown number of lines."""
    return set(map(type, parts)) <= _LINES


def open_ended(parts: Sequence[Part]) -> bool:
    """True if one of the parts stands for the rest of a file of unknown length."""
    if all_lines(parts):  # the usual case, without a look at each from here
        return any(map(_REST, parts))
    return any(isinstance(part, FileLine) and part.rest for part in parts)


class LineStream:
    """Lines in order; `ordered` False where the order of files is the machine's own (`grep -r`, `find`)."""

    __slots__ = ("ordered", "parts")

    def __init__(self, parts: Iterable[Part] = (), ordered: bool = True) -> None:
        self.parts = list(parts)
        self.ordered = ordered

    def extend(self, other: LineStream) -> None:
        self.parts.extend(other.parts)
        self.ordered = self.ordered and other.ordered

    def lines(self) -> list[FileLine]:
        """The parts if all are lines, else `Unknown`."""
        if not all_lines(self.parts):
            raise Unknown
        return self.parts  # type: ignore[return-value]

    def texts(self) -> list[FileLine]:
        """The parts if all are lines whose text and number are known, else `Unknown`."""
        lines = self.lines()
        if any(line.text is None or line.rest for line in lines):
            raise Unknown
        return lines

    def files(self) -> list[str]:
        """The files whose lines are in it, in order."""
        return list(
            dict.fromkeys(part.path for part in self.parts if part.path and (isinstance(part, UnknownLines) or part.no))
        )

    def blurred(self) -> LineStream:
        """An unknown selection of it."""
        weak = {part.path for part in self.parts if isinstance(part, UnknownLines) and part.weak}
        return LineStream([UnknownLines(path, path in weak) for path in self.files()] or [UnknownLines(None)])


def plain(text: str, budget: Budget) -> LineStream:
    """Text of no file."""
    budget.make(2 * len(text), text.count("\n") + 1)
    parts = text.split("\n")
    eol = parts[-1] == ""
    if eol:
        parts.pop()
    return LineStream(FileLine(None, 0, line, eol or at < len(parts) - 1) for at, line in enumerate(parts))


def rendered(stream: LineStream) -> str:
    """The text of a stream; `Unknown` if it is not known."""
    return "".join((line.text or "") + "\n" * line.eol for line in stream.texts())


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """The numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


@dataclass
class ShellReads:
    """Reads of one shell command."""

    reads: dict[str, Read] = field(default_factory=dict)
    """Path in the repository → the lines whose text reached the caller. "all": the whole file, whose length is not known;
    "unknown": text of it did, or may have, and which lines cannot be told. Numbers are those of the repository given.
    """  # noqa: E501
    edits: tuple[str, ...] = ()
    """Files written, moved or deleted, as paths in the repository."""
    changes: dict[str, Change] = field(default_factory=dict)
    """What was done to each of `edits`."""
    listed: tuple[str, ...] = ()
    """Files whose name, not text, was shown."""
    new_cwd: str = ""
    """The working directory afterwards, in the style of the one given."""
    ok: bool = True
    """False where the command failed and showed nothing of a file."""
    kind: Kind = "exec"
    provenance: Literal["output_numbered", "output_matched", "command"] = "command"
    """What the line sets rest on."""
    truncated: bool = False
    """The output shows less than the command let through; the ranges hold what was shown."""
    mismatch: bool = False
    """The output is not what the command prints on this repository (edited files, for one)."""
    too_large: bool = False
    """Some of the command would have cost more to read than it may: what that part showed is unknown."""
    unresolved: tuple[str, ...] = ()
    """Paths that are no file of the repository, as written."""
    absent: tuple[str, ...] = ()
    """Where those were looked for: paths in the repository, or absolute ones."""
