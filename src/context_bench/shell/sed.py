"""`sed`: its script read as addresses and commands, and run on lines that know where they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from context_bench.shell.model import UNKNOWN, Budget, FileLine, Part, Unknown, UnknownLines, give_up_if, parse_options
from context_bench.shell.patterns import Pattern, regex


@dataclass
class SedAddress:
    """Lines that a command applies to."""

    kind: Literal["line", "last", "match", "step", "plus", "multiple"]
    number: int = 0
    step: int = 0
    pattern: Pattern | None = None


@dataclass
class SedCommand:
    """One command. `open` and `until` are where a range of lines stands while it runs."""

    name: str
    first: SedAddress | None = None
    second: SedAddress | None = None
    negated: bool = False
    block: list[SedCommand] = field(default_factory=list)
    pattern: Pattern | None = None
    replacement: str = ""
    flags: str = ""
    text: str = ""
    open: bool = False
    until: int = 0


class Script:
    """A sed script, piece by piece."""

    def __init__(self, script: str, kind: str) -> None:
        give_up_if(UNKNOWN in script)
        self.script, self.at, self.kind = script, 0, kind

    def peek(self) -> str:
        return self.script[self.at : self.at + 1]

    def next(self) -> str:
        """The next character, which is passed; `Unknown` at the end."""
        char = self.peek()
        give_up_if(not char)
        self.at += 1
        return char

    def take(self, pattern: str) -> re.Match[str] | None:
        """The text from here on that fits a pattern, which is passed."""
        found = re.compile(pattern).match(self.script, self.at)
        self.at = found.end() if found else self.at
        return found

    def run_of(self, pattern: str) -> str:
        """The same as text, empty where nothing fits."""
        found = self.take(pattern)
        return found[0] if found else ""

    def commands(self, inner: bool = False) -> list[SedCommand]:
        found: list[SedCommand] = []
        while True:
            self.take(r"(?:[ \t\n;]|#[^\n]*)*")
            if self.peek() in ("", "}"):
                give_up_if((self.peek() == "}") != inner)
                self.at += 1
                return found
            found.append(self.command())

    def command(self) -> SedCommand:
        first = self.address()
        second = self.second() if first is not None and self.take(r"[ \t]*,[ \t]*") else None
        negated = self.run_of(r"[ \t]*[! \t]*").lstrip(" \t").startswith("!")
        name = self.next()
        made = SedCommand(name, first, second, negated)
        if name == "{":
            made.block = self.commands(inner=True)
        elif name == "s":
            self.substitution(made)
        elif name in "qQ":
            self.take(r"[ \t0-9]*")
        elif name in "aic":
            self.take(r"[ \t\\\n]*")
            made.text = self.run_of(r"[^\n]*")
        else:
            give_up_if(name not in "pd=")
        return made

    def number(self) -> int | None:
        digits = self.run_of(r"[0-9]{1,9}")
        return int(digits) if digits else None

    def address(self) -> SedAddress | None:
        if (number := self.number()) is not None:
            return SedAddress("step", number, self.number() or 0) if self.take("~") else SedAddress("line", number)
        if self.take(r"\$"):
            return SedAddress("last")
        return self.match() if self.take(r"(?=/)|\\") else None

    def match(self) -> SedAddress:
        body = self.until(self.next())
        ignore = self.take("I") is not None
        give_up_if(not body or self.peek() == "M")
        return SedAddress("match", pattern=regex(body, self.kind, ignore))

    def second(self) -> SedAddress:
        if sign := self.run_of(r"[+~]"):
            return SedAddress("plus" if sign == "+" else "multiple", self.number() or 0)
        found = self.address()
        if found is None:
            raise Unknown
        return found

    def until(self, end: str) -> str:
        """Text up to an unquoted `end`, which is passed; in a bracket, none ends it."""
        give_up_if(end in "\\[")
        out: list[str] = []
        bracket = False
        while (char := self.next()) != end or bracket:
            if char == "\\" and self.peek():
                following = self.next()
                out.append(following if following == end and end != "|" else char + following)
                continue
            bracket = char == "[" or (bracket and char != "]")
            out.append(char)
        return "".join(out)

    def substitution(self, made: SedCommand) -> None:
        end = self.next()
        give_up_if(end in "\n\\")
        body = self.until(end)
        made.replacement = self.replacement(end)
        made.flags = self.run_of(r"[gpiI0-9]*")
        give_up_if(not body or self.peek() not in ("", " ", "\t", "\n", ";", "}"))
        made.pattern = regex(body, self.kind, "i" in made.flags.lower())

    def replacement(self, end: str) -> str:
        out: list[str] = []
        while (char := self.next()) != end:
            give_up_if(char == "\n")
            if char == "&":
                out.append("\\g<0>")
            elif char == "\\":
                following = self.next()
                give_up_if((following.isalpha() and following != "t") or following == "\n")
                out.append(f"\\g<{following}>" if following.isdigit() else _ESCAPES.get(following, following))
            else:
                out.append(char)
        return "".join(out)


_ESCAPES = {"t": "\t", "\\": "\\\\"}
_SUBSTITUTE = 0.5
_STEPS = 2_000_000
#: Characters that may be looked at in the time that one command takes for one line.
_A_STEP = 1000


class Sed:
    """One call of sed: its script, and whether it prints by itself."""

    def __init__(self, args: list[str], budget: Budget) -> None:
        self.budget = budget
        given = parse_options(args, "efl", "expression file line-length")
        give_up_if(given.has("f", "file", "z", "null-data", "help", "version"))
        self.in_place = given.has("i", "in-place") or any(arg.startswith(("-i", "--in-place")) for arg in args)
        self.separate = self.in_place or given.has("s", "separate")
        quiet = given.has("n", "quiet", "silent")
        kind = "extended" if given.has("E", "r", "regexp-extended") else "basic"
        scripts = given.values("e", "expression")
        self.files = list(given.rest)
        if any(arg.startswith("-i") and not arg.startswith("--") for arg in args):
            # -i takes its suffix only when glued to it, and swallows the letters after it
            given = parse_options(
                ["-i" if arg.startswith("-i") and arg != "-i" else arg for arg in args],
                "efl",
                "expression file line-length",
            )
            self.files, scripts = list(given.rest), given.values("e", "expression")
            quiet = given.has("n", "quiet", "silent")
        if not scripts:
            give_up_if(not self.files)
            scripts = [self.files.pop(0)]
            if self.in_place and not scripts[0] and self.files:  # BSD: sed -i '' script file
                scripts = [self.files.pop(0)]
        script = "\n".join(scripts)
        if script.startswith("#n\n"):
            quiet = True
        self.quiet = quiet
        self.unknown = False
        try:
            self.script = _printing(script) or Script(script, kind).commands()
        except Unknown:
            if not self.in_place:
                raise
            self.script, self.unknown = [], True  # what it makes of a file is not known; that the file changes is

    def highest(self) -> int:
        """The highest line number the script speaks of; `Unknown` if it looks at text or at the end."""
        numbers = [0]

        def walk(commands: list[SedCommand]) -> None:
            for one in commands:
                give_up_if(one.name not in "{pdqQ")
                for address in (one.first, one.second):
                    if address is not None:
                        if address.kind == "last" and address is one.second:
                            continue
                        give_up_if(address.kind not in ("line", "plus"))
                        numbers[0] += address.number
                walk(one.block)

        walk(self.script)
        return numbers[0]

    def counts(self) -> bool:
        """True if it goes by the position of lines."""
        kinds = {
            address.kind for one in _walk(self.script) for address in (one.first, one.second) if address is not None
        }
        return bool(kinds - {"match"}) or any(one.second is not None or one.name in "qQ=" for one in _walk(self.script))

    def run(self, lines: list[FileLine]) -> list[Part]:
        """Output for these lines."""
        out: list[Part] = []
        for command in _walk(self.script):
            command.open = False
            for pattern in (
                command.pattern,
                *(one.pattern for one in (command.first, command.second) if one is not None),
            ):
                if pattern is not None:
                    texts = [line.text or "" for line in lines]
                    pattern.prepare(texts, len("".join(texts)), self.budget)
        steps = len(lines) * (1 + sum(1 for _ in _walk(self.script)))
        give_up_if(steps > _STEPS)
        if (only := self._window(len(lines))) is not None:
            self.budget.look(steps)
            return list(lines[only])
        self.budget.look(_A_STEP * steps)
        for number, line in enumerate(lines, 1):
            if self._one(number, line, number == len(lines) and not line.rest, out):
                break
        return out

    def _window(self, length: int) -> slice | None:
        """Output of `sed -n 'a,bp'`, which agents use above all: one slice of the lines."""
        if not self.quiet or len(self.script) != 1:
            return None
        one = self.script[0]
        if one.name != "p" or one.negated or one.first is None or one.first.kind != "line" or one.first.number < 1:
            return None
        first, second = one.first.number, one.second
        if second is None:
            return slice(first - 1, first)
        ends = {"line": second.number, "plus": first + second.number, "last": length}
        return slice(first - 1, max(first, ends[second.kind])) if second.kind in ends else None

    def _one(self, number: int, line: FileLine, last: bool, out: list[Part]) -> bool:
        after: list[Part] = []
        state = _State(line)
        ended = self._commands(self.script, number, last, state, out, after)
        if ended != "d" and ended != "Q" and not self.quiet:
            out.append(state.shown())
        out += after
        return ended in ("q", "Q")

    def _commands(
        self, commands: list[SedCommand], number: int, last: bool, state: _State, out: list[Part], after: list[Part]
    ) -> str:
        for one in commands:
            if _selected(one, number, last, state.line) == one.negated:
                continue
            if one.name in "=iac":
                self.budget.make(0, 1)
            if one.name == "{":
                ended = self._commands(one.block, number, last, state, out, after)
                if ended:
                    return ended
            elif one.name == "p":
                out.append(state.shown())
            elif one.name == "=":
                out.append(FileLine(None, 0, str(number)))
            elif one.name == "s":
                if state.substitute(one) and "p" in one.flags:
                    out.append(state.shown())
            elif one.name == "i":
                out.append(FileLine(None, 0, one.text))
            elif one.name == "a":
                after.append(FileLine(None, 0, one.text))
            elif one.name == "c":
                give_up_if(one.second is not None)
                out.append(FileLine(None, 0, one.text))
                return "d"
            else:
                return one.name
        return ""


class _State:
    """The pattern space."""

    def __init__(self, line: FileLine) -> None:
        self.line = line
        self.lost = False

    def shown(self) -> Part:
        return UnknownLines(self.line.path) if self.lost else self.line

    def substitute(self, command: SedCommand) -> bool:
        text = self.line.text
        if text is None or command.pattern is None:
            raise Unknown
        digits = re.sub(r"\D", "", command.flags)
        give_up_if(digits)
        new, times = command.pattern.replaced(command.replacement, text, once="g" not in command.flags)
        if times and len(new) < _SUBSTITUTE * len(text.strip()) and self.line.path and self.line.no:
            self.lost = True  # too little is left of the line to call it read
        self.line = self.line._replace(text=new)
        return times > 0


_PRINTING = re.compile(r"([0-9]{1,9}),([0-9]{1,9})p")


def _printing(script: str) -> list[SedCommand]:
    """The script `A,Bp`, which agents use above all; empty for all others, which are read piece by piece."""
    if (plain := _PRINTING.fullmatch(script)) is None:
        return []
    return [SedCommand("p", SedAddress("line", int(plain[1])), SedAddress("line", int(plain[2])))]


def _walk(commands: list[SedCommand]) -> Iterator[SedCommand]:
    for one in commands:
        yield one
        yield from _walk(one.block)


def _at(address: SedAddress, number: int, last: bool, line: FileLine) -> bool:
    if address.kind == "line":
        return number == address.number
    if address.kind == "last":
        return last
    if address.kind == "step":
        return (
            number == address.number
            if address.step <= 0
            else number >= address.number and (number - address.number) % address.step == 0
        )
    if address.pattern is None or line.text is None:
        raise Unknown
    return bool(address.pattern.found(line.text))


def _selected(command: SedCommand, number: int, last: bool, line: FileLine) -> bool:
    first, second = command.first, command.second
    if first is None:
        return True
    if second is None:
        return _at(first, number, last, line)
    if command.open:
        if second.kind in ("line", "plus", "multiple"):
            if number >= command.until:
                command.open = False
            return number <= command.until
        if _at(second, number, last, line):
            command.open = False
        return True
    if first.kind == "line" and first.number == 0 and second.kind == "match":
        if number == 1:
            command.open = not _at(second, number, last, line)
            return True
        return False
    if not _at(first, number, last, line):
        return False
    if second.kind == "line":
        command.until = second.number
    elif second.kind == "plus":
        command.until = number + second.number
    elif second.kind == "multiple":
        command.until = -(-number // second.number) * second.number if second.number else number
    command.open = command.until > number if second.kind in ("line", "plus", "multiple") else True
    return True
