"""Patches as agents write them: unified diffs, and `*** Begin Patch` with hunks that name no lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: The line of the old file it says to begin at (0: none), and its lines with their signs.
Hunk = tuple[int, list[tuple[str, str]]]

_FILE = re.compile(r"\*\*\* (Update|Add|Delete) File: (.+)")
_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_HEAD = re.compile(r"(---|\+\+\+) (?:[ab]/)?([^\t\n]+)")
_RENAME = re.compile(r"rename (from|to) (.+)")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")


@dataclass(slots=True)
class Part:
    """What a patch does to one file. No `source`: it is new; no `target`: it is deleted."""

    source: str | None
    target: str | None
    hunks: list[Hunk] = field(default_factory=list)


def parts(patch: str) -> Iterator[Part]:
    """The parts of a patch, one per file."""
    lines = patch.replace("\r\n", "\n").split("\n")
    yield from _marked(lines) if any(map(_FILE.match, lines)) else _unified(lines)


def _marked(lines: list[str]) -> Iterator[Part]:
    part: Part | None = None
    for line in lines:
        if mark := _FILE.match(line):
            if part is not None:
                yield _trimmed(part)
            name = mark[2].strip()
            part = Part(None if mark[1] == "Add" else name, None if mark[1] == "Delete" else name)
        elif part is None:
            continue
        elif mark := _MOVE.match(line):
            part.target = mark[1].strip()
        elif line.startswith("@@"):
            part.hunks.append((0, []))
        elif line[:1] in ("+", "-", " "):
            if not part.hunks:
                part.hunks.append((0, []))
            part.hunks[-1][1].append((line[0], line[1:]))
        elif line.startswith("*** End Patch"):
            break
        elif not line and part.hunks:
            part.hunks[-1][1].append((" ", ""))  # an editor has cut the blank of a context line off
    if part is not None:
        yield _trimmed(part)


def _trimmed(part: Part) -> Part:
    """Without the blank lines between a hunk and the next mark."""
    for _, hunk in part.hunks:
        while hunk and hunk[-1] == (" ", ""):
            hunk.pop()
    return part


def _unified(lines: list[str]) -> Iterator[Part]:
    part: Part | None = None
    old: str | None = None
    left_old = left_new = 0  # lines of the hunk to come
    for line in lines:
        if part is not None and (left_old > 0 or left_new > 0) and line[:1] in ("+", "-", " ", ""):
            sign = line[:1] or " "
            part.hunks[-1][1].append((sign, line[1:]))
            left_old -= sign != "+"
            left_new -= sign != "-"
        elif mark := _HUNK.match(line):
            if part is not None:
                part.hunks.append((int(mark[1]), []))
                left_old, left_new = (int(count) if count is not None else 1 for count in mark.group(2, 3))
        elif mark := _RENAME.match(line):
            if part is None or part.hunks or mark[1] == "from":
                if part is not None:
                    yield part
                part = Part(None, None)
            if mark[1] == "from":
                part.source = mark[2].strip()
            else:
                part.target = mark[2].strip()
        elif mark := _HEAD.match(line):
            if mark[1] == "---":
                old = mark[2].strip()
            elif old is not None:
                if part is not None and (part.hunks or part.source is None or part.target is None):
                    yield part
                part, old = Part(_named(old), _named(mark[2].strip())), None
    if part is not None:
        yield part


def _named(name: str) -> str | None:
    return None if name == "/dev/null" else name
