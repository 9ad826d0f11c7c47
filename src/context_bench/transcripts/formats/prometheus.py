"""Prometheus' logs: plain text with blocks of context, a file and a range of lines each.

Between `--- BEGIN CONTEXT ---` and `--- END CONTEXT ---` stands what one query found, between the marks with AGGREGATED
all that was kept so far: the last such block is what the agent ended with. Of other sections (file tree, queries)
nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.trace import Event, claim
from context_bench.transcripts.transcript import Transcript, run

_FILE = re.compile(r"\s*File:\s*(\S.{0,1000}?)\s*$")
_LINES = re.compile(r"\s*Line\s{0,9}number\s{0,9}range\s{0,9}:\s*(\d{1,9})\s*[-–]\s*(\d{1,9})\s*$", re.IGNORECASE)
_Block = Literal["CONTEXT", "AGGREGATED CONTEXT"]
_BLOCKS: tuple[_Block, ...] = ("CONTEXT", "AGGREGATED CONTEXT")
#: The mark of a block is looked for in so much of a file.
_LOOK = 4 * 1024 * 1024
#: Longer lines hold no head of a block.
_LONG = 10_000


def sniff(peek: Peek) -> bool:
    """True if the text of a file has a block of context."""
    try:
        with peek.path.open("rb") as file:
            head = file.read(_LOOK)
    except OSError:
        return False
    return any(f"--- BEGIN {block} ---".encode() in head for block in _BLOCKS) and b"File:" in head


def read(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file. A block that is never closed was cut off, and one without ranges names nothing."""
    source.skipped.clear()  # it is no JSON, and need not be
    one = run("prometheus", None)
    step = 0
    final: list[Event] = []
    with source.path.open("rb") as file:
        for block, lines in _blocks(raw[:_LONG].decode("utf-8", "replace") for raw in file):
            found = list(_places(lines))
            if block == "AGGREGATED CONTEXT":
                final = [claim(path, (pair,), step + 1, "context") for path, pair in found]
            elif found:
                step += 1
                one.events += [claim(path, (pair,), step, "context", shown=True) for path, pair in found]
    if final and not one.events:
        step, one.events = 1, [replace(event, strength="shown") for event in final]
    one.final, one.steps = final or None, step or None
    yield one


def _blocks(lines: Iterable[str]) -> Iterator[tuple[_Block, list[str]]]:
    """The heads of each block that has an end, in the order of their ends."""
    opened: dict[_Block, list[str]] = {}
    for line in lines:
        if "---" in line:
            for block in _BLOCKS:
                if f"--- BEGIN {block} ---" in line:
                    opened.setdefault(block, [])
                elif f"--- END {block} ---" in line and block in opened:
                    yield block, opened.pop(block)
        for heads in opened.values():
            if _FILE.match(line) or _LINES.match(line):
                heads.append(line)


def _places(lines: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """File and range of each piece of context; the ends of a range may stand in either order."""
    path: str | None = None
    for line in lines:
        if named := _FILE.match(line):
            path = named[1]
        elif path and (told := _LINES.match(line)):
            first, last = sorted((int(told[1]), int(told[2])))
            yield path, (first, last)


FORMAT = Format("prometheus", 310, sniff, read)
