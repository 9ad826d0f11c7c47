"""Words of a shell command: quoting, variables, substitutions, braces and globs, from tree-sitter's nodes to
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from context_bench.shell.files import Files
from context_bench.shell.model import UNKNOWN, Budget, give_up_if
from context_bench.shell.patterns import glob

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_WORDS = 2000
#: Steps that a word counts for: it is read, and looked for among the files.
_WORK = 400
_SPECIAL = re.compile(r"([\\*?\[\]{},~])")
_BRACE = re.compile(r"\\.|[{},]", re.S)
_RANGE = re.compile(r"\d{1,6}\.\.\d{1,6}")
_IN_SUM = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?")
_SUM = re.compile(r"\d{1,9}(?:[-+*]\d{1,9}){0,8}")
_LONGEST_SUM = 1000
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b", "0": UNKNOWN}


_RESERVED = {
    "case", "coproc", "declare", "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if", "in", "local", "readonly",  # noqa: E501
    "select", "then", "time", "typeset", "unset", "unsetenv", "until", "while",
}  # fmt: skip
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_WORD = r"""(?:[A-Za-z0-9_./][A-Za-z0-9_./,:+-]*|-[A-Za-z0-9_./,:+=-]*|'[\x20-\x26\x28-\x7e]*'|"[\x20\x23\x25-\x5b\x5d-\x5f\x61-\x7e]*")"""  # noqa: E501
_PLAIN = re.compile(rf"{_NAME}(?: {_WORD})*")
_PLAIN_WORD = re.compile(_WORD)


def plain_words(text: str) -> list[str] | None:
    """The words of a single command in which nothing is to be expanded, redirected or joined; `None` for all else.

    Most of what agents run is of this kind, and needs no parser; where it answers, the parser gives the same words.
    """
    if not _PLAIN.fullmatch(text) or "xU" in text:
        return None
    name, blank, rest = text.partition(" ")
    if name in _RESERVED:
        return None
    return (
        [name, *(word[1:-1] if word[0] in "'\"" else word for word in _PLAIN_WORD.findall(rest))] if blank else [name]
    )


class Words:
    """Expands words; variables and what `$( )` gives come from the shell that runs."""

    def __init__(
        self, files: Files, variables: dict[str, str], run: Callable[[Node], str], pipe: Callable[[Node], str]
    ) -> None:
        self.files, self.variables, self.run, self.pipe = files, variables, run, pipe
        self.budget = files.budget

    def args(self, nodes: list[Node]) -> list[str]:
        """All arguments the words give."""
        self.budget.step(_WORK * len(nodes))
        return [word for node in nodes for word in self.fields(node)]

    def one(self, node: Node) -> str:
        """A word where no splitting takes place: an assignment, a redirection."""
        return _unquoted("".join(text for text, _ in self._pieces(node)))

    def pattern(self, node: Node) -> str:
        """A word as a pattern: what was quoted in it keeps a backslash."""
        return "".join(text for text, _ in self._pieces(node))

    def fields(self, node: Node) -> list[str]:
        """The arguments one word gives."""
        parts: list[list[str]] = [[]]
        for text, splits in self._pieces(node):
            if not splits:
                parts[-1].append(text)
                continue
            words = text.split(None, _MOST_WORDS)[:_MOST_WORDS]
            self.budget.make(0, len(words))
            parts[-1] += words[:1]
            parts += [[word] for word in words[1:]]
        fields = ["".join(one) for one in parts]
        if fields == [""] and node.type in ("simple_expansion", "expansion", "command_substitution"):
            return []
        made: list[str] = []
        for field in fields[:_MOST_WORDS]:
            for braced in self._braced(field):
                made += self._globbed(braced)
            if len(made) >= _MOST_WORDS:
                break
        if len(made) > 1:
            self.budget.make(sum(map(len, made[:_MOST_WORDS])), len(made))
            self.budget.step(_WORK * len(made))
        return made[:_MOST_WORDS]

    def _braced(self, word: str) -> list[str]:
        if "{" not in word:
            return [word]
        try:
            return _braces(word, self.budget)[:_MOST_WORDS]
        except _TooMany:
            self.budget.over = True
            return [UNKNOWN]

    def _globbed(self, pattern: str) -> list[str]:
        if UNKNOWN in pattern or not re.search(r"(?<!\\)[*?\[]", pattern) or self.files.tree is None:
            return [_unquoted(pattern)]
        fixed = re.split(r"(?<!\\)[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        lead = _unquoted(fixed)
        path = self.files.resolve(lead) if lead else self.files.resolve("/" if pattern.startswith("/") else ".")
        if path is None:
            return [_unquoted(pattern)]
        rest = pattern[len(fixed) :].lstrip("/") if fixed else pattern.lstrip("/")
        compiled = glob(rest.rstrip("/").replace("**", "*"))
        depth = rest.rstrip("/").count("/") + 1
        parts = rest.split("/")
        names: dict[str, None] = {}
        for inside, _ in self.files.inside(path):
            inner = inside.split("/")
            if len(inner) < depth or any(
                one.startswith(".") and not wanted.startswith(".") for one, wanted in zip(inner, parts, strict=False)
            ):
                continue
            name = "/".join(inner[:depth])
            if name not in names and compiled.match(name):
                names[name] = None
        head = lead + "/" if fixed else "/" if pattern.startswith("/") else ""
        return [head + name for name in sorted(names)] or [_unquoted(pattern)]

    def _pieces(self, node: Node) -> list[tuple[str, bool]]:
        """(text with quoted characters behind a backslash, whether it is split at blanks)."""
        kind = node.type
        if kind in ("string", "translated_string"):
            return [(self._string(node), False)]
        if kind in ("concatenation", "command_name"):
            return self._joined(node)
        text = _text(node)
        if kind in (
            "word",
            "variable_name",
            "number",
            "extglob_pattern",
            "regex",
            "special_variable_name",
            "heredoc_start",
        ):
            if kind == "number" and node.named_child_count:
                return [(UNKNOWN, False)]
            return [(text.replace("\\\n", ""), False)]
        if kind == "raw_string":
            return [(_quoted(text[1:-1]), False)]
        if kind == "ansi_c_string":
            return [(_quoted(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], UNKNOWN), text[2:-1])), False)]
        if kind == "brace_expression":
            return [(text, False)]
        if kind in ("simple_expansion", "expansion"):
            return [(self._held(self._variable(node)), True)]
        if kind == "command_substitution":
            return [(self._held(self.run(node)), True)]
        if kind == "process_substitution":
            return [(self.pipe(node), False)]
        if kind == "arithmetic_expansion":
            return [(self._sum(text[3:-2]), False)]
        return [(UNKNOWN, False)]

    def _held(self, text: str) -> str:
        """A value in the place of its name, quoted."""
        self.budget.make(len(text))
        return _quoted(text)

    def _joined(self, node: Node) -> list[tuple[str, bool]]:
        """Children side by side, with what stands between them."""
        out: list[tuple[str, bool]] = []
        at = start = node.start_byte
        written = node.text or b""
        for child in node.children:
            if child.start_byte > at:
                out.append((_meant(written[at - start : child.start_byte - start]), False))
            out += self._pieces(child) if child.is_named else [(_text(child), False)]
            at = child.end_byte
        return out

    def _string(self, node: Node) -> str:
        """A string in double quotes: its text is what lies between its expansions."""
        out = []
        start, written = node.start_byte, node.text or b""
        at = start + 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            out.append(_quoted(_double(_meant(written[at - start : child.start_byte - start]))))
            out += [text for text, _ in self._pieces(child)]
            at = child.end_byte
        out.append(_quoted(_double(_meant(written[at - start : -1]))))
        return "".join(out)

    def _variable(self, node: Node) -> str:
        text = _text(node)
        plain = re.fullmatch(r"\$\{?([A-Za-z_]\w*|[0-9@*#?$!])\}?", text)
        if plain:
            return self.value(plain[1])
        argument = re.fullmatch(r"\$(\d)(\w+)", text)
        if argument:  # the parser takes `$2p` for one name
            return self.value(argument[1]) + argument[2]
        default = re.fullmatch(r"\$\{([A-Za-z_]\w*):?-([\w./-]*)\}", text)
        if default:
            return self.variables.get(default[1], "") or default[2]
        trimmed = re.fullmatch(r"\$\{([A-Za-z_]\w*)(%%?|##?)([^{}$`\"']*)\}", text)
        if trimmed and trimmed[1] in self.variables and UNKNOWN not in self.variables[trimmed[1]]:
            return _trim(self.variables[trimmed[1]], trimmed[2], trimmed[3], self.budget)
        return UNKNOWN

    def value(self, name: str) -> str:
        if name == "PWD":
            return self.files.cwd or UNKNOWN
        return self.variables.get(name, UNKNOWN)

    def _sum(self, text: str) -> str:
        """The value of a sum or product of whole numbers and variables."""
        values = [self.variables.get(found[1], UNKNOWN) for found in _IN_SUM.finditer(text)]
        self.budget.make(sum(map(len, values)))
        each = iter(values)
        filled = _IN_SUM.sub(lambda _: next(each), text)
        if len(filled) > _LONGEST_SUM:
            return UNKNOWN
        tokens = re.findall(r"\d+|[-+*]", filled)
        if "".join(tokens) != re.sub(r"\s", "", filled) or not _SUM.fullmatch("".join(tokens)):
            return UNKNOWN
        total, product, sign = 0, int(tokens[0]), 1
        for operator, number in zip(tokens[1::2], tokens[2::2], strict=True):
            if operator == "*":
                product *= int(number)
            else:
                total, product, sign = total + sign * product, int(number), 1 if operator == "+" else -1
        return str(total + sign * product)


def spelled(text: str) -> bytes:
    """Shell text in ASCII: the grammar's own scanner breaks the process on some other characters."""
    return re.sub(r"[^\x00-\x7f]", lambda found: f"xU{ord(found[0]):x}Ux", text).encode("ascii")


