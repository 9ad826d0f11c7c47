"""Edits that stand in what a model says to Aider: SEARCH/REPLACE blocks, and whole files in fences under their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.record import ToolCall

_SEARCH = re.compile(r"^<{5,9} ?SEARCH>?\s*$")
_MIDDLE = re.compile(r"^={5,9}\s*$")
_REPLACE = re.compile(r"^>{5,9} ?REPLACE\s*$")
_FENCE = re.compile(r"^(`{3,}|~{3,})\S*\s*$")
_MOST = 500


def edits_of(said: str, applied: set[str], failed: str) -> list[ToolCall]:
    """The calls that the edits in a reply amount to.

    `applied`: the files that the program says it edited. `failed`: what it said of blocks that did not fit, which names each with its
    file. A block of a file of neither was not carried out.
    """
    calls: list[ToolCall] = []
    rest = "were applied successfully" in failed
    blocks = list(_blocks(said.split("\n")))
    for path, arguments in blocks:
        if "content" in arguments and path not in applied:
            continue  # a fence under a line that is no name, or a file that was only shown
        missed = f"match lines in {path}\n" in failed and str(arguments.get("old_string", "")).strip() in failed
        made = path in applied or (rest and bool(failed) and not missed)
        call = ToolCall("write" if "content" in arguments else "edit", {"path": path, **arguments})
        call.answer("", failed=True if missed or not made else None)
        calls.append(call)
    named = {path for path, _ in blocks}
    for path in sorted(applied - named):
        call = ToolCall("edit", {"path": path})
        call.answer("")
        calls.append(call)
    return calls


def _blocks(lines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The file and the change of each block, at most so many."""
    found = 0
    at, path = 0, ""
    while at < len(lines) and found < _MOST:
        line = lines[at]
        if _SEARCH.match(line):
            path = _name(lines, at) or path
            middle, end = _next(lines, at, _MIDDLE), 0
            end = _next(lines, middle, _REPLACE) if middle else 0
            if not end:
                return
            if path:
                found += 1
                yield path, {"old_string": _text(lines[at + 1 : middle]), "new_string": _text(lines[middle + 1 : end])}
            at = end + 1
        elif (fence := _FENCE.match(line)) and (name := _name(lines, at)):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].rstrip() == fence[1]), 0)
            if not end:
                return
            if not any(_SEARCH.match(inner) for inner in lines[at + 1 : end]):
                found += 1
                yield name, {"content": _text(lines[at + 1 : end])}
                at = end + 1
            else:
                at += 1
        else:
            at += 1


def _name(lines: list[str], at: int) -> str:
    """The file's name above a block: the last line before it that is neither blank nor a fence."""
    for line in reversed(lines[max(0, at - 3) : at]):
        bare = line.strip().strip("*`:").removeprefix("# ").strip()
        if bare and not _FENCE.match(line) and not _REPLACE.match(line):
            return bare if len(bare) < 1000 and not re.search(r"\s{2}|[<>|\"?]|[.!,]$", bare) and " " not in bare else ""
    return ""


def _next(lines: list[str], at: int, mark: re.Pattern[str]) -> int:
    return next((n for n in range(at + 1, len(lines)) if mark.match(lines[n])), 0)


def _text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)
