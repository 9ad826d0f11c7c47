"""The shell's grammar: lists, pipes, loops, conditions, functions, assignments, redirections (`<`, `>`, `<<`,
`<<<`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from context_bench.shell.model import LINE, MOST_ROUNDS, UNKNOWN, LineStream, Result, Status, Unknown, give_up_if, plain
from context_bench.shell.patterns import glob
from context_bench.shell.words import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

    from context_bench.shell.running import Shell

_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
#: What is written here is seen.
_SEEN = ("/dev/stdout", "/dev/stderr", "/dev/tty")


class Redirections:
    """Result of the redirections of one statement."""

    def __init__(self, shell: Shell, stdin: LineStream | None) -> None:
        self.shell, self.stdin = shell, stdin
        #: A file to read is not there.
        self.missing = False
        #: Words of the command that stand behind a redirection, and that the parser takes for its own.
        self.strays: list[Node] = []
        #: The pipeline that goes on behind the head of a here-document.
        self.onward: Node | None = None
        self._targets: list[tuple[str, bool]] = []

    def take(self, node: Node) -> None:
        """Take one redirection in."""
        if node.type == "heredoc_redirect":
            self._here_document(node)
        elif node.type == "herestring_redirect":
            self.stdin = plain(self.shell.words.one(node.named_children[-1]) + "\n", self.shell.budget)
        else:
            self._file(node)

    def store(self, stream: LineStream) -> LineStream:
        """Write output where it goes; what of it is still seen."""
        for name, append in self._targets:
            if name not in _SEEN:
                self.shell.files.write(name, stream, append)
                stream = LineStream()
        return stream

    def _here_document(self, node: Node) -> None:
        inner = Redirections(self.shell, None)
        for child in node.named_children:
            if child.type == "file_redirect":
                inner.take(child)
        self._targets += inner._targets
        self.onward = next((child for child in node.named_children if child.type in ("pipeline", "list")), self.onward)
        body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        self.stdin = plain(text_of(body), self.shell.budget) if body is not None else LineStream()

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


def redirected_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    """Run any statement with redirections behind it."""
    redirects = [child for child in node.named_children if child.type in _REDIRECTS]
    return _innermost(shell, node.child_by_field_name("body"), redirects, stdin)


def _innermost(shell: Shell, body: Node | None, redirects: list[Node], stdin: LineStream | None) -> Result:
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


def _redirected(shell: Shell, body: Node | None, redirects: list[Node], stdin: LineStream | None) -> Result:
    where = Redirections(shell, stdin)
    for one in redirects:
        where.take(one)
    if where.missing:
        return LineStream(), 1
    made: Result = (LineStream(), 0)
    if body is not None and body.type == "command" and where.strays:
        made = _command(shell, body, where.stdin, where.strays)
    elif body is not None:
        made = shell.run(body, where.stdin)
    stream, status = where.store(made[0]), made[1]
    for child in where.onward.named_children if where.onward is not None else ():
        stream, status = shell.alone(child, stream)
    return stream, status


def _command(shell: Shell, node: Node, stdin: LineStream | None, strays: Sequence[Node] = ()) -> Result:
    """Run a simple command, or make its assignments where there is no more to it. `strays`: words of the command that
    stand outside its node.
    """
    where = Redirections(shell, stdin)
    assigned: list[Node] = []
    words: list[Node] = []
    for child in node.named_children:
        if child.type in _REDIRECTS:
            where.take(child)
            if where.missing:
                return LineStream(), 1
        else:
            (assigned if child.type == "variable_assignment" else words).append(child)
    if not words:
        return shell.block(assigned, where.stdin)
    argv = shell.words.args([*words, *strays, *where.strays])
    stream, status = shell.call(argv, where.stdin) if argv else (LineStream(), 0)
    return where.store(stream), status


_WORDS = ("word", "string", "raw_string", "simple_expansion", "concatenation")


def _list(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    """`a && b`, `a || b`."""
    left, operator, right = node.children[0], node.children[1].type, node.children[-1]
    out, status = shell.run(left, stdin)
    if status is None:
        made, after = shell.perhaps(partial(shell.run, right, stdin))
        out.extend(made)
        return out, None if after == 0 else after
    if (status == 0) == (operator == "&&"):
        status = shell.run_onto(out, right, stdin)
    return out, status


def _pipeline(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    stream, status = stdin, None
    cwd, variables = shell.files.cwd, shell.kept()
    for child in node.named_children:
        if child.type != "comment":
            stream, status = shell.alone(child, stream)
    shell.files.cwd = cwd
    shell.restore(variables)
    return stream or LineStream(), status


def _negated_command(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    out, status = shell.run(node.named_children[-1], stdin)
    return out, None if status is None else int(status == 0)


def _function_definition(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        shell.functions[shell.words.one(name)] = body
    return LineStream(), 0


# -- variables -----------------------------------------------------------------
def _variable_assignment(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None:
        return LineStream(), 0
    text = "" if value is None else UNKNOWN if value.type == "array" else shell.words.one(value)
    if any(child.type == "+=" for child in node.children):
        before = shell.variables.get(shell.words.one(name), UNKNOWN)
        shell.budget.make(len(before))
        text = before + text
    shell.variables[shell.words.one(name)] = text
    return LineStream(), 0


def _declaration_command(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    """export, local, declare, readonly."""
    for child in node.named_children:
        if child.type == "variable_assignment":
            shell.run(child, None)
    return LineStream(), 0


def _unset_command(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    for child in node.named_children:
        shell.variables.pop(shell.words.one(child), None)
    return LineStream(), 0


# -- loops -----------------------------------------------------------------------
def _for_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        raise Unknown
    values = shell.words.args(node.children_by_field_name("value"))
    give_up_if(len(values) > MOST_ROUNDS)
    out = LineStream()
    last: Status = 0
    for value in values:
        shell.variables[shell.words.one(variable)] = value
        made, last = _round(shell, body, stdin)
        out.extend(made)
    return out, last


def _c_style_for_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    body = node.child_by_field_name("body")
    text = text_of(node)
    shell.budget.step(len(text))
    for found in re.finditer(r"\b([A-Za-z_]\w*)\s*(?:=|\+\+)", text):
        shell.variables[found[1]] = UNKNOWN
    return shell.perhaps(partial(shell.run, body, stdin)) if body is not None else (LineStream(), None)


def _while_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    """while, until: followed where each round reads a line of known input."""
    condition, body = text_of(node.named_children[0]), node.child_by_field_name("body")
    shell.budget.step(len(condition))
    if body is None:
        raise Unknown
    reads = re.fullmatch(r"(?:IFS=\S*\s+)?read(?:\s+-r)?\s+([A-Za-z_]\w*)", condition.strip())
    if not reads or stdin is None or not stdin.parts:
        return shell.perhaps(partial(shell.run, body, stdin))
    variable = reads[1]
    try:
        lines = stdin.texts()
    except Unknown:
        shell.variables[variable] = UNKNOWN
        shell.captured.append((UNKNOWN, stdin))
        made, _ = shell.perhaps(partial(shell.run, body, None))
        return made, None
    give_up_if(len(lines) > MOST_ROUNDS)
    out = LineStream(ordered=stdin.ordered)
    for line in lines:
        text = line.text or ""
        shell.variables[variable] = text if "IFS=" in condition else text.strip()
        if line.no:
            said = shell.variables[variable]
            shell.captured.append((said, LineStream([line if said == text else line._replace(text=said)])))
        made, _ = _round(shell, body, None)
        out.extend(made)
    return out, 0


def _round(shell: Shell, body: Node, stdin: LineStream | None) -> Result:
    text = body.text or b""
    shell.budget.step(len(text))
    if re.search(rb"\b(?:break|continue)\b", text):
        made, status = shell.perhaps(partial(shell.run, body, stdin))[0], None
    else:
        made, status = shell.run(body, stdin)
    shell.budget.look(len(made.parts))
    return made, status


# -- conditions ------------------------------------------------------------------
def _if_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    clauses = [_parted(one) for one in (node, *node.named_children) if one.type in ("if_statement", "elif_clause")]
    other = next((one.named_children for one in reversed(node.named_children) if one.type == "else_clause"), [])
    out = LineStream()
    for conditions, body in clauses:
        made, status = shell.block(conditions, stdin)
        out.extend(made)
        if status is None:
            for branch in (*(branch for _, branch in clauses), other):
                out.extend(shell.perhaps(partial(shell.block, branch, stdin))[0])
            return out, None
        if status == 0:
            made, status = shell.block(body, stdin)
            out.extend(made)
            return out, status
    made, status = shell.block(other, stdin)
    out.extend(made)
    return out, status


def _parted(node: Node) -> tuple[list[Node], list[Node]]:
    """Conditions and body of an if or elif."""
    conditions: list[Node] = []
    body: list[Node] = []
    seen_then = False
    for child in node.children:
        if child.type == "then":
            seen_then = True
        elif child.is_named and child.type not in ("elif_clause", "else_clause"):
            (body if seen_then else conditions).append(child)
    return conditions, body


def _case_statement(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    subject = node.child_by_field_name("value")
    value = shell.words.one(subject) if subject is not None else UNKNOWN
    out = LineStream()
    for item in node.named_children:
        if item.type != "case_item":
            continue
        patterns = item.children_by_field_name("value")
        heads = {one.id for one in patterns}
        body = [child for child in item.named_children if child.id not in heads]
        if UNKNOWN in value:
            out.extend(shell.perhaps(partial(shell.block, body, stdin))[0])
        elif any(_fits(shell, one, value) for one in patterns):
            return shell.block(body, stdin)
    return out, None if UNKNOWN in value else 0


def _fits(shell: Shell, pattern: Node, value: str) -> bool:
    text = shell.words.pattern(pattern)
    shell.budget.step(LINE + len(value) * (len(value) if "**/" in text else 1 + len(text) // 16))
    return glob(text, stars_cross=True).match(value) is not None


def _test_command(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    """Test that a file or directory exists; other tests are not followed."""
    found = re.fullmatch(r"\[\[?\s+(!\s+)?-([efds])\s+(\S+)\s+\]\]?", text_of(node))
    words = [child for child in _descendants(node) if child.type in _WORDS]
    if not found or not words:
        return LineStream(), None
    path = shell.files.resolve(shell.words.one(words[0]))
    if path is None or shell.files.tree is None:
        return LineStream(), None
    is_file, is_dir = bool(shell.files.is_file(path)), bool(shell.files.is_dir(path))
    there = is_file if found[2] in "fs" else is_dir if found[2] == "d" else is_file or is_dir
    return LineStream(), int(there == bool(found[1]))


def _descendants(node: Node) -> list[Node]:
    out: list[Node] = []
    for child in node.named_children:
        out.append(child)
        if child.type not in ("string", "concatenation"):
            out += _descendants(child)
    return out


#: What runs each kind of node; the shell gives the nodes' names.
def _block(shell: Shell, node: Node, stdin: LineStream | None) -> Result:
    return shell.block(node.named_children, stdin)


STATEMENTS: dict[str, Callable[[Shell, Node, LineStream | None], Result]] = {
    "c_style_for_statement": _c_style_for_statement,
    "case_statement": _case_statement,
    "command": _command,
    "comment": lambda shell, node, stdin: (LineStream(), 0),
    "compound_statement": _block,
    "declaration_command": _declaration_command,
    "do_group": _block,
    "for_statement": _for_statement,
    "function_definition": _function_definition,
    "if_statement": _if_statement,
    "list": _list,
    "negated_command": _negated_command,
    "pipeline": _pipeline,
    "redirected_statement": redirected_statement,
    "subshell": lambda shell, node, stdin: shell.apart(partial(shell.block, node.named_children, stdin)),
    "test_command": _test_command,
    "unset_command": _unset_command,
    "variable_assignment": _variable_assignment,
    "variable_assignments": _block,
    "while_statement": _while_statement,
}
