"""Calls that show files: which lines, by a record, by their numbers, or by where the text stands in the file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.trace import Event, Ranges
from context_bench.transcripts.traces import outputs
from context_bench.transcripts.traces.calls.workspace import Handled, has_failed
from context_bench.transcripts.values import mapping, sequence

#: So many places are tried for a text that a tool shows without numbers.
_TRIES = 2000


def events_of_read(one: Handled) -> list[Event]:
    """The files that a call showed, each with its lines where it was one file."""
    paths = one.paths()
    if not paths and (told := mapping(mapping(one.call.structured).get("file")).get("filePath")):
        paths = [found for found in [one.place.locate(str(told), one.folder)] if found]
    if has_failed(one):
        return [one.event("read", path, None, "args", ok=False) for path in paths]
    if len(paths) > 1 or sequence(mapping(one.call.arguments).get("include")):
        return [one.event("read", path, "all", "args", one.asked) for path in paths if not _pattern(path)]
    return [_read_one(one, path) for path in paths]


def _read_one(one: Handled, path: str) -> Event:
    asked = one.row.lines_of(one.call.arguments)
    if one.foreign:
        return one.event("read", path, asked, "args", one.asked)
    if (told := _structured(one.call.structured)) is not None:
        return one.event(
            "read", path, told, "structured", cut=bool(mapping(mapping(one.call.structured).get("file")).get("truncatedByTokenCap"))
        )
    if not one.text or not one.text.strip(" \n."):
        return one.event("read", path, asked, "args", one.asked)
    if _folder_listing(one, path):
        return one.event("list", path, None, "args", "listed")
    seen = outputs.shown(one.text)
    if seen.ranges is not None:
        if not _within(seen.ranges, asked):
            one.place.counts["output differs from arguments"] += 1
        return one.event("read", path, seen.ranges, "output_numbered", cut=seen.cut)
    if (matched := _matched(one, path, seen, asked)) is not None:
        return one.event("read", path, matched, "output_matched", cut=seen.cut)
    if seen.cut or one.call.cut:
        first = asked[0][0] if isinstance(asked, tuple) else 1
        head = outputs.before_cut(seen.lines)
        return one.event("read", path, ((first, first + head - 1),) if head else None, "args", cut=True)
    return one.event("read", path, asked, "args")


def _structured(value: Any) -> Ranges:
    """The lines that a program's own record of a read names."""
    file = mapping(mapping(value).get("file"))
    first, number = whole(file.get("startLine")), whole(file.get("numLines"))
    if first is None or number is None or first < 1 or number < 0:
        return None
    return ((first, first + number - 1),) if number else ()


def _folder_listing(one: Handled, path: str) -> bool:
    """Whether what was viewed is a folder: an editor lists its files."""
    text = one.text or ""
    return "files and directories up to" in text[:400] or (one.place.known is not None and _is_folder(path, one.place.known))


def _is_folder(path: str, known: Collection[str]) -> bool:
    return path not in known and (path == "." or any(name.startswith(path + "/") for name in known))


def _within(seen: tuple[tuple[int, int], ...], asked: Ranges) -> bool:
    if not isinstance(asked, tuple):
        return True
    return all(any(first <= a and b <= last for first, last in asked) for a, b in seen)


def _matched(one: Handled, path: str, seen: outputs.Shown, asked: Ranges) -> Ranges:
    """Where the text shown stands in the file: at the place asked for, else where it occurs once."""
    now = one.place.now
    blob = now.blob(path) if now is not None and path in now.paths() else None
    if blob is None:
        return None
    file = [line.rstrip("\r") for line in blob.decode("utf-8", "replace").removesuffix("\n").split("\n")]
    text = [line.rstrip("\r") for line in seen.lines]
    text = text[: outputs.before_cut(text)]
    if not text:
        return None
    start = asked[0][0] if isinstance(asked, tuple) else 1
    if file[start - 1 : start - 1 + len(text)] == text:
        return ((start, start + len(text) - 1),)
    starts = [number for number, line in enumerate(file) if line == text[0]][:_TRIES]
    places = [number for number in starts if file[number : number + len(text)] == text]
    if len(places) == 1:
        return ((places[0] + 1, places[0] + len(text)),)
    one.place.counts["output not found in the file"] += 1
    return None


def _pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[{")
