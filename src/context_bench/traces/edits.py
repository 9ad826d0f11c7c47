"""Edits of a run: where they lie beside the gold, and which searched files came to be read and edited.

Compare the places that a patch edits with those of the gold.

A patch is read by the counts in its hunk headers, not by what its lines look like: a deleted line `-- drop` (`--- drop`
in the patch) is a deletion, an empty line is a context line whose blank was stripped. All lines are those of the file
before the patch.

Search hit → read → edit: was a file that a search named ever opened or edited later?

```python
funnel(trace).tools["Grep"]        # Steps(returned=12, opened=3, edited=1)
```

A **hit** is a file that the result of a search or a listing names or shows; the first time counts. It is *opened* if a
later call of another kind read it, *edited* if a later call changed it. Files that had been read before the search
named them are `known`, and no credit of the search. What is left: files opened or edited that no search had named.
Nothing here says that the search was the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from context_bench.core.ledger import Range, Ranges, holds, merged, size
from context_bench.transcripts.trace import Event, Trace

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_UPSTREAM_HUNK = re.compile(r"@@\s+-(\d{1,9})(?:,\d{1,9})?\s+\+\d{1,9}(?:,\d{1,9})?\s+@@")
_UPSTREAM_NAME = re.compile(r"\+\+\+\s+b/(.+)")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, '"': 34, "\\": 92}
_PREFIXES = {("a/", "b/"), ("i/", "w/"), ("c/", "i/"), ("c/", "w/"), ("o/", "w/"), ("1/", "2/")}


@dataclass(slots=True)
class FileEdit:
    """One file of a patch. `old` is `None` for a new file, `new` for a deleted one; they differ in a rename.

    `deleted`: old lines taken away. `inserted`: runs of new lines that replace nothing, as (old line they follow, how
    many); 0 is the beginning of the file.
    """

    old: str | None
    new: str | None
    deleted: list[int] = field(default_factory=list)
    inserted: list[tuple[int, int]] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The file as it is called before the patch (a new file: as it is called after it)."""
        return self.old or self.new or ""


def parse_patch(text: str) -> list[FileEdit]:
    """The files of a unified diff: with or without `a/` `b/`, quoted by git, renamed, deleted, with CRLF. Other text is
    passed over.
    """
    return list(_Reader(text.split("\n")).files())


def deleted_lines(edits: Sequence[FileEdit]) -> dict[str, list[int]]:
    """The old lines a patch takes away, by file."""
    out: dict[str, set[int]] = {}
    for edit in edits:
        if edit.deleted:
            out.setdefault(edit.path, set()).update(edit.deleted)
    return {path: sorted(lines) for path, lines in out.items()}


def anchors(edits: Sequence[FileEdit]) -> dict[str, list[int]]:
    """The old lines that runs of pure insertions follow, by file: what an add-only patch is located by. Before the
    first line: line 1.
    """
    out: dict[str, set[int]] = {}
    for edit in edits:
        if edit.inserted and edit.old is not None:
            out.setdefault(edit.path, set()).update(max(1, line) for line, _ in edit.inserted)
    return {path: sorted(lines) for path, lines in out.items()}


def edit_location(
    patch: str | None, init: Mapping[str, Ranges], *, gold_patch: str | None = None, dilate: int = 0
) -> dict[str, Any] | None:
    """Compare a patch's edits with the gold's edit region; `None` without a patch.

    * `precision`: deleted lines inside `init` / deleted lines (`None` if it deletes nothing); `intersection`,
      `pred_size`, `gold_size` (lines of `init`) are what it is made of.
    * `insert_anchors`, `insert_anchor_hits`: runs of pure insertions, and those whose old line lies in `init`;
      `anchored_precision` counts them beside the deleted lines, so that a patch that only adds is located too.
    * `recall`: of the lines the reference patch deletes, those the patch deletes within `dilate` lines (`None` without
      such lines). The seed calls the first figure recall too; under `contextbench-v1` both are the same.
    * `file_precision`, `file_recall`: edited files against the files of `init`.
    """
    if not patch or not patch.strip():
        return None
    edits = parse_patch(patch)
    deleted, anchored = deleted_lines(edits), anchors(edits)
    hits, total = _inside(deleted, init)
    anchor_hits, anchor_total = _inside(anchored, init)
    edited, wanted = {edit.path for edit in edits}, {path for path, ranges in init.items() if ranges}
    return {
        "precision": _ratio(hits, total),
        "recall": _edit_recall(deleted, gold_patch, dilate),
        "intersection": hits,
        "gold_size": sum(size(ranges) for ranges in init.values()),
        "pred_size": total,
        "insert_anchors": anchor_total,
        "insert_anchor_hits": anchor_hits,
        "anchored_precision": _ratio(hits + anchor_hits, total + anchor_total),
        "file_precision": _ratio(len(edited & wanted), len(edited)),
        "file_recall": _ratio(len(edited & wanted), len(wanted)),
        "edited_files": sorted(edited),
        "deleted_lines": deleted,
        "anchors": anchored,
    }


