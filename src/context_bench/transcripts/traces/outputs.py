"""Facts read from a tool's output: its line numbers, the files of a search, its exit code, and the place where it was
cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from context_bench.shell.model import ranges_of
from context_bench.transcripts.format import parsed

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


def shown(text: str) -> NumberedLines:
    """Lines of its file that the output of a reading tool shows."""
    lines = text.removesuffix("\n").split("\n")
    cut = _may_be_cut(text) and any(_CUT.match(line) for line in _ends(lines))
    if told := _SHOWING.search(text[:2000]):
        first, last = int(told[1]), int(told[2])
        return NumberedLines(((first, last),) if 0 < first <= last else None, _body(lines), True)
    numbers = _numbers(lines)
    return NumberedLines(
        ranges_of(numbers) if numbers else None,
        lines,
        cut or (_may_be_cut(text) and any(_CUT.match(line) for line in lines if len(line) < 300)),
    )


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


def found(text: str) -> SearchHits:
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
    sign = opened[2].strip(" ") if opened else ""
    numbers: list[int] = []
    # most lines go on with the next number, written as the one before: told without a search
    width = opened.end(1) if opened and opened.start(1) else 0
    due = f"{opened[1]:>{width}}{sign}" if opened and sign else "\n"
    for line in lines[first:]:
        if line.startswith(due):
            numbers.append(int(due[: -len(sign)]))
            due = f"{numbers[-1] + 1:>{width}}{sign}" if numbers[-1] < _LARGEST else "\n"
            continue
        hit = _NUMBERED.match(line)
        if hit and hit[2].strip(" ") == sign and (not numbers or int(hit[1]) > numbers[-1]):
            numbers.append(int(hit[1]))
            due = f"{numbers[-1] + 1:>{width}}{sign}" if numbers[-1] < _LARGEST else "\n"
        elif hit is None and (_CUT.match(line) or not line.strip()):
            continue
        else:
            break
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
