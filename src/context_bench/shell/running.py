"""The shell itself: what it knows, and how it runs scripts, statements and commands over lines that know where they
come from.

`statements` and `redirecting` know the grammar, `commands` which function stands for which command.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import cache, cached_property, partial
from time import thread_time
from typing import TYPE_CHECKING

from context_bench.shell.commands import OF_SHELL, SIMPLE, kind_of, other
from context_bench.shell.files import Files
from context_bench.shell.model import (
    LINE,
    UNKNOWN,
    Budget,
    BudgetSpent,
    CommandCall,
    FileLine,
    LineStream,
    Part,
    Result,
    ShellExit,
    Status,
    Unknown,
    UnknownLines,
    give_up_if,
    rendered,
)
from context_bench.shell.statements import STATEMENTS
from context_bench.shell.words import Words, plain_words, spelled, text_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MOST_STEPS = 3000
_STATEMENT = 500
_QUICKLY_PARSED = 4000
_NEVER_PARSED = 200_000_000
_DEEPEST = 25
_PARAMETERS = ("@", "*", "#", *(str(number) for number in range(1, 10)))


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parsed(text: str, budget: Budget) -> Node:
    """The tree of a script. The grammar's parser takes the square of the length over some faulty ones: `BudgetSpent`
    where it is at that.

    This alone goes by the clock (of this thread's processor), nearly ten times and more what sound scripts take. What
    stays below is parsed twice, since nodes of the first tree have no text.
    """
    source = spelled(text)
    parser = _parser()
    if len(source) > _QUICKLY_PARSED:
        until = thread_time() + 0.08 + 1.5e-6 * len(source)
        try:
            parser.parse(
                lambda at, _: source[at : at + 65536],
                encoding="utf8",
                progress_callback=lambda *_: thread_time() > until,
            )
        except ValueError:
            parser.reset()
            budget.over = True
            budget.step(_NEVER_PARSED)
            raise BudgetSpent from None
    return parser.parse(source).root_node


class Shell:
    """Runs commands over lines that know where they come from."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.budget = files.budget
        self.variables: dict[str, str] = {}
        self.functions: dict[str, Node] = {}
        #: Texts that variables or words hold, and the lines they were.
        self.captured: list[tuple[str, LineStream]] = []
        #: What `popd` goes back to.
        self.stack: list[str | None] = []
        #: The directory before the last change.
        self.left: str | None = None
        self.kinds: set[str] = set()
        self._steps = self._depth = 0

    @cached_property
    def words(self) -> Words:
        """Expands words: made when one is met that is not plain, since the two hold each other."""
        return Words(self.files, self.variables, self._substituted, self._piped)

    def source(self, text: str, stdin: LineStream | None = None) -> Result:
        """Run a script."""
        self._depth += 1
        try:
            give_up_if(self._depth > _DEEPEST)
            if words := plain_words(text):
                self._step()
                return self.call(words, stdin)
            root = _parsed(text, self.budget)
            give_up_if(root.has_error)
            return self.block(root.named_children, stdin)
        finally:
            self._depth -= 1

    def block(self, nodes: list[Node], stdin: LineStream | None) -> Result:
        """Run statements one after the other."""
        out = LineStream()
        last: Status = 0
        for node in nodes:
            last = self.run_onto(out, node, stdin)
        return out, last

    def run_onto(self, out: LineStream, node: Node, stdin: LineStream | None) -> Status:
        """Run one statement and add what it prints to what was printed before, even where the shell ends in it."""
        try:
            made, status = self.run(node, stdin)
        except ShellExit as stop:
            out.extend(stop.shown)
            raise ShellExit(out) from None
        self.budget.look(len(made.parts))
        out.extend(made)
        return status

    def run(self, node: Node, stdin: LineStream | None) -> Result:
        """Run one statement: what it prints, and its exit status (`None`: cannot be told)."""
        self._step()
        statement = STATEMENTS.get(node.type)
        return statement(self, node, stdin) if statement is not None else (LineStream(), None)

    def call(self, argv: list[str], stdin: LineStream | None) -> Result:
        """Run a simple command. What it does to lines and cannot be followed leaves them unknown."""
        self._step()
        if stdin is not None:
            self.budget.look(len(stdin.parts))
        if not argv:
            raise Unknown
        name = argv[0].replace("\\", "/").rsplit("/", 1)[-1]
        call = CommandCall(name, argv[1:], stdin, self.files)
        if kind := kind_of(name, argv):
            self.kinds.add(kind)
        self.files.opened = []
        try:
            return self._called(call)
        except Unknown:
            return self._unknown(call), None

    # -- ways of running ---------------------------------------------------------

    def perhaps(self, action: Callable[[], Result]) -> Result:
        """Run what may not have been run: the lines it shows are unknown, its directory a guess."""
        before = self.files.cwd
        try:
            made, status = action()
        except ShellExit as stop:
            made, status = stop.shown, None
        if self.files.cwd != before:
            self.files.doubt = True
        return made.unknown_selection() if made.parts else made, status

    def alone(self, node: Node, stdin: LineStream | None) -> Result:
        """Run one part of a pipeline: where it ends the shell, it ends no other part."""
        try:
            return self.run(node, stdin)
        except ShellExit as stop:
            return stop.shown, None

    def apart(self, action: Callable[[], Result]) -> Result:
        """Run in a shell of its own: directory and variables are as before afterwards."""
        cwd, variables, doubt = self.files.cwd, self.kept(), self.files.doubt
        try:
            return action()
        except ShellExit as stop:
            return stop.shown, None
        finally:
            self.files.cwd, self.files.doubt = cwd, doubt
            self.restore(variables)

    def kept(self) -> dict[str, str]:
        """The variables as they are, for later."""
        if self.variables:
            self.budget.look(len(self.variables))
        return dict(self.variables)

    def restore(self, variables: dict[str, str]) -> None:
        """Have the variables of an earlier time again."""
        self.variables.clear()
        self.variables.update(variables)

    def _step(self) -> None:
        self._steps += 1
        self.budget.step(_STATEMENT)
        give_up_if(self._steps > _MOST_STEPS)

    # -- commands ------------------------------------------------------------------

    def _called(self, call: CommandCall) -> Result:
        if call.name in self.functions:
            return self._function(self.functions[call.name], call)
        if call.name in ("echo", "printf") and (shown := self._captured(call.args)) is not None:
            return shown, 0
        if simple := SIMPLE.get(call.name):
            return simple(call)
        if of_shell := OF_SHELL.get(call.name):
            return of_shell(self, call)
        return other(call)

    def _function(self, body: Node, call: CommandCall) -> Result:
        self._depth += 1
        before = {name: self.variables.get(name) for name in _PARAMETERS}
        self.budget.make(2 * sum(map(len, call.args)), 1)
        self.variables.update({str(at): arg for at, arg in enumerate(call.args[:9], 1)})
        self.variables.update({"@": " ".join(call.args), "*": " ".join(call.args), "#": str(len(call.args))})
        try:
            give_up_if(self._depth > _DEEPEST)
            return self.run(body, call.stdin)
        finally:
            self._depth -= 1
            for name, value in before.items():
                if value is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = value

    def _unknown(self, call: CommandCall) -> LineStream:
        """Output of a command that cannot be followed: some of what it opened, or names, and of what flows into it."""
        paths = [path for path in self.files.opened if path]
        if not paths:
            paths = [path for arg in call.args if (path := self.files.resolve(arg)) and self.files.is_file(path)]
        named = [UnknownLines(path) for path in dict.fromkeys(paths)]
        flowing = call.stdin.unknown_selection().parts if call.stdin is not None else []
        parts: list[Part] = [*named, *flowing]
        return LineStream(parts or [UnknownLines(None)], ordered=False)

    # -- text out of lines: `$( )` and `<( )` ----------------------------------------

    def _captured(self, args: list[str]) -> LineStream | None:
        """Output of `echo "$(cat f)"`: the lines of f, if the text is there whole, else some of them."""
        words = [arg for arg in args if not re.fullmatch(r"-[neE]+|%s(?:\\n)?", arg)]
        text = " ".join(words)
        self.budget.step(
            sum(len(captured) + len(text) // 4 + LINE * len(stream.parts) for captured, stream in self.captured)
        )
        for captured, stream in reversed(self.captured):
            if captured == text and captured != UNKNOWN and stream.files():
                return stream
        within = [
            UnknownLines(path)
            for captured, stream in self.captured
            if (len(captured.strip()) > 3 or captured == UNKNOWN) and captured in text
            for path in stream.files()
        ]
        self.budget.make(0, len(within))
        return LineStream(within) if within else None

    def _substituted(self, node: Node) -> str:
        """The text of `$( )`."""
        inner = node.named_children
        if len(inner) == 1 and inner[0].type == "command" and (told := self._place(inner[0])) is not None:
            return told
        stream, _ = self.apart(partial(self.block, inner, None))
        if len(inner) == 1 and inner[0].type == "file_redirect":
            stream = self.files.open(self.words.one(inner[0].named_children[-1])) or LineStream()
        self.budget.make(sum(len(part.text or "") + 1 for part in stream.parts if isinstance(part, FileLine)))
        text = _text_of(stream)
        if stream.files():
            self.captured.append((text, stream))
        return text

    def _place(self, command: Node) -> str | None:
        """The folder or name that a command such as `pwd` or `dirname` prints; `None` for others, whose words are not
        expanded here: they would be expanded again where the command is run.
        """
        text = text_of(command)
        if text == "pwd":
            return self.files.place(".")
        if text == "git rev-parse --show-toplevel":
            return self.files.root
        ends = {"dirname": posixpath.dirname, "basename": posixpath.basename}
        if (end := ends.get(text.partition(" ")[0])) is None:
            return None
        words = self.words.args(command.named_children)
        return (end(words[1]) or ".") if len(words) == 2 and UNKNOWN not in words[1] else UNKNOWN

    def _piped(self, node: Node) -> str:
        """The name under which `<( )` can be read."""
        name = f"/dev/fd/{63 - len(self.files.pipes)}"
        stream, _ = self.apart(partial(self.block, node.named_children, None))
        self.files.pipes[name] = stream
        return name


def _text_of(stream: LineStream) -> str:
    """Text of lines inside `$( )`; unknown where their order is, unless they are no lines of files."""
    if (
        not stream.ordered
        and len(stream.parts) > 1
        and not all(isinstance(part, FileLine) and not part.no for part in stream.parts)
    ):
        return UNKNOWN
    try:
        return rendered(stream).rstrip("\n")
    except Unknown:
        return UNKNOWN