def upstream_edit_location(
    patch: str | None, init: Mapping[str, Ranges], gold_patch: str | None
) -> dict[str, Any] | None:
    """As the original evaluator has it, faults included: without a patch the reference is scored in its place, recall
    is precision.
    """
    text = patch or gold_patch
    if not text:
        return None
    deleted = upstream_deleted(text)
    count = sum(map(size, deleted.values()))
    hits = sum(
        1
        for path, runs in deleted.items()
        for start, end in runs
        for line in range(start, end + 1)
        if any(first <= line <= last for first, last in init.get(path, ()))
    )
    share = hits / count if count else 0.0
    gold = sum(map(size, init.values()))
    return {"recall": share, "precision": share, "intersection": hits, "gold_size": gold, "pred_size": count}


def upstream_deleted(text: str) -> dict[str, Ranges]:
    """Deleted lines as the original's parser finds them: only under `+++ b/`, and a hunk ends at anything that looks
    like a header.
    """
    lines = text.split("\n")
    out: dict[str, list[Range]] = {}
    path: str | None = None
    for at, line in enumerate(lines):
        if line.startswith("+++"):
            path = match[1] if (match := _UPSTREAM_NAME.match(line)) else path
        elif path and (match := _UPSTREAM_HUNK.match(line)):
            out.setdefault(path, []).extend(
                _upstream_runs(map(lines.__getitem__, range(at + 1, len(lines))), int(match[1]))
            )
    return {path: merged(runs) for path, runs in out.items() if runs}


def _upstream_runs(lines: Iterable[str], number: int) -> Iterator[Range]:
    """Runs of deleted lines up to what looks like a header, from old line `number` on. Only a line of context ends a
    run.
    """
    first: int | None = None
    for line in lines:
        if line.startswith(("@@", "diff ", "---")):
            break
        if line.startswith(" ") and first is not None:
            yield first, number - 1
            first = None
        elif line.startswith("-") and first is None:
            first = number
        number += line.startswith((" ", "-"))
    if first is not None:
        yield first, number - 1


def _edit_recall(deleted: Mapping[str, Sequence[int]], gold_patch: str | None, dilate: int) -> float | None:
    if not gold_patch:
        return None
    near = {path: merged((line - dilate, line + dilate) for line in lines) for path, lines in deleted.items()}
    hits, total = _inside(deleted_lines(parse_patch(gold_patch)), near)
    return _ratio(hits, total)