def _meant(text: bytes) -> str:
    if b"xU" not in text:
        return text.decode("ascii", "replace")
    return re.sub(
        r"xU([0-9a-f]{2,6})Ux", lambda found: chr(min(int(found[1], 16), 0x10FFFF)), text.decode("ascii", "replace")
    )


def text_of(node: Node) -> str:
    """The text of a node as it was written."""
    return _meant(node.text or b"")


_text = text_of


def _quoted(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _double(text: str) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.S) if "\\" in text else text


def _trim(value: str, operator: str, pattern: str, budget: Budget) -> str:
    compiled = glob(pattern, stars_cross=True)
    give_up_if("**/" in pattern)
    budget.step(4 * len(value) * (len(value) + len(pattern)))
    cuts = range(len(value) + 1)
    if operator[0] == "#":
        fits = [cut for cut in cuts if compiled.match(value[:cut])]
        return value[(max(fits) if len(operator) == 2 else min(fits)) :] if fits else value
    fits = [cut for cut in cuts if compiled.match(value[cut:])]
    return value[: (min(fits) if len(operator) == 2 else max(fits))] if fits else value


class _TooMany(Exception):
    """A word gives more words than anyone looks at."""


def _braces(word: str, budget: Budget) -> list[str]:
    """Brace expansion; a quoted brace is behind a backslash. `_TooMany` before there are too many."""
    marks = _brace_marks(word)
    if not marks:
        return [word]
    outer: list[
        tuple[list[str], list[str]]
    ] = []  # of each open brace: the alternatives before it, and what stands before it
    done: list[str] = []  # alternatives of the innermost brace
    words = [""]  # the alternative that is read
    pending: list[str] = []
    last = 0
    for at in sorted(marks):
        mark = marks[at]
        pending.append(word[last:at])
        last = at + 1
        if mark == "itself":
            pending.append("\\" + word[at])
            continue
        words = _side_by_side(words, ["".join(pending)], budget)
        pending.clear()
        if mark == "{":
            outer.append((done, words))
            done, words = [], [""]
        elif mark == ",":
            done += words
            words = [""]
        elif mark == "}":
            inner = done + words
            done, words = outer.pop()
            words = _side_by_side(words, inner, budget)
        else:
            words = _side_by_side(words, _steps(mark), budget)
            last = word.index("}", at) + 1
        if len(done) + len(words) > _MOST_WORDS + 1:
            raise _TooMany
    pending.append(word[last:])
    return _side_by_side(words, ["".join(pending)], budget)


