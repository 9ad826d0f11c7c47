"""From a model's reply to a program, and its run against the tests. Runs inside the sandbox: nothing of a reply is
parsed on the host.

Program and tests are two processes: `far` and `main`. What the program gives is compared as plain data, where it cannot
reach.

A reply may be a whole program, the body of the function that the context begins (indented or not, or with only its
first line's indentation lost), in a Markdown fence or with prose around it. Several *readings* of the reply are tried
in turn, the literal one first, and for each the three ways in which it can be a program; the first that is one counts.
Nothing is run to find that out.
"""

from __future__ import annotations

import _ast  # not ast: importing that, or typing, costs more than a typical program takes
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from context_bench.evaluators.code_sides import Side  # inside, its text comes before this one

_TREE = 0x400  # compile() stops at the syntax tree (ast.PyCF_ONLY_AST)
_NOT_PYTHON = (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError)
_LANGUAGES = ("", "python", "py", "python3", "py3", "python2", "ipython")
_STARTS = ("def ", "async def ", "class ", "import ", "from ", "@")
#: A definition in prose is looked for over at most so many pieces, so that the search ends.
_PIECES = 40
#: Modules that tests use as the program's imports left them: the tests take their own.
_TOOLS = {
    "math",
    "cmath",
    "re",
    "string",
    "collections",
    "itertools",
    "functools",
    "operator",
    "heapq",
    "bisect",
    "random",
    "copy",
}
_TOOLS |= {"statistics", "decimal", "fractions", "datetime", "json", "sys"}

FunctionDef = _ast.FunctionDef | _ast.AsyncFunctionDef


class NoProgram(Exception):
    """The reply is no Python, however it is read."""


def far(data: dict[str, Any], read: int, write: int, run: Any = exec, build: Any = compile) -> None:
    """The program's process: run setup and program, then do what the tests ask for.

    `data`: `response`, `context` (may be empty), `entry_point` (may be empty) and `setup` (a list of source texts). The
    tests are not known here, and nothing of this process gets to them but plain data.
    """
    side = Side(read, write, {}, open_to_all=True)
    sys.stdout = side
    space = _module()
    side.number(space)
    side.number(lambda names: side.share(space, names))

    def load() -> None:
        setup = [build(text, "<setup>", "exec", dont_inherit=True) for text in data["setup"]]
        trees = program(data["response"], data["context"], data["entry_point"])
        # Before and after: a program may need the setup's classes to be defined, and tests mean those, not the
        # program's own copies.
        for code in (*setup, *(build(tree, "<program>", "exec", dont_inherit=True) for tree in trees), *setup):
            run(code, space)

    side.answer(load)
    side.serve()


def main(data: dict[str, Any], read: int, write: int, run: Any = exec, build: Any = compile) -> None:
    """The tests' process: returns only if every test held. `data`: as `far` gets it, and `tests` (a list of source
    texts).
    """
    side = Side(read, write, {}, open_to_all=False)
    tests = [build(text, "<test>", "exec", dont_inherit=True) for text in data["tests"]]
    side.first()
    space = _module()
    for text in data["setup"]:
        run(build(text, "<setup>", "exec", dont_inherit=True), space)
    theirs = side.remote(0)
    used = [_used(code) for code in tests]
    frame, entry = (
        _tree_of(data["context"].replace("\r\n", "\n")),
        data["entry_point"].split("(")[0].split(".")[0].strip(),
    )
    if frame and (_names(frame) - {entry}) & set().union(*used):
        run(build(frame, "<context>", "exec", dont_inherit=True), space)  # what the task gives, as the task gives it
    space.pop(entry, None)
    own = [name for name, value in space.items() if isinstance(value, type) and value.__module__ == "program"]
    side.share(space, own)
    side.remote(1)(own)
    for name in _asked_for(used, space, entry):
        if name in _TOOLS:
            space[name] = __import__(name)
            continue
        try:
            space[name] = theirs[name]
        except KeyError:
            continue  # then it is a name of the tests' own
    for code in tests:
        run(code, space)


