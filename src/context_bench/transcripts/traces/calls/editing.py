"""Calls that edit: which files, and which of their lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.trace import Event, Ranges
from context_bench.transcripts.traces.calls.workspace import Handled, has_failed
from context_bench.transcripts.values import mapping, sequence

_PATCHED = re.compile(
    r"^\*\*\* (?:Update File|Add File|Delete File|Move to): (.+)|^\+\+\+ (?:b/)?([^\t\n]+)|^--- (?:a/)?([^\t\n]+)"
    r"|^rename (?:from|to) (.+)",
    re.M,
)
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,(\d{1,9}))? \+", re.M)


def events_of_edit(one: Handled) -> list[Event]:
    """The files that a call edited, by its patch, its list of changes or its path."""
    ok = not has_failed(one)
    patch = one.row.first(one.row.patch, one.call.arguments) if one.row.patch else None
    if isinstance(patch, str):
        return [one.event("edit", path, None, "edit", "claimed", ok=ok) for path in patched_paths(one, patch)]
    changes = mapping(one.call.arguments).get("changes")
    if isinstance(changes, list):
        named = [str(mapping(change).get("path") or "") for change in changes]
    elif isinstance(changes, Mapping):
        named = [str(path) for path in changes]
    else:
        named = one.row.paths_of(one.call.arguments)
    paths = [path for name in named if (path := one.place.locate(name, one.folder)) is not None]
    ranges = (_edited(one.call.structured) or _replaced(one.call.arguments)) if len(paths) == 1 else None
    return [one.event("edit", path, ranges, "edit", "claimed", ok=ok) for path in paths]


def patched_paths(one: Handled, patch: str) -> list[str]:
    """The files that a patch names, each once."""
    names = [hit[1] or hit[2] or hit[3] or hit[4] for hit in _PATCHED.finditer(patch)]
    paths = [path for name in names if name != "/dev/null" and (path := one.place.locate(name.strip(), one.folder)) is not None]
    return list(dict.fromkeys(paths))


def _replaced(arguments: Any) -> Ranges:
    """The lines that an edit puts a new text in the place of, by its arguments."""
    given = mapping(arguments)
    first, last = whole(given.get("start_line")), whole(given.get("end_line"))
    if first is None or first < 1 or not isinstance(given.get("new_text"), str):
        return None
    return ((first, first if last is None else last),) if last is None or last >= first else None


def _edited(record: Any) -> Ranges:
    """The lines that an edit took out or changed, in the coordinates of the file before it; no claim where none were."""
    hunks = [mapping(hunk) for hunk in sequence(mapping(record).get("structuredPatch"))]
    pairs = [(whole(hunk.get("oldStart")), whole(hunk.get("oldLines"))) for hunk in hunks]
    diff = mapping(record).get("diff") or mapping(mapping(record).get("filediff")).get("patch")
    if not pairs and isinstance(diff, str):
        pairs = [(int(hit[1]), int(hit[2]) if hit[2] else 1) for hit in _HUNK.finditer(diff)]
    found = tuple((first, first + number - 1) for first, number in pairs if first and number and first > 0 and number > 0)
    return found or None
