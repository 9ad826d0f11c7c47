"""Streams of a shell pipeline, seen as lines of files of a repository; one command about to run, with its options.

Reading a command has a price, which is paid before anything is made or searched: logs are hostile, and a line of a
hundred letters can stand for more words than there is memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from context_bench.shell.files import Files

#: Stands in a word for text that cannot be told; no real word can hold it.
UNKNOWN = "\0"

#: A loop, or a command that runs others, is not followed for more rounds.
MOST_ROUNDS = 300

#: 1-based inclusive line ranges, sorted, disjoint, not touching.
Ranges = tuple[tuple[int, int], ...]

Kind = Literal["read", "search", "list", "edit", "exec"]

Read = Ranges | Literal["all", "unknown"]

#: What was done to a file: written as a whole, changed or appended to, deleted, made if it was not there.
Change = Literal["whole", "part", "gone", "touched"]


#: Characters that a word or a line of its own counts for, beside its text.
PIECE = 100
#: Steps that a look at one line counts for.
LINE = 8


class BudgetSpent(Exception):
    """The command would cost more to read than it may: what it shows is unknown."""


@dataclass(slots=True)
class Budget:
    """Budget left for one command."""

    #: Characters of words, values and lines that may be made.
    made: int = 64 << 20
    #: Characters and lines that may be looked at, and statements that may be run; about so many, ten to a millisecond
    #: at the slowest.
    steps: int = 500_000_000
    #: More was asked for than there was.
    over: bool = False

    @classmethod
    def of_log(cls) -> Budget:
        """Budget for all commands of a log."""
        return cls(made=4 << 30, steps=10_000_000_000)

    def lend(self) -> Budget:
        """Budget for the next command of this log; the unspent part is given back."""
        lent = Budget()
        lent.made, lent.steps = min(lent.made, self.made), min(lent.steps, self.steps)
        self.made -= lent.made
        self.steps -= lent.steps
        return lent

    def take_back(self, left: Budget) -> None:
        """Take back what a command did not spend."""
        self.made += left.made
        self.steps += left.steps

    def make(self, characters: int, pieces: int = 0) -> None:
        """Pay for characters about to be made, and for words or lines about to be (`pieces`)."""
        self.made -= characters + PIECE * pieces
        if self.made < 0:
            self.over = True
            raise BudgetSpent

    def step(self, number: int) -> None:
        """Pay for a look at so many characters."""
        self.steps -= number
        if self.steps < 0:
            self.over = True
            raise BudgetSpent

    def look(self, lines: int) -> None:
        """Pay for a look at so many lines."""
        self.step(LINE * lines)


class Unknown(Exception):
    """Lines that pass cannot be determined from the command and the repository."""


def give_up_if(undecidable: object) -> None:
    """Raise `Unknown` where this holds."""
    if undecidable:
        raise Unknown


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
    #: Stands for this line and all that follow in a file of unknown length.
    rest: bool = False


class UnknownLines(NamedTuple):
    """An unknown number of lines: of a file, or of no file (`None`)."""

    path: str | None
    #: The file was only named; without proof in the output it was not read.
    weak: bool = False
    #: What diff compared: the numbers in its output count the lines of these.
    sides: tuple[Sequence[FileLine], Sequence[FileLine]] | None = None


Part = FileLine | UnknownLines
_LINES = {FileLine}
_TEXT, _REST = (itemgetter(FileLine._fields.index(name)) for name in ("text", "rest"))


def all_lines(parts: Sequence[Part]) -> bool:
    """True if none of the parts is an unknown number of lines."""
    return set(map(type, parts)) <= _LINES


def unbounded(parts: Sequence[Part]) -> bool:
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
        give_up_if(not all_lines(self.parts))
        return self.parts  # type: ignore[return-value]

    def texts(self) -> list[FileLine]:
        """The parts if all are lines whose text and number are known, else `Unknown`."""
        lines = self.lines()
        give_up_if(None in map(_TEXT, lines) or any(map(_REST, lines)))
        return lines

    def files(self) -> list[str]:
        """The files whose lines are in it, in order."""
        return list(
            dict.fromkeys(part.path for part in self.parts if part.path and (isinstance(part, UnknownLines) or part.no))
        )

    def unknown_selection(self) -> LineStream:
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
    unique = sorted(set(numbers))
    if unique and unique[-1] - unique[0] + 1 == len(unique):  # the usual case: one run of lines
        return ((unique[0], unique[-1]),)
    found: list[tuple[int, int]] = []
    for number in unique:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


@dataclass
class ShellReads:
    """Reads of one shell command."""

    #: Path in the repository → the lines whose text reached the caller. "all": the whole file, whose length is not
    #: known; "unknown": text of it did, or may have, and which lines cannot be told. Numbers are those of the
    #: repository given.
    reads: dict[str, Read] = field(default_factory=dict)
    #: Files written, moved or deleted, as paths in the repository.
    edits: tuple[str, ...] = ()
    #: What was done to each of `edits`.
    changes: dict[str, Change] = field(default_factory=dict)
    #: Files whose name, not text, was shown.
    listed: tuple[str, ...] = ()
    #: The working directory afterwards, in the style of the one given.
    new_cwd: str = ""
    #: False where the command failed and showed nothing of a file.
    ok: bool = True
    kind: Kind = "exec"
    #: What the line sets rest on.
    provenance: Literal["output_numbered", "output_matched", "command"] = "command"
    #: The output shows less than the command let through; the ranges hold what was shown.
    truncated: bool = False
    #: The output is not what the command prints on this repository (edited files, for one).
    mismatch: bool = False
    #: Some of the command would have cost more to read than it may: what that part showed is unknown.
    too_large: bool = False
    #: Paths that are no file of the repository, as written.
    unresolved: tuple[str, ...] = ()
    #: Where those were looked for: paths in the repository, or absolute ones.
    absent: tuple[str, ...] = ()


Status = int | None
#: What a command shows, and its exit status (`None`: cannot be told).
Result = tuple[LineStream, Status]


@dataclass
class CommandCall:
    """One simple command about to run."""

    name: str
    args: list[str]
    stdin: LineStream | None
    files: Files

    def inputs(self, names: list[str]) -> tuple[list[tuple[str, LineStream]], int]:
        """The named files that are there (or standard input, if none is named), and 1 if one is missing."""
        if not names:
            return [("", self.stdin or LineStream())], 0
        found, status = [], 0
        for name in names:
            stream = (self.stdin or LineStream()) if name == "-" else self.files.open(name)
            if stream is not None and len(names) > 1:
                self.files.budget.make(8 * len(stream.parts))
            if stream is None:
                status = 1
            else:
                found.append((name, stream))
        return found, status


def joined(streams: list[tuple[str, LineStream]]) -> LineStream:
    """All streams, one after the other."""
    out = LineStream()
    for _, stream in streams:
        out.extend(stream)
    return out


@dataclass
class ParsedOptions:
    """ParsedOptions by name (without dashes), each with its last value ("" where it takes none), and what is left."""

    given: dict[str, str] = field(default_factory=dict)
    every: list[tuple[str, str]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        return not self.given.keys().isdisjoint(names)

    def get(self, *names: str) -> str | None:
        """The value given last under any of the names."""
        for name, value in reversed(self.every):
            if name in names:
                return value
        return None

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.every if name in names]

    def number(self, *names: str) -> int | None:
        """The value as a count; `Unknown` if it is none."""
        value = self.get(*names)
        if value is None:
            return None
        give_up_if(not value.isascii() or not value.isdigit() or len(value) > 9)
        return int(value)


def parse_options(args: list[str], valued: str, long_valued: str = "", stop_at_first: bool = False) -> ParsedOptions:
    """`valued`: the letters that take a value; `long_valued`: the long names that do, separated by blanks."""
    longs = long_valued.split()
    found = ParsedOptions()
    at = 0
    while at < len(args):
        arg = args[at]
        at += 1
        if arg == "--":
            found.rest += args[at:]
            break
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            if not equals and name in longs and at < len(args):
                value, at = args[at], at + 1
            found.every.append((name, value))
        elif arg.startswith("-") and len(arg) > 1:
            give_up_if(UNKNOWN in arg)
            for place, letter in enumerate(arg[1:], 2):
                if letter in valued:
                    value = arg[place:]
                    if not value and at < len(args):
                        value, at = args[at], at + 1
                    found.every.append((letter, value))
                    break
                found.every.append((letter, ""))
        elif arg == UNKNOWN:
            raise Unknown
        else:
            found.rest.append(arg)
            if stop_at_first:
                found.rest += args[at:]
                break
    found.given = dict(found.every)
    return found
