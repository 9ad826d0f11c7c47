"""One simple command about to run: its inputs, its options taken apart as getopt does, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_bench.shell.files import Files
from context_bench.shell.model import UNKNOWN, LineStream, Unknown

Status = int | None
Result = tuple[LineStream, Status]
"""What a command shows, and its exit status (`None`: cannot be told)."""


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
class Options:
    """Options by name (without dashes), each with its last value ("" where it takes none), and what is left."""

    given: dict[str, str] = field(default_factory=dict)
    every: list[tuple[str, str]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        return any(name in self.given for name in names)

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
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            raise Unknown
        return int(value)


def parse_options(args: list[str], valued: str, long_valued: str = "", stop_at_first: bool = False) -> Options:
    """`valued`: the letters that take a value; `long_valued`: the long names that do, separated by blanks."""
    longs = long_valued.split()
    found = Options()
    at = 0

    def note(name: str, value: str) -> None:
        found.given[name] = value
        found.every.append((name, value))

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
            note(name, value)
        elif arg.startswith("-") and len(arg) > 1:
            if UNKNOWN in arg:
                raise Unknown
            for place, letter in enumerate(arg[1:], 2):
                if letter in valued:
                    value = arg[place:]
                    if not value and at < len(args):
                        value, at = args[at], at + 1
                    note(letter, value)
                    break
                note(letter, "")
        elif arg == UNKNOWN:
            raise Unknown
        else:
            found.rest.append(arg)
            if stop_at_first:
                found.rest += args[at:]
                break
    return found