def _inside(lines: Mapping[str, Sequence[int]], regions: Mapping[str, Sequence[Range]]) -> tuple[int, int]:
    hits = sum(1 for path, numbers in lines.items() for line in numbers if holds(regions.get(path, ()), line))
    return hits, sum(len(numbers) for numbers in lines.values())


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class _Reader:
    """One pass over the lines of a patch."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.place = 0

    def files(self) -> Iterator[FileEdit]:
        current: FileEdit | None = None
        renamed: str | None = None
        while self.place < len(self.lines):
            line = self.lines[self.place].rstrip("\r")
            self.place += 1
            if line.startswith("diff --git "):
                if current:
                    yield current
                current, renamed = None, None
            elif line.startswith("rename from "):
                renamed = _unquoted(line[len("rename from ") :])
            elif line.startswith("rename to ") and renamed is not None:
                current = FileEdit(renamed, _unquoted(line[len("rename to ") :]))
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                old, new = _names(line[4:], self._next().rstrip("\r")[4:])
                self.place += 1
                if current and (current.old, current.new) != (old, new):
                    yield current
                    current = None
                current = current or FileEdit(old, new)
            elif current and (match := _HUNK.match(line)):
                self._hunk(current, match)
        if current:
            yield current

    def _next(self) -> str:
        return self.lines[self.place] if self.place < len(self.lines) else ""

    def _hunk(self, edit: FileEdit, match: re.Match[str]) -> None:
        old_left, new_left = (int(count) if count is not None else 1 for count in (match[2], match[4]))
        line_number = int(match[1]) + (old_left == 0)  # `-5,0` stands after line 5
        added = deleted = 0

        def close() -> None:
            nonlocal added, deleted
            if added and not deleted:
                edit.inserted.append((line_number - 1, added))
            added = deleted = 0

        while self.place < len(self.lines) and (old_left > 0 or new_left > 0):
            line = self.lines[self.place]
            mark = line[:1] if line not in ("", "\r") else " "
            if mark == "\\":
                pass
            elif mark == "-" and old_left > 0:
                edit.deleted.append(line_number)
                line_number, old_left, deleted = line_number + 1, old_left - 1, deleted + 1
            elif mark == "+" and new_left > 0:
                new_left, added = new_left - 1, added + 1
            elif mark == " " and old_left > 0 and new_left > 0:
                close()
                line_number, old_left, new_left = line_number + 1, old_left - 1, new_left - 1
            else:
                break  # the header promised more than there is
            self.place += 1
        close()


def _names(old: str, new: str) -> tuple[str | None, str | None]:
    """The paths of a header pair, without their prefixes, if those are a pair too (`a/` on a path that has none is a
    folder).
    """
    a, b = _header_path(old), _header_path(new)
    if a is None or b is None:
        known = a or b or ""
        prefixed = known[:2] in ({"a/", "i/", "c/", "o/", "1/"} if b is None else {"b/", "w/", "i/", "2/"})
        known = known[2:] if prefixed else known
        return (known, None) if b is None else (None, known)
    return (a[2:], b[2:]) if (a[:2], b[:2]) in _PREFIXES else (a, b)


def _header_path(text: str) -> str | None:
    path = _unquoted(text.split("\t")[0].rstrip() if not text.startswith('"') else text)
    return None if path == "/dev/null" else path


def _unquoted(text: str) -> str:
    r"""A path as git quotes it: `"src/\303\274.py"` is UTF-8 in octal."""
    text = text.strip()
    if not text.startswith('"'):
        return text
    out = bytearray()
    place = 1
    while place < len(text) and text[place] != '"':
        if text[place] == "\\" and place + 1 < len(text):
            if octal := re.match(r"[0-3][0-7]{2}", text[place + 1 : place + 4]):
                out.append(int(octal[0], 8))
                place += 4
            else:
                out.append(_ESCAPES.get(text[place + 1], ord("?")))
                place += 2
        else:
            out += text[place].encode("utf-8", "replace")
            place += 1
    return out.decode("utf-8", "replace")


# Search hit, read, edit
# ------------------------------------------------------------------------

_FINDING = ("search", "list")
_MOST_NAMED = 50


@dataclass(slots=True)
class Stage:
    """Counts of the files that a tool returned: those read before, those opened later, those edited later."""

    returned: int = 0
    known: int = 0
    opened: int = 0
    edited: int = 0


@dataclass(slots=True)
class Funnel:
    """The funnel of one run; counts are of distinct files. `gold`: of files of the gold (`None`: none given). `tools`:
    by tool that named the file first.

    `searches`, `useful`: calls that returned files, and those of which at least one file was opened or edited later.
    `steps_to_open`: the median number of calls from hit to opening. `unopened`: hits that nobody opened or edited, in
    order. `opened_unsearched`, `edited_unread`: files read without having been a hit, and files edited without having
    been read.
    """

    all: Stage = field(default_factory=Stage)
    gold: Stage | None = None
    tools: dict[str, Stage] = field(default_factory=dict)
    searches: int = 0
    useful: int = 0
    steps_to_open: float | None = None
    unopened: list[str] = field(default_factory=list)
    opened_unsearched: int = 0
    edited_unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """All of it; of a long list of `unopened` the first."""
        return asdict(self) | {"unopened": self.unopened[:_MOST_NAMED]}


def funnel(
    trace: Trace | Iterable[Event],
    *,
    gold: Collection[str] | None = None,
    resolve: Callable[[str], str | None] | None = None,
) -> Funnel:
    """The funnel of a run. `gold`: files of the gold. `resolve`: the file of the repository a path means (`None`: none;
    see `traces.coverage.selection.Resolver`); without it every path that is no folder of another counts.
    """
    named = resolve or _unless_folder(trace.events if isinstance(trace, Trace) else (trace := list(trace)))
    events = [
        (event, path)
        for event in (trace.events if isinstance(trace, Trace) else trace)
        if event.path and event.ok and (path := named(event.path))
    ]
    hits: dict[str, Event] = {}
    calls: dict[int, set[str]] = {}
    opened: dict[str, list[int]] = {}
    edited: dict[str, list[int]] = {}
    for event, path in events:
        if event.kind == "edit":
            edited.setdefault(path, []).append(event.step)
        elif event.kind in _FINDING:
            if not _asked_only(event):
                hits.setdefault(path, event)
                calls.setdefault(event.step, set()).add(path)
        elif event.kind == "read" and event.strength != "listed":
            opened.setdefault(path, []).append(event.step)
    return _counted(hits, calls, opened, edited, gold)


def summed(funnels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of many runs together, from their `to_json`; the medians and names of single runs are left out."""
    out: dict[str, Any] = {"runs": 0, "all": Counter(), "gold": Counter(), "tools": {}}
    plain = ("searches", "useful", "opened_unsearched", "edited_unread")
    for one in funnels:
        out["runs"] += 1
        for name in plain:
            out[name] = out.get(name, 0) + int(one.get(name) or 0)
        for name in ("all", "gold"):
            out[name].update(one.get(name) or {})
        for tool, stage in (one.get("tools") or {}).items():
            out["tools"].setdefault(tool, Counter()).update(stage)
    tools = {tool: dict(stage) for tool, stage in sorted(out["tools"].items())}
    return {**out, "all": dict(out["all"]), "gold": dict(out["gold"]), "tools": tools}


