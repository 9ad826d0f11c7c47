"""Names of tools and of their arguments: `tools.toml`, and rows of the user's that come before it.

Beside them the facts that a tool's output states: its line numbers, the files of a search, its exit code, and the place
where it was cut.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.machine import file_text
from context_bench.core.numbers import MOST_LINE, whole
from context_bench.core.templates import load_toml
from context_bench.shell.model import ranges_of
from context_bench.transcripts.format import parsed
from context_bench.transcripts.trace import Ranges

ToolKind = Literal["read", "search", "list", "edit", "exec", "none"]
_KINDS = ("read", "search", "list", "edit", "exec", "none")
#: Stands for the end of a file whose length nobody told; every measure cuts ranges at the file's end.
END = MOST_LINE


def _line(value: Any) -> int | None:
    """The number of a line in an argument; one that no file reaches is the last there can be."""
    found = whole(value)
    return None if found is None else max(-MOST_LINE, min(found, MOST_LINE))


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """Arguments that say which lines: `pair`, or `start` with `count` or `end`."""

    start: str = ""
    count: str = ""
    end: str = ""
    pair: str = ""
    base: int = 1

    def lines(self, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
        """First and last line, `None` if these arguments are not there."""
        if self.pair:
            pair = arguments.get(self.pair)
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                return None
            first, last = _line(pair[0]), _line(pair[1])
            return None if first is None else _ordered(first + 1 - self.base, last)
        first, last, count = (_line(arguments.get(key)) if key else None for key in (self.start, self.end, self.count))
        if first is None and last is None and count is None:
            return None
        begin = max(1, (first if first is not None else self.base) + 1 - self.base)
        if self.count:
            return begin, (begin + count - 1 if count is not None and count > 0 else END)
        return _ordered(begin, last)


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One row of the table."""

    kind: ToolKind
    paths: tuple[str, ...] = ()
    ranges: tuple[RangeKeys, ...] = ()
    whole: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    cwd: tuple[str, ...] = ()
    patch: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    by: str = ""
    kinds: Mapping[str, ToolKind] = field(default_factory=dict)

    def kind_of(self, arguments: Any) -> ToolKind:
        """Kind of this call: the row's, or the one that the argument named by `by` says."""
        if self.by and isinstance(arguments, Mapping):
            told = arguments.get(self.by)
            return self.kinds.get(told, "none") if isinstance(told, str) else "none"
        return self.kind

    def paths_of(self, arguments: Any) -> list[str]:
        """The paths the call names; a list of patterns is not expanded here."""
        if not isinstance(arguments, Mapping):
            return []
        for key in self.paths:
            value = arguments.get(key)
            if isinstance(value, str) and value:
                return [value]
            if isinstance(value, list) and value:
                return [item for item in value if isinstance(item, str) and item]
        return []

    def lines_of(self, arguments: Any) -> Ranges:
        """The lines the call asks for."""
        if not isinstance(arguments, Mapping) or any(arguments.get(key) is True for key in self.whole):
            return "all"
        for keys in self.ranges:
            if (lines := keys.lines(arguments)) is not None:
                return "all" if lines == (1, END) else (lines,)
        return "all"

    def first(self, keys: tuple[str, ...], arguments: Any) -> Any:
        """The first of these arguments that is there; a text or list that stands for all arguments is itself the
        answer.
        """
        if not isinstance(arguments, Mapping):
            return arguments
        return next((arguments[key] for key in keys if arguments.get(key)), None)


@dataclass(frozen=True)
class Vocabulary:
    """Tool names → rows."""

    rows: Mapping[str, ToolRow]

    def find(self, tool: str) -> tuple[ToolRow | None, bool]:
        """The row of a tool, and whether it is another server's (its results are not known to be as ours are)."""
        if (row := self.rows.get(tool)) is not None:
            return row, False
        last = (
            tool.rsplit("__", 1)[-1] if tool.startswith("mcp__") else tool.rsplit(".", 1)[-1] if "." in tool else None
        )
        return (self.rows.get(last), True) if last else (None, False)

    @classmethod
    def load(cls, extra: str | Path | Mapping[str, Any] | None = None) -> Vocabulary:
        """The built-in table, behind rows of `extra` (a TOML file, or its contents). `BadInput` names what is wrong in
        it.
        """
        if extra is None:
            return _builtin()
        if isinstance(extra, Mapping):
            return cls({**_builtin().rows, **_rows(extra, "tools")})
        try:
            document = load_toml(file_text(extra))
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read the table of tools {extra}: {error}") from error
        return cls({**_builtin().rows, **_rows(document, str(extra))})