def _module() -> dict[str, Any]:
    """The names of a module of its own, registered: dataclasses and pickle look theirs up."""
    module = type(sys)("program")
    sys.modules["program"] = module
    return module.__dict__


def _used(code: Any) -> set[str]:
    """Every name that a piece of code and the functions in it may look up."""
    return set(code.co_names).union(*(_used(each) for each in code.co_consts if hasattr(each, "co_names")))


def _asked_for(used: list[set[str]], space: dict[str, Any], entry: str) -> list[str]:
    """The names that tests expect of the program. Not those that have a meaning without it: a program's own `abs` would
    judge itself.

    Only where there is no other name to be tested is a name like `sum` the program's; then it has to be in every test.
    """
    usual = sys.modules["builtins"].__dict__
    wanted = {
        name for name in set().union(*used) if name not in space and name not in usual and not name.startswith("__")
    }
    if entry:
        wanted |= {entry}
    elif not wanted - _TOOLS:
        wanted |= {
            name for name in set.intersection(*used) if callable(usual.get(name)) and not isinstance(usual[name], type)
        }
    return sorted(wanted)


def program(response: str, context: str = "", entry_point: str = "") -> list[_ast.Module]:
    """The syntax trees to run in order; raises `NoProgram`."""
    context = context.replace("\r\n", "\n")
    frame = _tree_of(context)
    function = _last_function(frame) if frame else None
    wanted = entry_point.split("(")[0].split(".")[0].strip() or (function.name if function else "")
    for text in readings(response.replace("\r\n", "\n").replace("\ufeff", "")):
        found = _whole(text, frame, wanted) or _continued(text, context, function) or _grafted(text, frame)
        if found:
            return found
    raise NoProgram("the reply holds no program")


# --- the three ways to be a program


def _whole(text: str, frame: _ast.Module | None, wanted: str) -> list[_ast.Module] | None:
    """A program that defines what is wanted; the context's imports and helpers come first."""
    tree = _parsed(text)
    if tree is None or (wanted and wanted not in _names(tree)):
        return None
    return [frame, tree] if frame else [tree]


def _continued(text: str, context: str, function: FunctionDef | None) -> list[_ast.Module] | None:
    """The text that follows the context, as it stands."""
    if function is None:
        return None
    shown = context.rstrip()
    end = (shown.count("\n") + 1, len(shown.rpartition("\n")[2].encode("utf-8", "replace")))
    for glue in ("", "\n"):
        tree = _parsed(context + glue + text)
        same = (
            next(
                (node for node in _functions(tree) if node.name == function.name and node.lineno == function.lineno),
                None,
            )
            if tree
            else None
        )
        if tree and same and (same.end_lineno or 0, same.end_col_offset or 0) > end:
            return [tree]
    return None


def _grafted(text: str, frame: _ast.Module | None) -> list[_ast.Module] | None:
    """The body of the context's last function, however it is indented."""
    function = _last_function(frame) if frame else None
    if frame is None or function is None:
        return None
    for tried in _bodies(text):
        tree = _parsed(tried)
        if tree is None or not tree.body:
            continue
        body, after = list(tree.body), []
        first = body[0]
        if tried is not text and isinstance(first, _ast.If):
            body, after = first.body, body[1:]
        docstring = [
            node for node in function.body[:1] if isinstance(node, _ast.Expr) and isinstance(node.value, _ast.Constant)
        ]
        function.body = [*docstring, *body]
        frame.body.extend(after)
        return [frame]
    return None