def _side_by_side(words: list[str], ends: list[str], budget: Budget) -> list[str]:
    if ends == [""]:
        return words
    if len(words) * len(ends) > _MOST_WORDS + 1:
        raise _TooMany
    budget.step(8 * len(words) * len(ends) + len(ends) * sum(map(len, words)) + len(words) * sum(map(len, ends)))
    return [one + end for one in words for end in ends]


def _brace_marks(word: str) -> dict[int, str]:
    """The braces and commas of a word that mean something, by place: "{", ",", "}", "itself", or the inside of a
    range.
    """
    marks: dict[int, str] = {}
    open_: list[tuple[int, list[int]]] = []
    for found in _BRACE.finditer(word):
        at, char = found.start(), found[0]
        if char == "{":
            if word[at - 1 : at] == "$":
                return {}
            open_.append((at, []))
        elif char == "," and open_:
            open_[-1][1].append(at)
        elif char == "}" and open_:
            start, commas = open_.pop()
            if commas:
                marks.update({start: "{", at: "}", **dict.fromkeys(commas, ",")})
            elif at - start < 16 and _RANGE.fullmatch(inner := word[start + 1 : at]):
                marks[start] = inner
            else:
                marks[start] = marks[at] = "itself"
    return marks


def _steps(inner: str) -> list[str]:
    """The numbers of `{low..high}`."""
    low, _, high = inner.partition("..")
    if abs(int(high) - int(low)) > _MOST_WORDS:
        raise _TooMany
    if int(low) > int(high):
        return [str(number) for number in range(int(low), int(high) - 1, -1)]
    width = max(len(low), len(high)) if low.startswith("0") or high.startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(low), int(high) + 1)]
