"""Where a statement's input comes from and where its output goes: `<`, `>`, `<<`, `<<<`."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from context_bench.shell.call import Result
from context_bench.shell.model import Stream, plain
from context_bench.shell.words import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from context_bench.shell.running import Shell

_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
_SEEN = ("/dev/stdout", "/dev/stderr", "/dev/tty")
"""What is written here is seen."""


class Redirections:
    """What the redirections of one statement come to."""

    def __init__(self, shell: Shell, stdin: Stream | None) -> None:
        self.shell, self.stdin = shell, stdin
        self.missing = False
        """A file to read is not there."""
        self.strays: list[Node] = []
        """Words of the command that stand behind a redirection, and that the parser takes for its own."""
        self.onward: Node | None = None
        """The pipeline that goes on behind the head of a here-document."""
        self._targets: list[tuple[str, bool]] = []

    def take(self, node: Node) -> None:
        """Take one redirection in."""
        if node.type == "heredoc_redirect":
            self._here_document(node)
        elif node.type == "herestring_redirect":
            self.stdin = plain(self.shell.words.one(node.named_children[-1]) + "\n", self.shell.budget)
        else:
            self._file(node)

    def store(self, stream: Stream) -> Stream:
        """Write output where it goes; what of it is still seen."""
        for name, append in self._targets:
            if name not in _SEEN:
                self.shell.files.write(name, stream, append)
                stream = Stream()
        return stream

    def _here_document(self, node: Node) -> None:
        inner = Redirections(self.shell, None)
        for child in node.named_children:
            if child.type == "file_redirect":
                inner.take(child)
        self._targets += inner._targets
        self.onward = next((child for child in node.named_children if child.type in ("pipeline", "list")), self.onward)
        body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        self.stdin = plain(text_of(body), self.shell.budget) if body is not None else Stream()

    def _file(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), ">")
        number = next((text_of(child) for child in node.named_children if child.type == "file_descriptor"), "")
        places = [child for child in node.named_children if child.type != "file_descriptor"]
        self.strays += places[1:]
        if not places:
            return
        name = self.shell.words.one(places[0])
        if operator in ("<", "<&"):
            if operator == "<":
                self.stdin = self.shell.files.open(name)
            self.missing = self.missing or self.stdin is None
        elif number not in ("", "1"):
            return
        elif operator in (">", ">>", ">|", "&>", "&>>"):
            self._targets.append((name, operator.endswith(">>")))
        elif operator == ">&" and not re.fullmatch(r"\d|-", name):
            self._targets.append((name, False))


def redirected_statement(shell: Shell, node: Node, stdin: Stream | None) -> Result:
    """Run any statement with redirections behind it."""
    redirects = [child for child in node.named_children if child.type in _REDIRECTS]
    return _innermost(shell, node.child_by_field_name("body"), redirects, stdin)


def _innermost(shell: Shell, body: Node | None, redirects: list[Node], stdin: Stream | None) -> Result:
    """In `a && b > f` and `a | b > f`, the file is b's alone."""
    if body is not None and body.type == "pipeline":
        stream = stdin
        for child in body.named_children[:-1]:
            stream, _ = shell.alone(child, stream)
        return _redirected(shell, body.named_children[-1], redirects, stream)
    if body is None or body.type != "list":
        return _redirected(shell, body, redirects, stdin)
    out, status = shell.run(body.children[0], stdin)
    last = partial(_innermost, shell, body.children[-1], redirects, stdin)
    if status is None:
        made, _ = shell.perhaps(last)
        out.extend(made)
    elif (status == 0) == (body.children[1].type == "&&"):
        made, status = last()
        out.extend(made)
    return out, status


def _redirected(shell: Shell, body: Node | None, redirects: list[Node], stdin: Stream | None) -> Result:
    where = Redirections(shell, stdin)
    for one in redirects:
        where.take(one)
    if where.missing:
        return Stream(), 1
    made: Result = (Stream(), 0)
    if body is not None and body.type == "command" and where.strays:
        made = _command(shell, body, where.stdin, where.strays)
    elif body is not None:
        made = shell.run(body, where.stdin)
    stream, status = where.store(made[0]), made[1]
    for child in where.onward.named_children if where.onward is not None else ():
        stream, status = shell.alone(child, stream)
    return stream, status


def command(shell: Shell, node: Node, stdin: Stream | None) -> Result:
    """Run a simple command, or make its assignments where there is no more to it."""
    return _command(shell, node, stdin, [])


def _command(shell: Shell, node: Node, stdin: Stream | None, strays: list[Node]) -> Result:
    """The same with `strays`: words of the command that stand outside its node."""
    where = Redirections(shell, stdin)
    assigned: list[Node] = []
    words: list[Node] = []
    for child in node.named_children:
        if child.type in _REDIRECTS:
            where.take(child)
            if where.missing:
                return Stream(), 1
        else:
            (assigned if child.type == "variable_assignment" else words).append(child)
    if not words:
        return shell.block(assigned, where.stdin)
    argv = shell.words.args([*words, *strays, *where.strays])
    stream, status = shell.call(argv, where.stdin) if argv else (Stream(), 0)
    return where.store(stream), status
