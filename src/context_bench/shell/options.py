"""Command line arguments, taken apart as getopt does."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_bench.shell.model import UNKNOWN, Blur


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
        """The value as a count; `Blur` if it is none."""
        value = self.get(*names)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            raise Blur
        return int(value)


def parse(args: list[str], valued: str, long_valued: str = "", stop_at_first: bool = False) -> Options:
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
                raise Blur
            for place, letter in enumerate(arg[1:], 2):
                if letter in valued:
                    value = arg[place:]
                    if not value and at < len(args):
                        value, at = args[at], at + 1
                    note(letter, value)
                    break
                note(letter, "")
        elif arg == UNKNOWN:
            raise Blur
        else:
            found.rest.append(arg)
            if stop_at_first:
                found.rest += args[at:]
                break
    return found
