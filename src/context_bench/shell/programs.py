"""`awk`, `sed` and `cut` as programs with scripts; of `awk`, the part that picks lines by number or pattern and prints
them whole.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from context_bench.shell.files import Files
from context_bench.shell.model import (
    LINE,
    UNKNOWN,
    Budget,
    CommandCall,
    FileLine,
    LineStream,
    Part,
    Result,
    Unknown,
    UnknownLines,
    give_up_if,
    joined,
    parse_options,
    unbounded,
)
from context_bench.shell.patterns import Pattern, regex
from context_bench.shell.sed import Sed
from context_bench.shell.text_commands import unrolled

_TOKENS = re.compile(
    r"""\s*(?:(?P<num>\d+)|(?P<str>"(?:[^"\\\n]|\\.)*")|(?P<name>[A-Za-z_]\w*)|(?P<op>&&|\|\||[=!<>]=|!~|\+\+|[-+*/%<>!~(),;{}$=\n]))""",
)
_DEPTH = 40


@dataclass
class _Rule:
    first: Any
    second: Any
    action: list[tuple[Any, ...]] | None
    open: bool = False


class Awk:
    """One awk program, run on files in order. `Unknown` where it does more than choose and number lines."""

    def __init__(self, program: str, variables: dict[str, str], budget: Budget) -> None:
        give_up_if(UNKNOWN in program)
        self.variables: dict[str, Any] = {
            name: int(text) if text.isdigit() and len(text) < 10 else text for name, text in variables.items()
        }
        self.program, self.at = program, 0
        #: No rule looks at text.
        self.numeric = True
        self.numbers: list[int] = [0]
        self.patterns: list[Pattern] = []
        self.budget = budget
        self.depth = 0
        self.rules = self._rules()

    # -- reading -----------------------------------------------------------

    def _peek(self) -> tuple[str, str]:
        while self.program[self.at : self.at + 1] in (" ", "\t", "\r") and self.at < len(self.program):
            self.at += 1
        if self.at >= len(self.program):
            return "end", ""
        if self.program[self.at] == "\n":
            return "op", "\n"
        found = _TOKENS.match(self.program, self.at)
        if not found or found.lastgroup is None:
            raise Unknown
        return found.lastgroup, found[found.lastgroup]

    def _take(self, wanted: str | None = None) -> tuple[str, str]:
        kind, text = self._peek()
        give_up_if(wanted is not None and text != wanted)
        self.at = self.program.index(text, self.at) + len(text) if text else self.at
        return kind, text

    def _rules(self) -> list[_Rule]:
        rules: list[_Rule] = []
        while True:
            while self._peek()[1] in (";", "\n"):
                self._take()
            if self._peek()[0] == "end":
                return rules
            give_up_if(self._peek()[1] in ("BEGIN", "END", "function"))
            first = second = None
            if self._peek()[1] != "{":
                first = self._either()
                if self._peek()[1] == ",":
                    self._take()
                    second = self._either()
            action = self._action() if self._peek()[1] == "{" else None
            rules.append(_Rule(first, second, action))

    def _action(self) -> list[tuple[Any, ...]]:
        self._take("{")
        found: list[tuple[Any, ...]] = []
        while True:
            _, text = self._take()
            if text == "}":
                return found
            if text in (";", "\n"):
                continue
            if text in ("print", "printf"):
                found.append((text, self._arguments()))
            elif text in ("exit", "next"):
                if self._peek()[0] == "num":
                    self._take()
                found.append((text,))
            else:
                raise Unknown

    def _arguments(self) -> list[list[Any]]:
        """The arguments of a print, each a list of things set side by side."""
        paren = self._peek()[1] == "("
        if paren:
            self._take()
        arguments: list[list[Any]] = []
        while self._peek()[1] not in ("}", ";", "\n", ")", ""):
            arguments.append(self._joined())
            if self._peek()[1] == ",":
                self._take()
        if paren:
            self._take(")")
        give_up_if(self._peek()[1] not in ("}", ";", "\n"))
        return arguments

    def _joined(self) -> list[Any]:
        items = []
        while self._peek()[1] not in ("}", ";", "\n", ")", ",", ""):
            items.append(self._atom())
        return items

    def _atom(self) -> Any:
        kind, text = self._take()
        if kind == "num":
            return int(text[:9])
        if kind == "str":
            inner = text[1:-1]
            give_up_if(re.search(r"\\[^nt\"\\/]", inner))
            return inner.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
        if text == "$":
            give_up_if(self._take()[1] != "0")
            return ("$0",)
        if text in ("NR", "FNR", "FILENAME"):
            return (text,)
        if kind == "name" and text in self.variables:
            return self.variables[text]
        raise Unknown

    def _either(self) -> Any:
        return self._chained(("||",), lambda: self._chained(("&&",), self._negated))

    def _chained(self, operators: tuple[str, ...], operand: Callable[[], Any]) -> Any:
        """Operands with operators between them, from left to right."""
        left = operand()
        while (operator := self._peek()[1]) in operators:
            self._take()
            left = (operator, left, operand())
        return left

    def _negated(self) -> Any:
        self.depth += 1
        give_up_if(self.depth > _DEPTH)
        if self._at_text("!"):
            self._take()
            return ("!", self._negated())
        if self._at_text("/"):
            return self._slashes(("$0",))
        if self._at_text("("):
            self._take()
            inner = self._either()
            self._take(")")
            return inner
        left = self._sum()
        operator = self._peek()[1]
        if operator in ("==", "!=", "<", ">", "<=", ">="):
            self._take()
            return (operator, left, self._sum())
        if operator in ("~", "!~"):
            self._take()
            self._peek()
            found = self._slashes(left)
            return ("!", found) if operator == "!~" else found
        return ("!=", left, 0)

    def _at_text(self, text: str) -> bool:
        return self.program[self._skipped() : self._skipped() + 1] == text

    def _skipped(self) -> int:
        while self.program[self.at : self.at + 1] in (" ", "\t") and self.at < len(self.program):
            self.at += 1
        return self.at

    def _slashes(self, subject: Any) -> Any:
        start = self._skipped()
        found = re.compile(r"/((?:[^/\\\n]|\\.)+)/").match(self.program, start)
        if not found or subject != ("$0",):
            raise Unknown
        self.at = found.end()
        pattern = regex(found[1].replace("\\/", "/"), "extended")
        self.patterns.append(pattern)
        self.numeric = False
        return ("match", pattern)

    def _sum(self) -> Any:
        left = self._chained(("+", "-", "%"), self._atom)
        if isinstance(left, int):
            self.numbers.append(left)
        return left

    # -- running -----------------------------------------------------------

    def run(self, files: list[tuple[str, list[FileLine]]]) -> list[Part]:
        """Output for these files."""
        out: list[Part] = []
        for pattern in self.patterns:
            texts = [line.text or "" for _, lines in files for line in lines]
            pattern.prepare(texts, len("".join(texts)), self.budget)
        self.budget.step(sum(len(lines) for _, lines in files) * (LINE + len(self.program) // 2))
        number = 0
        for name, lines in files:
            for at, line in enumerate(lines, 1):
                number += 1
                if self._line(line, {"NR": number, "FNR": at, "FILENAME": name}, out):
                    return out
        return out

    def _line(self, line: FileLine, values: dict[str, Any], out: list[Part]) -> bool:
        for rule in self.rules:
            if not self._applies(rule, line, values):
                continue
            for step in rule.action if rule.action is not None else [("print", [])]:
                if step[0] == "exit":
                    return True
                if step[0] == "next":
                    return False
                out.append(self._printed(step[0], step[1], line, values))
        return False

    def _applies(self, rule: _Rule, line: FileLine, values: dict[str, Any]) -> bool:
        if rule.first is None:
            return True
        if rule.second is None:
            return bool(self._value(rule.first, line, values))
        if not rule.open and not self._value(rule.first, line, values):
            return False
        rule.open = not self._value(rule.second, line, values)
        return True

    def _value(self, node: Any, line: FileLine, values: dict[str, Any]) -> Any:
        if not isinstance(node, tuple):
            return node
        name = node[0]
        if name in values:
            return values[name]
        if name == "match":
            if line.text is None:
                raise Unknown
            return bool(node[1].found(line.text))
        if name == "!":
            return not self._value(node[1], line, values)
        give_up_if(name == "$0")
        left = self._value(node[1], line, values)
        if name in ("&&", "||") and bool(left) == (name == "||"):
            return left
        right = self._value(node[2], line, values)
        if name in ("&&", "||"):
            return right
        give_up_if(not isinstance(left, int) or not isinstance(right, int) or (name == "%" and right == 0))
        return _OPERATORS[name](left, right)

    def _printed(self, verb: str, arguments: list[list[Any]], line: FileLine, values: dict[str, Any]) -> Part:
        if not arguments:
            give_up_if(verb == "printf")
            self.budget.make(0, 1)
            return line._replace(eol=True)
        items = [item for argument in arguments for item in argument]
        whole = ("$0",) in items
        if whole and line.text is None:
            return line
        self.budget.make(sum(_width(item, line) for item in items), 1)
        texts = [self._text(argument, line, values) for argument in arguments]
        if not whole:
            return FileLine(None, 0, " ".join(texts) if verb == "print" else None)
        if verb == "print":
            shown = " ".join(texts)
        else:
            give_up_if(not re.fullmatch(r"(?:[^%\n]|%-?\d{0,4}[ds]|%%)*\n", texts[0]))
            self.budget.make(10_000 * texts[0].count("%") if re.search(r"\d{3}", texts[0]) else 0)
            shown = re.sub(r"%(-?\d*)d", r"%\1s", texts[0])[:-1]
            try:
                shown = shown % tuple(texts[1:])
            except (TypeError, ValueError):
                raise Unknown from None
        give_up_if("\n" in shown)
        return line._replace(text=shown, eol=True)

    def _text(self, items: list[Any], line: FileLine, values: dict[str, Any]) -> str:
        return "".join(
            (line.text or "") if item == ("$0",) else str(values[item[0]]) if isinstance(item, tuple) else str(item)
            for item in items
        )


def _width(item: Any, line: FileLine) -> int:
    """About the most characters that an item of a print may take."""
    return len(line.text or "") if item == ("$0",) else len(item) if isinstance(item, str) else 20


_OPERATORS: dict[str, Callable[[int, int], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "%": operator.mod,
}


def _changed(program: Sed, stream: LineStream) -> LineStream:
    """Content of a file after the program; unknown if its text is."""
    if program.unknown:
        return stream.unknown_selection()
    try:
        return LineStream(program.run(stream.texts()), stream.ordered)
    except Unknown:
        return stream.unknown_selection()


def sed(call: CommandCall) -> Result:
    """Files through a sed script, or changed in place."""
    program = Sed(call.args, call.files.budget)
    streams, status = call.inputs(program.files)
    if program.in_place:
        for name, stream in streams:
            call.files.write(name, _changed(program, stream), in_place=True)
        return LineStream(), status
    out = LineStream()
    groups = [stream for _, stream in streams] if program.separate else [joined(streams)]
    for stream in groups:
        lines = stream.lines()
        if unbounded(lines):
            lines = LineStream(unrolled(stream, program.highest() + 1, call.files.budget)).lines()
            give_up_if(unbounded(lines[:-1]))
        give_up_if(not stream.ordered and program.counts())
        out.extend(LineStream(program.run(lines), stream.ordered))
    return out, 2 if status else 0


def awk(call: CommandCall) -> Result:
    """Files through an awk program."""
    given = parse_options(call.args, "vfF", "", stop_at_first=True)
    give_up_if(given.has("f") or not given.rest or any(name not in "vF" for name in given.given))
    variables = {}
    for setting in given.values("v"):
        name, _, value = setting.partition("=")
        variables[name] = value
    program = Awk(given.rest[0], variables, call.files.budget)
    streams, status = call.inputs([name for name in given.rest[1:] if not re.match(r"[A-Za-z_]\w*=", name)])
    give_up_if(len(given.rest) > 1 and any(re.match(r"[A-Za-z_]\w*=", name) for name in given.rest[1:]))
    files = []
    for name, stream in streams:
        give_up_if(not stream.ordered and program.rules)
        parts = stream.parts
        if any(isinstance(part, FileLine) and part.rest for part in parts):
            give_up_if(not program.numeric or len(streams) > 1 or "%" in given.rest[0])
            parts = unrolled(stream, sum(program.numbers) + 2, call.files.budget)
        files.append((name, LineStream(parts).lines()))
    return LineStream(program.run(files)), status


def cut(call: CommandCall) -> Result:
    """Characters or fields of each line."""
    given = parse_options(call.args, "bcdf", "bytes characters delimiter fields output-delimiter")
    streams, status = call.inputs(given.rest)
    stream = joined(streams)
    spots = given.get("c", "characters", "b", "bytes")
    fields = given.get("f", "fields")
    give_up_if(given.has("complement", "output-delimiter") or not re.fullmatch(r"[\d,-]+", spots or fields or ""))
    delimiter = given.get("d", "delimiter") or "\t"
    chosen = _chosen(spots or fields or "")
    out: list[Part] = []
    for line in stream.texts():
        text = line.text or ""
        call.files.budget.make(len(text) // 8, 1)
        call.files.budget.step(LINE + len(text))
        if spots is not None:
            new = "".join(text[first:last] for first, last in chosen)
        elif delimiter not in text:
            new = text
        else:
            parts = text.split(delimiter)
            new = delimiter.join(part for first, last in chosen for part in parts[first:last])
        out.append(remainder(line, new, call.files))
    return LineStream(out, stream.ordered), status


def _chosen(spec: str) -> list[tuple[int, int | None]]:
    """The ranges of a list such as `2,5-`, as slices that do not overlap, in order."""
    ranges: list[tuple[int, float]] = []
    for one in spec.split(","):
        low, dash, high = one.partition("-")
        give_up_if(not (low or high) or len(one) > 15)
        ranges.append((max(int(low or 1), 1), int(high) if high else math.inf if dash else int(low)))
    slices: list[tuple[int, int | None]] = []
    reached = 0.0
    for first, last in sorted(ranges):
        if last > reached and last >= first:
            slices.append((max(first - 1, int(reached)), None if math.isinf(last) else int(last)))
            reached = last
        if math.isinf(reached):
            break
    return slices


def remainder(line: FileLine, new: str, files: Files) -> Part:
    """Remainder of a line of a file: still that line, no longer text of it, or a fragment that cannot be called
    either.
    """
    if line.path is None or not line.no:
        return FileLine(None, 0, new)
    tree = files.tree
    lines = tree.lines(line.path) if tree is not None else None
    whole = (lines[line.no - 1].text or "").strip() if lines and line.no <= len(lines) else (line.text or "").strip()
    left = new.strip()
    if (whole and whole in new) or (left and whole.startswith(left) and len(left) >= 8) or (not whole and not left):
        return line._replace(text=new)
    if re.fullmatch(r"[\d:\s-]*", left) or line.path.endswith(left):
        return FileLine(None, 0, new)
    return UnknownLines(line.path)
