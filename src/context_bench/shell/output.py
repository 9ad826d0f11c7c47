"""Lines shown by the output, against those that the command should have printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from context_bench.shell.files import Tree
from context_bench.shell.git_commands import shown_sides
from context_bench.shell.model import FileLine, LineStream, UnknownLines, all_lines

_ERROR = re.compile(
    r"^[\w./+-]+: .*(?:No such file or directory|Is a directory|Permission denied|[Bb]inary file .*matches|can't "
    r"(?:read|open)|"
    r"cannot (?:open|access|stat)|not found|Not a directory|not in sorted order)"
)
_MARKER = re.compile(
    r"truncat|omitted|elided|\.\.\.|…|clipped|characters? (?:left|more)|more lines|output too long", re.I
)
_NUMBERED = re.compile(r"^\s*(\d{1,7})(?:(?:\s?[:→|│-]|\t|\s\s?)(.*))?$", re.S)
_NAMED = re.compile(r"^(?P<path>[^:\n]+?)(?P<mark>[:-])(?P<number>\d{1,7})(?P=mark)(?:\d{1,5}:)?(?P<text>.*)$", re.S)
_HUNK = re.compile(r"^@@ -(\d{1,7})(?:,(\d{1,7}))? \+\d+(?:,\d+)? @@")
_PATH, _NO, _TEXT, _EOL = (itemgetter(FileLine._fields.index(name)) for name in ("path", "no", "text", "eol"))
_MOST = 20_000
_SHORTEST = 2
_MOST_SPOTS = 200
#: Lines are compared no more often than this to explain one output.
_EFFORT = 2_000_000


@dataclass
class ShownLines:
    """The lines of files an output holds."""

    lines: dict[str, set[int]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    how: str = "output_matched"
    truncated: bool = False
    mismatch: bool = False
    #: Files of which the output is known to show nothing.
    blank: set[str] = field(default_factory=set)

    def add(self, path: str | None, number: int) -> None:
        if path is not None and number:
            self.lines.setdefault(path, set()).add(number)

    def take(self, printed: Iterable[Expected]) -> None:
        """Add all lines of files that the printed ones are made of."""
        for one in printed:
            for origin in one.origins:
                self.add(origin.path, origin.no)


def tidy(text: str) -> str:
    """Text as it is compared: the end of a line and undecodable bytes do not count."""
    if not text.isascii():
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a surrogate that stands for no byte
            raw = text.encode("utf-8", "replace")
        text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    return text.rstrip()


def output_lines(output: str) -> list[str]:
    """The lines of an output, without complaints and trailing blanks."""
    lines = (
        [line.rstrip() for line in output.split("\n")]
        if output.isascii()
        else [tidy(line) for line in output.split("\n")]
    )
    if ": " in output:
        lines = [line for line in lines if not _ERROR.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@dataclass
class Expected:
    """One line a command should print, with the lines of files it is made of."""

    text: str | None
    origins: list[FileLine]


def expected(stream: LineStream) -> list[Expected | UnknownLines]:
    """The lines of a stream; what ends without a newline runs into the next."""
    out: list[Expected | UnknownLines] = []
    glued = False
    for part in stream.parts:
        if isinstance(part, UnknownLines):
            out.append(part)
            glued = False
            continue
        last = out[-1] if out else None
        if glued and isinstance(last, Expected) and last.text is not None and part.text is not None:
            last.text += part.text
            last.origins.append(part)
        else:
            out.append(Expected(part.text, [part]))
        glued = not part.eol
    for one in out:
        if isinstance(one, Expected) and one.text is not None:
            one.text = tidy(one.text.replace("\0", " ") if "\0" in one.text else one.text)
    # blank lines at the end are often cut off an output: they go with the line before them
    while (
        len(out) > 1
        and isinstance(out[-1], Expected)
        and out[-1].text == ""
        and isinstance(before := out[-2], Expected)
    ):
        before.origins += out.pop().origins  # type: ignore[union-attr]
    return out


class OutputReader:
    """Explains one output."""

    def __init__(self, tree: Tree, resolve: dict[str, str], stream: LineStream) -> None:
        self.tree, self.names, self.stream = tree, resolve, stream
        self.effort = _EFFORT
        self.blank: list[str] = []  # lines at the output's end

    @cached_property
    def candidates(self) -> list[str]:
        """The files whose lines the command let through."""
        return self.stream.files()

    @cached_property
    def weak(self) -> set[str | None]:
        """Those of them that it only named."""
        return {part.path for part in self.stream.parts if isinstance(part, UnknownLines) and part.weak}

    def read(self, output: str) -> ShownLines:
        """The lines of files that are in it."""
        lines = output_lines(output)
        self.blank = [""] * (output.count("\n") - output.rstrip().count("\n") - 1)
        if not lines:
            return (self._plainly([""]) if "\n" in output and not output.strip() else None) or ShownLines()
        if (plainly := self._plainly(lines)) is not None:
            return plainly
        wanted = expected(self.stream)
        shown = self._as_expected(wanted, lines)
        if shown is None and len(lines) <= _MOST and len(wanted) <= _MOST:
            shown = self._cut(wanted, lines)
        if shown is None:
            gaps = [one for one in wanted if isinstance(one, UnknownLines)]
            shown = self._by_content([*lines, *self.blank], gaps, self.candidates)
            shown.mismatch = bool(self.candidates) and not any(isinstance(one, UnknownLines) for one in wanted)
        if not shown.truncated and shown.how != "exact":
            shown.unknown.update(set(self.candidates) - self.weak - shown.lines.keys() - shown.blank)
        return shown

    def _plainly(self, lines: list[str]) -> ShownLines | None:
        """The usual case, without the detours of the others: whole lines of known text, and the output is these."""
        parts = self.stream.parts
        if len(parts) < len(lines) or not all_lines(parts):
            return None
        wanted: list[Any] = list(map(_TEXT, parts))
        if None in wanted or not all(map(_EOL, parts[:-1])):
            return None
        together = "\n".join(wanted)
        plain = together.isascii() and "\0" not in together
        texts = [text.rstrip() if plain else tidy(text.replace("\0", " ")) for text in wanted]
        while len(texts) > 1 and not texts[-1]:
            texts.pop()
        if texts != lines:
            return None
        shown = ShownLines(how="exact")
        for path, lines_of in groupby(parts, _PATH):
            if path is not None and (numbers := set(map(_NO, lines_of)) - {0}):
                shown.lines.setdefault(path, set()).update(numbers)
        return shown

    # -- as the command says -------------------------------------------------

    def _fits(self, one: Expected, text: str) -> bool:
        if one.text is not None:
            return one.text == text
        origin = one.origins[0]
        if not origin.path or not origin.no:
            return True
        lines = self.tree.lines(origin.path) or []
        return origin.no <= len(lines) and tidy(lines[origin.no - 1].text or "").strip() in text

    def _as_expected(self, wanted: list[Expected | UnknownLines], lines: list[str]) -> ShownLines | None:
        """The output is what the command prints, with text in between where that is not known."""
        shown = ShownLines()
        at = 0
        gap: list[UnknownLines] = []
        groups = [list(group) for _, group in groupby(wanted, key=type)]
        for group in groups:
            last = group is groups[-1]
            chunk = [one for one in group if isinstance(one, Expected)]
            if not chunk:
                gap = [one for one in group if isinstance(one, UnknownLines)]
                continue
            found = self._locate(chunk, lines, at, bool(gap), last)
            if found is None:
                return None
            self._fill(gap, lines[at:found], shown)
            shown.take(chunk)
            at, gap = found + len(chunk), []
        if gap:
            self._fill(gap, [*lines[at:], *self.blank], shown)
        elif at != len(lines):
            return None
        if not any(isinstance(one, UnknownLines) for one in wanted):
            shown.how = "exact"
        return shown

    def _all_fit(self, chunk: list[Expected], lines: list[str], start: int) -> bool:
        for step, one in enumerate(chunk):
            if not self._fits(one, lines[start + step]):
                self.effort -= step
                return False
        return True

    def _locate(self, chunk: list[Expected], lines: list[str], at: int, floating: bool, last: bool) -> int | None:
        """Start of the chunk at or after `at`."""
        starts: Iterable[int] = (
            [len(lines) - len(chunk)]
            if last and floating
            else range(at, len(lines) - len(chunk) + 1)
            if floating
            else [at]
        )
        for start in starts:
            if self.effort <= 0:
                return None
            if start >= at and start + len(chunk) <= len(lines) and self._all_fit(chunk, lines, start):
                if last and start + len(chunk) != len(lines):
                    continue
                return start
        return None

    def _fill(self, gap: list[UnknownLines], lines: list[str], shown: ShownLines) -> None:
        """Fill in the lines that the command alone did not determine."""
        if not lines or not gap:
            return
        part = self._by_content(lines, gap, list(dict.fromkeys(one.path for one in gap if one.path)))
        shown.blank |= part.blank
        for path, numbers in part.lines.items():
            shown.lines.setdefault(path, set()).update(numbers)
        shown.how = part.how
        shown.unknown |= part.unknown

    def _cut(self, wanted: list[Expected | UnknownLines], lines: list[str]) -> ShownLines | None:
        """The output is a part of what the command prints, or the same in another order."""
        known = [one for one in wanted if isinstance(one, Expected)]
        if len(known) < len(wanted) or any(one.text is None for one in known):
            return None
        if not self.stream.ordered:
            return self._reordered(known, lines)
        texts = [one.text or "" for one in known]
        if (
            texts[: len(lines) - 1] == lines[:-1]
            and len(lines) <= len(texts)
            and texts[len(lines) - 1].startswith(lines[-1])
        ):
            return self._kept(known[: len(lines)])
        printed = frozenset(texts)
        marks = [at for at, line in enumerate(lines) if line not in printed and _MARKER.search(line)]
        if len(marks) != 1:
            return None
        head, tail = lines[: marks[0]], lines[marks[0] + 1 :]
        while head and not head[-1]:
            head.pop()
        tail = tail[next((at for at, line in enumerate(tail) if line), len(tail)) :]
        cut = len(head)
        whole = texts[:cut] == head or (
            texts[: cut - 1] == head[:-1] and cut <= len(texts) and bool(head) and texts[cut - 1].startswith(head[-1])
        )
        rest = len(texts) - len(tail)
        if (
            not whole
            or rest < max(cut - 1, 0)
            or (tail and not (texts[rest + 1 :] == tail[1:] and texts[rest].endswith(tail[0])))
        ):
            return None
        return self._kept([*known[:cut], *known[rest:]])

    def _kept(self, kept: list[Expected]) -> ShownLines:
        shown = ShownLines(truncated=True)
        shown.take(kept)
        return shown

    def _reordered(self, known: list[Expected], lines: list[str]) -> ShownLines | None:
        by_text: dict[str, list[Expected]] = {}
        for one in known:
            by_text.setdefault(one.text or "", []).append(one)
        shown = ShownLines(truncated=len(lines) < len(known))
        for line in dict.fromkeys(lines):
            same = by_text.get(line) or by_text.get(line.removeprefix("./"))
            if not same or (shown.truncated and len(same) > 1 and line.strip() not in ("", "--")):
                return None
            if not (shown.truncated and len(same) > 1):
                shown.take(same)
        return shown

    # -- as the output says --------------------------------------------------

    def _by_content(self, lines: list[str], gap: list[UnknownLines], paths: list[str]) -> ShownLines:
        return (
            self._compared(lines, gap)
            or self._searched(lines, paths)
            or self._hunks(lines)
            or self._matched(lines, paths)
        )

    def _compared(self, lines: list[str], gap: list[UnknownLines]) -> ShownLines | None:
        """Lines of the two files that diff compared, by the numbers in its output."""
        paths = list(dict.fromkeys(one.path for one in gap if one.path))
        sides = next((one.sides for one in gap if one.sides), None)
        if sides is None and len(paths) == 2 and not any(one.weak for one in gap):
            sides = self.tree.lines(paths[0]) or [], self.tree.lines(paths[1]) or []
        found = shown_sides(lines, sides, tidy) if sides is not None else None
        if found is None:
            return None
        known, other = found
        shown = ShownLines(how="output_numbered", unknown={line.path for line in other if line.path and line.no})
        for line in known:
            if line.path not in shown.unknown:
                shown.add(line.path, line.no)
        shown.blank = set(paths) - shown.unknown - set(shown.lines)
        return shown

    def _line(self, path: str, number: int, text: str) -> int | None:
        """The line of the file with this text: `number` (whatever blanks the program put in front of it), or the only
        one there is.
        """
        texts, spots = _compared(self.tree, path)
        text = tidy(text)
        if 1 <= number <= len(texts) and texts[number - 1].lstrip() == text.lstrip():
            return number
        if not text.strip():
            return None
        same = spots.get(text, ())
        return same[0] if len(same) == 1 else None

    def _searched(self, lines: list[str], paths: list[str]) -> ShownLines | None:
        """`path:number:text`, or `number:text` of the one file in question."""
        shown = ShownLines(how="output_numbered")
        only = [path for path in paths if path not in self.weak]
        strangers = 0
        for text in lines:
            named = _NAMED.match(text)
            path = self.names.get(named["path"]) if named else None
            if named and path is None:
                path = _in_tree(self.tree, named["path"])
            numbered = _NUMBERED.match(text)
            if named and path is not None:
                found = self._line(path, int(named["number"]), named["text"])
                if found is not None:
                    shown.add(path, found)
                elif path in paths:  # else a message about a place in it: of a compiler, say, or of a test
                    shown.unknown.add(path)
            elif numbered and len(only) == 1:
                found = self._line(only[0], int(numbered[1]), numbered[2] or "")
                if found is None:
                    strangers += 1
                else:
                    shown.add(only[0], found)
            elif text not in ("", "--"):
                strangers += 1
        if not shown.lines and not shown.unknown:
            return None
        if strangers > len(lines) // 2 and not any(_NAMED.match(text) for text in lines):
            return None
        for path in shown.unknown:
            shown.lines.pop(path, None)
        if strangers and len(only) == 1 and not all(_NAMED.match(text) or text in ("", "--") for text in lines):
            return None
        return shown

    def _hunks(self, lines: list[str]) -> ShownLines | None:
        """A unified diff: the lines of the old side are the repository's, if they are its lines."""
        shown = ShownLines(how="output_numbered")
        path: str | None = None
        number = left = 0
        for text in lines:
            header = re.match(r"^--- (?:a/)?(\S+)", text)
            hunk = _HUNK.match(text)
            if header and left <= 0:
                path = _in_tree(self.tree, header[1])
            elif hunk:
                number, left = int(hunk[1]), int(hunk[2] or 1)
            elif path is not None and left > 0 and (text[:1] in (" ", "-") or not text):
                found = self._line(path, number, text[1:])
                if found == number:
                    shown.add(path, number)
                number, left = number + 1, left - 1
        return shown if shown.lines else None

    def _matched(self, lines: list[str], paths: list[str]) -> ShownLines:
        """Runs of lines of the output that stand in one place of the files in question."""
        shown = ShownLines()
        names = list(dict.fromkeys(paths))[:50]
        known = {path: _compared(self.tree, path) for path in names}
        blobs = {path: texts for path, (texts, _) in known.items()}
        at = 0
        after: dict[str, int] = {}
        while at < len(lines):
            if self.effort <= 0:
                shown.unknown.update(path for path in names if path not in self.weak)
                break
            if not lines[at].strip():
                at += 1
                continue
            starts = [
                (path, number - 1)
                for path, (_, where) in known.items()
                for number in where.get(lines[at], ())[:_MOST_SPOTS]
            ]
            length, spots = _longest(lines, at, starts[:_MOST_SPOTS], blobs)
            self.effort -= (length + 1) * len(starts)
            if not length:
                at += 1
                continue
            if len(spots) > 1:
                later = [spot for spot in spots if spot[0] in after and spot[1] == after[spot[0]]]
                spots = later or spots
            solid = sum(1 for text in lines[at : at + length] if text.strip())
            path, start = spots[0]
            if len(spots) > 1:
                shown.unknown.update(path for path, _ in spots if path not in self.weak)
            elif path in self.weak and solid < _SHORTEST:
                pass
            else:
                for number in range(start + 1, start + length + 1):
                    shown.add(path, number)
                after[path] = start + length
            at += length
        for path in shown.unknown:
            shown.lines.pop(path, None)
        self._bridge(lines, shown, blobs)
        return shown

    def _bridge(self, lines: list[str], shown: ShownLines, blobs: dict[str, list[str]]) -> None:
        """Blank lines at the edge of a run count where the output has them at the same place."""
        for path, numbers in shown.lines.items():
            texts = blobs[path]
            picked = sorted(numbers)
            self.effort -= len(picked) * len(lines)
            if self.effort <= 0:
                return
            matcher = SequenceMatcher(None, [texts[number - 1] for number in picked], lines, autojunk=False)
            for block in matcher.get_matching_blocks()[:1]:
                low, first = block.b, picked[block.a] if block.size else 0
                while block.size and low > 0 and first > 1 and not lines[low - 1] and not texts[first - 2]:
                    low, first = low - 1, first - 1
                    numbers.add(first)


