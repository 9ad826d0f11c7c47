"""A script of `sed`, read: addresses and commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from context_bench.shell.model import UNKNOWN, Blur
from context_bench.shell.patterns import Pattern, regex


@dataclass
class Address:
    """Which lines a command is for."""

    kind: Literal["line", "last", "match", "step", "plus", "multiple"]
    number: int = 0
    step: int = 0
    pattern: Pattern | None = None


@dataclass
class Command:
    """One command. `open` and `until` are where a range of lines stands while it runs."""

    name: str
    first: Address | None = None
    second: Address | None = None
    negated: bool = False
    block: list[Command] = field(default_factory=list)
    pattern: Pattern | None = None
    replacement: str = ""
    flags: str = ""
    text: str = ""
    open: bool = False
    until: int = 0


class Script:
    """A sed script, character by character."""

    def __init__(self, script: str, kind: str) -> None:
        if UNKNOWN in script:
            raise Blur
        self.script, self.at, self.kind = script, 0, kind

    def peek(self) -> str:
        return self.script[self.at : self.at + 1]

    def skip(self, chars: str) -> None:
        while self.peek() and self.peek() in chars:
            self.at += 1

    def commands(self, inner: bool = False) -> list[Command]:
        found: list[Command] = []
        while True:
            self.skip(" \t\n;")
            if not self.peek():
                if inner:
                    raise Blur
                return found
            if self.peek() == "}":
                if not inner:
                    raise Blur
                self.at += 1
                return found
            if self.peek() == "#":
                self.at = (self.script.find("\n", self.at) + 1) or len(self.script)
                continue
            found.append(self.command())

    def command(self) -> Command:
        first = self.address()
        second = None
        self.skip(" \t")
        if first is not None and self.peek() == ",":
            self.at += 1
            self.skip(" \t")
            second = self.second()
        self.skip(" \t")
        negated = self.peek() == "!"
        self.skip("! \t")
        name = self.peek()
        self.at += 1
        made = Command(name, first, second, negated)
        if name == "{":
            made.block = self.commands(inner=True)
        elif name == "s":
            self.substitution(made)
        elif name in ("q", "Q"):
            self.skip(" \t0123456789")
        elif name in ("a", "i", "c"):
            self.skip(" \t\\\n")
            end = self.script.find("\n", self.at)
            end = len(self.script) if end < 0 else end
            made.text, self.at = self.script[self.at : end], end
        elif not name or name not in "pd=":
            raise Blur
        return made

    def number(self) -> int | None:
        found = re.compile(r"[0-9]{1,9}").match(self.script, self.at)
        if not found:
            return None
        self.at = found.end()
        return int(found[0])

    def address(self) -> Address | None:
        number = self.number()
        if number is not None:
            if self.peek() == "~":
                self.at += 1
                return Address("step", number, self.number() or 0)
            return Address("line", number)
        if self.peek() == "$":
            self.at += 1
            return Address("last")
        if self.peek() in ("/", "\\"):
            self.at += self.peek() == "\\"
            return self.match()
        return None

    def match(self) -> Address:
        end = self.peek()
        if not end:
            raise Blur
        self.at += 1
        body = self.until(end)
        ignore = self.peek() == "I"
        self.at += ignore
        if not body or self.peek() == "M":
            raise Blur
        return Address("match", pattern=regex(body, self.kind, ignore))

    def second(self) -> Address:
        if self.peek() in ("+", "~"):
            kind: Literal["plus", "multiple"] = "plus" if self.peek() == "+" else "multiple"
            self.at += 1
            return Address(kind, self.number() or 0)
        found = self.address()
        if found is None:
            raise Blur
        return found

    def until(self, end: str) -> str:
        """Text up to an unquoted `end`, which is passed; in a bracket, none ends it."""
        out: list[str] = []
        bracket = False
        while True:
            char = self.peek()
            self.at += 1
            if not char:
                raise Blur
            if char == "\\" and self.peek():
                following = self.peek()
                self.at += 1
                out.append(following if following == end and end != "|" else char + following)
                continue
            if char == "[" and not bracket:
                bracket = True
            elif char == "]":
                bracket = False
            elif char == end and not bracket:
                return "".join(out)
            out.append(char)

    def substitution(self, made: Command) -> None:
        end = self.peek()
        self.at += 1
        if not end or end in "\n\\":
            raise Blur
        body = self.until(end)
        made.replacement = self.replacement(end)
        flags = re.compile(r"[gpiI0-9]*").match(self.script, self.at)
        assert flags is not None
        made.flags = flags[0]
        self.at = flags.end()
        if not body or self.peek() not in ("", " ", "\t", "\n", ";", "}"):
            raise Blur
        made.pattern = regex(body, self.kind, "i" in made.flags.lower())

    def replacement(self, end: str) -> str:
        out: list[str] = []
        while True:
            char = self.peek()
            self.at += 1
            if not char or char == "\n":
                raise Blur
            if char == end:
                return "".join(out)
            if char == "\\":
                following = self.peek()
                self.at += 1
                if following.isdigit():
                    out.append(f"\\g<{following}>")
                elif following == "t":
                    out.append("\t")
                elif following.isalpha() or following == "\n":
                    raise Blur
                else:
                    out.append("\\\\" if following == "\\" else following)
            elif char == "&":
                out.append("\\g<0>")
            else:
                out.append(char)