def _bodies(text: str) -> Iterator[str]:
    """The text as statements of their own; under an `if`, as it is indented; the same with its first line's indentation
    put back.
    """
    yield text
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return
    text = text.strip("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines]
    if indents[0]:
        yield "if 1:\n" + text
    for width in sorted({4, *indents[1:9]} - {0}):
        yield "if 1:\n" + " " * width + text.lstrip()


# --- readings


def readings(response: str) -> Iterator[str]:
    """Possible readings of the reply, the most literal first."""
    yield response
    text = response.rpartition("</think>")[2]
    if text is not response and text != response:
        yield text
    blocks = [body for language, body in fenced(text) if language in _LANGUAGES]
    if blocks:
        defining = [body for body in blocks if _defines(body)]
        if defining:
            yield "\n".join(defining)
        yield from blocks
        yield text[: min(at for mark in ("```", "~~~") if (at := text.find(mark)) >= 0)]
    yield "\n".join(_definitions(text))
    yield from _indented(text)


def fenced(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a Markdown text as (language, content); the last one may be open."""
    found: list[tuple[str, str]] = []
    fence, language, margin = "", "", 0
    lines: list[str] = []
    for line in text.split("\n"):
        bare = line.strip()
        if not fence:
            if bare.startswith(("```", "~~~")):
                fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
                words = bare[len(fence) :].split()
                language, margin, lines = (
                    words[0].lower().strip("{}.") if words else "",
                    len(line) - len(line.lstrip()),
                    [],
                )
        elif bare.startswith(fence) and not bare.strip(fence[0]):
            found.append((language, "\n".join(lines)))
            fence = ""
        else:
            lines.append(line[margin:] if not line[:margin].strip() else line)
    if fence:
        found.append((language, "\n".join(lines)))
    return found


def _definitions(text: str) -> list[str]:
    """The functions, classes and imports of a text that has prose between them."""
    pieces: list[str] = []
    for line in text.split("\n"):
        if pieces and (not line.strip() or line[0] in " \t)]}"):
            pieces[-1] += "\n" + line
        else:
            pieces.append(line)
    found, at = [], 0
    while at < len(pieces):
        step = 1
        if pieces[at].startswith(_STARTS):
            for end in range(at + 1, min(len(pieces), at + _PIECES) + 1):
                whole = "\n".join(pieces[at:end])
                if _parsed(whole) is not None:
                    found.append(whole)
                    step = end - at
                    break
        at += step
    return found


def _indented(text: str) -> Iterator[str]:
    """Runs of indented lines, the longest first."""
    runs: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line[:1] in (" ", "\t") or not line.strip():
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    for run in sorted(runs, key=len, reverse=True)[:5]:
        if any(line.strip() for line in run):
            yield "\n".join(run)


# --- trees


def _parsed(text: str) -> _ast.Module | None:
    try:
        tree = compile(text, "<program>", "exec", _TREE, dont_inherit=True)
    except _NOT_PYTHON:
        return None
    return tree if isinstance(tree, _ast.Module) else None


def _tree_of(context: str) -> _ast.Module | None:
    """The context as a program, with a body for a signature that has none; `None` if it is no Python."""
    if not context.strip():
        return None
    shown = context.rstrip()
    last = shown.rpartition("\n")[2]
    return _parsed(context) or _parsed(f"{shown}\n{' ' * (len(last) - len(last.lstrip()) + 4)}pass")


def _last_function(tree: _ast.Module) -> FunctionDef | None:
    """The function that the text ends in, which may be a method."""
    node: Any = tree.body[-1] if tree.body else None
    while isinstance(node, _ast.ClassDef):
        node = node.body[-1]
    return node if isinstance(node, FunctionDef) else None


def _functions(tree: _ast.Module) -> Iterator[FunctionDef]:
    """Functions of the module and methods of its classes."""
    waiting: list[_ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _ast.ClassDef):
            waiting.extend(node.body)
        elif isinstance(node, FunctionDef):
            yield node


def _names(tree: _ast.Module) -> set[str]:
    """Names that a program defines at its top."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, FunctionDef | _ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, _ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, _ast.Name))
        elif isinstance(node, _ast.AnnAssign) and isinstance(node.target, _ast.Name):
            found.add(node.target.id)
        elif isinstance(node, _ast.Import | _ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return found


def _defines(text: str) -> bool:
    """True if a block is part of the program: it defines or imports something (a block of example calls does not)."""
    tree = _parsed(text)
    kinds = (FunctionDef, _ast.ClassDef, _ast.Import, _ast.ImportFrom)
    return tree is not None and any(isinstance(node, kinds) for node in tree.body)