def _longest(
    lines: list[str], at: int, spots: list[tuple[str, int]], blobs: dict[str, list[str]]
) -> tuple[int, list[tuple[str, int]]]:
    """The longest run of the output from `at` on that stands in a file, and where it does."""
    best = 0
    found: list[tuple[str, int]] = []
    for path, start in spots:
        texts = blobs[path]
        length = 0
        while at + length < len(lines) and start + length < len(texts) and lines[at + length] == texts[start + length]:
            length += 1
        while length and not lines[at + length - 1] and at + length < len(lines):
            length -= 1
        if length > best:
            best, found = length, []
        if length == best and best:
            found.append((path, start))
    return best, found


def _compared(tree: Tree, path: str) -> tuple[list[str], dict[str, list[int]]]:
    """The lines of a file as they are compared, and the numbers of those with each text; made once for each file."""
    lines = tree.lines(path) or []
    known = tree.compared.get(path)
    if known is None or known[0] is not lines:
        texts = [tidy(line.text or "") for line in lines]
        spots: dict[str, list[int]] = {}
        for number, text in enumerate(texts, 1):
            spots.setdefault(text, []).append(number)
        known = tree.compared[path] = (lines, texts, spots)
    return known[1], known[2]


def _in_tree(tree: Tree, name: str) -> str | None:
    name = name.replace("\\", "/").removeprefix("./")
    return name if name in tree.paths else None