def _counted(
    hits: dict[str, Event],
    calls: dict[int, set[str]],
    opened: dict[str, list[int]],
    edited: dict[str, list[int]],
    gold: Collection[str] | None,
) -> Funnel:
    out = Funnel(gold=None if gold is None else Stage())
    waits = []
    for path, hit in hits.items():
        stages = [out.all, out.tools.setdefault(hit.tool, Stage())]
        if out.gold is not None and path in (gold or ()):
            stages.append(out.gold)
        known = any(step <= hit.step for step in opened.get(path, ()))
        later = [step for step in opened.get(path, ()) if step > hit.step]
        changed = any(step > hit.step for step in edited.get(path, ()))
        if later and not known:
            waits.append(min(later) - hit.step)
        if not (known or later or changed):
            out.unopened.append(path)
        for stage in stages:
            stage.returned += 1
            stage.known += known
            stage.opened += bool(later) and not known
            stage.edited += changed
    out.searches = len(calls)
    out.useful = sum(_used_after(step, paths, opened, edited) for step, paths in calls.items())
    out.steps_to_open = float(median(waits)) if waits else None
    out.opened_unsearched = sum(path not in hits or min(steps) <= hits[path].step for path, steps in opened.items())
    out.edited_unread = sum(
        not any(step <= min(steps) for step in opened.get(path, ())) for path, steps in edited.items()
    )
    return out


def _used_after(step: int, paths: Collection[str], opened: dict[str, list[int]], edited: dict[str, list[int]]) -> bool:
    return any(later > step for path in paths for later in (*opened.get(path, ()), *edited.get(path, ())))


def _asked_only(event: Event) -> bool:
    """True if a search names only where it was to look: nothing came back."""
    return event.kind == "search" and event.strength == "listed" and event.provenance in ("args", "command")


def _unless_folder(events: Iterable[Event]) -> Callable[[str], str | None]:
    """Paths that are a folder of another path of the run are none of files."""
    folders = {"."}
    for event in events:
        parts = (event.path or "").split("/")
        folders.update("/".join(parts[:n]) for n in range(1, len(parts)))
    return lambda path: None if path in folders else path