@functools.cache
def _builtin() -> Vocabulary:
    text = Path(__file__).with_name("tools.toml").read_text("utf-8")
    return Vocabulary(_rows(load_toml(text), "tools.toml"))


def _rows(document: Mapping[str, Any], origin: str) -> dict[str, ToolRow]:
    rows: dict[str, ToolRow] = {}
    tables = document.get("tools")
    if not isinstance(tables, list):
        raise BadInput(f"{origin}: no rows; expected [[tools]] with `kind` and `names`")
    for number, table in enumerate(tables, 1):
        row, names = _row(table, f"{origin}, row {number}")
        for name in names:
            rows.setdefault(name, row)
    return rows


def _row(table: Any, origin: str) -> tuple[ToolRow, list[str]]:
    if not isinstance(table, Mapping):
        raise BadInput(f"{origin}: not a table")
    known = {"kind", "names", "paths", "ranges", "whole", "command", "cwd", "patch", "each", "by", "kinds"}
    if unknown := sorted(set(table) - known):
        raise BadInput(f"{origin}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    kinds = table.get("kinds", {})
    for kind in [table.get("kind"), *(kinds.values() if isinstance(kinds, Mapping) else [None])]:
        if kind not in _KINDS:
            raise BadInput(f"{origin}: kind is {kind!r}, expected one of {', '.join(_KINDS)}")
    lists = {
        key: _words(table.get(key, []), f"{origin}: {key}")
        for key in ("names", "paths", "whole", "command", "cwd", "patch", "each")
    }
    names = lists.pop("names")
    if not names:
        raise BadInput(f"{origin}: `names` is empty")
    by = table.get("by", "")
    ranges = tuple(_keys(entry, origin) for entry in table.get("ranges", []))
    return ToolRow(
        table["kind"], ranges=ranges, by=by if isinstance(by, str) else "", kinds=dict(kinds), **lists
    ), list(names)


def _words(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadInput(f"{where} is {value!r}, expected a list of names")
    return tuple(value)


def _keys(entry: Any, origin: str) -> RangeKeys:
    try:
        keys = RangeKeys(**entry)
    except TypeError:
        raise BadInput(
            f"{origin}: a range is {entry!r}, expected {{start, count}}, {{start, end}} or {{pair}}, and base"
        ) from None
    if keys.base not in (0, 1) or not (keys.pair or keys.start):
        raise BadInput(f"{origin}: a range needs `pair` or `start`, and a base of 0 or 1")
    return keys


def _ordered(first: int, last: int | None) -> tuple[int, int]:
    """First and last line in order; a last line of -1 (or none) is the end of the file."""
    first = max(1, first)
    if last is None or last < 1:
        return first, END
    return min(first, last), max(first, last)


#: Lines as the tools print them: a number, right-aligned or not, then an arrow, a tab, a colon or a bar.
_NUMBERED = re.compile(r"[ \t]{0,12}(\d{1,8})(→|\t|: ?| ?\| ?)")
_CUT = re.compile(
    r"\s{0,20}(?:[.…\[<(*-]{1,6}\s?|Warning: |IMPORTANT: |\(?Results? "
    r")[^\n]{0,200}(?:truncat|clipped|elided|omitted|more lines not shown)",
    re.I,
)
_CUT_WORDS = ("truncat", "clipped", "elided", "omitted", "more lines not shown")
_SHOWING = re.compile(r"Showing lines (\d{1,8})-(\d{1,8})")
_FAILED = re.compile(
    r"No such file or directory|does not exist|cannot find|File not found|ENOENT|EISDIR|EACCES|Permission "
    r"denied|[Ii]s a directory|"
    r"not found|<tool_use_error>|^Error|^ERROR",
    re.M,
)
_MATCH = re.compile(r"((?:[A-Za-z]:[\\/])?[^:\n\0]{1,1000}):(\d{1,8})(?::|$)")
_LINE_ONLY = re.compile(r"\s{0,8}(?:Line |L)?(\d{1,8})[:-]")
_HEADING = re.compile(r"(?:File: )?((?:[A-Za-z]:[\\/])?[^:\n\0]{1,1000}?):?")
_HEADED = re.compile(r"\s{0,8}(?:Line |L)(\d{1,8})[:-]|(\d{1,8})[:-]")
_CONTEXT = re.compile(r"-(\d{1,8})-")
_FOUND_IN = re.compile(r"Found \d+ match(?:es)? for .* in (\S+):")
#: What the output of a command begins with where a program put something around it.
_WRAPPINGS = ("<returncode>", "Chunk ID: ", "Exit code", "Wall time: ", "Output: ")
#: Lines before the first number, and after the last, that an output may have (headers, notes of the program).
_FRINGE = 12
#: The last number that `_NUMBERED` takes for one is the one after this.
_LARGEST = 99_999_998


@dataclass(frozen=True, slots=True)
class NumberedLines:
    """Lines of one file that an output shows. `ranges`: by its own numbers (`None`: it has none). `lines`: its text,
    line by line.
    """

    ranges: tuple[tuple[int, int], ...] | None
    lines: list[str]
    cut: bool


@dataclass(slots=True)
class SearchHits:
    """Result of a search: lines by file (paths as printed), and files that it only names.

    `relative`: paths are below the folder searched.
    """

    lines: dict[str, list[int]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    relative: bool = False
    cut: bool = False


def shown_lines(text: str) -> NumberedLines:
    """Lines of its file that the output of a reading tool shows."""
    lines = text.removesuffix("\n").split("\n")
    if told := _SHOWING.search(text[:2000]):
        first, last = int(told[1]), int(told[2])
        return NumberedLines(((first, last),) if 0 < first <= last else None, _body(lines), True)
    numbers = _numbers(lines)
    noted = chain(_ends(lines), (line for line in lines if len(line) < 300)) if _may_be_cut(text) else ()
    return NumberedLines(ranges_of(numbers) if numbers else None, lines, any(map(_CUT.match, noted)))


def _may_be_cut(text: str) -> bool:
    """True if a note that something was cut can be in it: a look at each line is much dearer."""
    low = text.lower()
    return any(word in low for word in _CUT_WORDS)


def before_cut(lines: list[str]) -> int:
    """Number of lines before the note that says that the output was cut."""
    return next((number for number, line in enumerate(lines) if _CUT.match(line)), len(lines))


def looks_failed(text: str) -> bool:
    """True if a short output without line numbers is an error message."""
    if len(text) >= 2000:
        return False
    lines = text.strip().split("\n", 6)
    return len(lines) <= 5 and not _NUMBERED.match(lines[0]) and bool(_FAILED.search(text))


def search_hits(text: str) -> SearchHits:
    """Read the output of a search, in any of the shapes that the tools print."""
    result, loose = SearchHits(), list[tuple[str, str]]()
    heading: str | None = None
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if _CUT.match(line):
            result.cut = True
        elif heading is not None and (number := _HEADED.match(line)):
            result.lines.setdefault(heading, []).append(int(number[1] or number[2]))
        elif told := _FOUND_IN.fullmatch(line):
            heading = told[1]
        elif hit := _MATCH.match(line):
            result.lines.setdefault(hit[1], []).append(int(hit[2]))
            heading = None
        elif line.strip() in ("", "--", "---"):
            continue
        elif _path_like(line) and not _CONTEXT.search(line) and (title := _HEADING.fullmatch(line.strip())):
            heading = title[1]
            result.relative |= line.startswith("File: ")
            result.files.append(heading)
        else:
            loose.append((heading or "", line))
    _context(result, loose)
    result.files = [path for path in dict.fromkeys(result.files) if path not in result.lines]
    return result


def line_numbers(text: str) -> list[int]:
    """The numbers of a search in one file, which prints no names."""
    return [int(hit[1]) for line in text.split("\n") if (hit := _LINE_ONLY.match(line))]


def numbered(text: str) -> list[tuple[int, str]]:
    """The lines of an output that begin with their number, with it."""
    hits = ((_NUMBERED.match(line), line) for line in text.split("\n"))
    return [(int(hit[1]), line[hit.end() :]) for hit, line in hits if hit]


def unwrapped(text: str) -> tuple[str, int | None, bool]:
    """A command's output without what the program puts around it, its exit code if that says it, and whether it was
    cut.
    """
    if text.startswith("{"):
        value = parsed(text)
        if isinstance(value, dict) and isinstance(value.get("output"), str):
            meta = value.get("metadata")
            code = meta.get("exit_code") if isinstance(meta, dict) else value.get("returncode")
            return value["output"], code if isinstance(code, int) else None, False
    if not text.startswith(_WRAPPINGS) and "with exit code" not in text[-2000:]:
        return text, None, False
    if told := re.match(r"<returncode>(-?\d{1,10})</returncode>", text):
        body = re.search(r"<(output|output_head)>\n?(.*?)</\1>", text, re.S)
        return (body[2] if body else ""), int(told[1]), bool(body and body[1] == "output_head")
    head = text[:2000]
    if re.match(r"(?:Chunk ID: |Exit code: |Wall time: )", head) and (
        mark := re.search(r"^Output:(?:\n|$)", head, re.M)
    ):
        code_text = re.search(r"^(?:Exit code:|Process exited with code) (-?\d{1,10})", head[: mark.start()], re.M)
        body_text = text[mark.end() :]
        cut = (
            bool(re.match(r"(?:Warning: truncated|Total output lines: )", body_text))
            or "truncated output" in head[: mark.start()]
        )
        return body_text, int(code_text[1]) if code_text else None, cut
    if told := re.match(r"Exit code (-?\d{1,10})(?:\n|$)", text):
        return text[told.end() :], int(told[1]), False
    if text.startswith("Output: "):
        tail = re.search(r"\nExit Code: (-?\d{1,10})(?:\n.{0,200})?\s*$", text[-400:], re.S)
        body_text = text[len("Output: ") : len(text) - len(tail[0]) if tail else None]
        return ("" if body_text == "(empty)" else body_text), int(tail[1]) if tail else None, False
    if told := re.search(
        r"\n?\[(?:The command completed|Command finished) with exit code (-?\d{1,10})\.?\]", text[-2000:]
    ):
        return text[: max(0, len(text) - 2000) + told.start()], int(told[1]), False
    return text, None, False


def _context(result: SearchHits, loose: list[tuple[str, str]]) -> None:
    """Lines around a match (`path-12-text`): those of files that have a match."""
    for heading, line in loose:
        for mark in _CONTEXT.finditer(line, 0, 1200):
            if line[: mark.start()] in result.lines:
                result.lines[line[: mark.start()]].append(int(mark[1]))
                break
        else:
            if not heading and _path_like(line):
                result.files.append(line.strip())


def _numbers(lines: list[str]) -> list[int]:
    """The numbers in front of the lines, if it is really numbered: from the first to the last such line all are, and
    they grow.
    """
    first = next((index for index, line in enumerate(lines[:_FRINGE]) if _NUMBERED.match(line)), None)
    if first is None:
        return []
    opened = _NUMBERED.match(lines[first])
    assert opened is not None
    sign, width, number = opened[2].strip(" "), opened.end(1), int(opened[1])
    # most lines go on with the next number, written as the one before: told without a search
    due = map(f"%{width}d{sign}".__mod__, range(number, _LARGEST + 1))
    straight = sum(takewhile(bool, map(str.startswith, islice(lines, first, None), due)))
    numbers = list(range(number, number + straight))
    number += straight
    for line in lines[first + straight :]:
        if number > _LARGEST or not line.startswith(f"{number:>{width}}{sign}"):
            hit = _NUMBERED.match(line)
            if hit and hit[2].strip(" ") == sign and (not numbers or int(hit[1]) > numbers[-1]):
                number = int(hit[1])
            elif hit is None and (_CUT.match(line) or not line.strip()):
                continue
            else:
                break
        numbers.append(number)
        number += 1
    rest = len(lines) - first - len(numbers)
    return numbers if numbers and numbers[0] > 0 and rest <= max(_FRINGE, len(numbers)) else []


def _body(lines: list[str]) -> list[str]:
    """The lines after a header that ends in a line of dashes."""
    start = next((index for index, line in enumerate(lines[:_FRINGE]) if line.startswith("--- ")), -1)
    return lines[start + 1 :]


def _ends(lines: list[str]) -> list[str]:
    return lines[:_FRINGE] + lines[-_FRINGE:]


def _path_like(line: str) -> bool:
    """True if a line can be the name of a file: one word with a dot or a slash, or one that says so."""
    bare = line.strip().removeprefix("File: ").removesuffix(":")
    return (
        bool(bare)
        and len(bare) < 1000
        and not re.search(r"[\s\"'<>|*?()]", bare)
        and ("/" in bare or "\\" in bare or "." in bare[1:])
    )
