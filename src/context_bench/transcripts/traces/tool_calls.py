"""Reads, edits and searches by one tool call, in the workspace of its run, where paths of a log become paths of the
repository, never by the name of a file alone.

A read names its lines by a record, by their numbers, or by the place of the text in the file. A search or a listing
names the lines and files of its output.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import whole
from context_bench.shell.model import Budget, ranges_of
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.format import mapping, sequence
from context_bench.transcripts.trace import Event, EventKind, Provenance, Ranges, Strength
from context_bench.transcripts.traces.edited import Edits
from context_bench.transcripts.traces.vocabulary import (
    NumberedLines,
    ToolRow,
    Vocabulary,
    before_cut,
    line_numbers,
    looks_failed,
    search_hits,
    shown_lines,
)
from context_bench.transcripts.transcript import ToolCall

#: Where the usual images keep the repository.
CONTAINER_ROOTS = ("/testbed",)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def cleaned(path: str) -> str | None:
    """A path with forward slashes; `None` for what can be none."""
    if not path or "\0" in path or "\n" in path or len(path) > 4096:
        return None
    path = path.removeprefix("file://")
    return path.replace("\\", "/") if _DRIVE.match(path) or ("\\" in path and "/" not in path) else path


def located(path: str, cwd: str | None, root: str | None, known: Collection[str] | None = None) -> str | None:
    """The path from the repository's root; an absolute one where it is elsewhere or nobody knows; `None` for what is no
    path.

    `cwd` is where a relative path starts; `known` the files of the repository, by which a folder of another machine is
    recognised: the path's end, of two components or more, must name exactly one of them.
    """
    clean = cleaned(path)
    if clean is None:
        return None
    foreign = is_absolute(clean) and ".." not in clean.split("/")
    if not is_absolute(clean):
        clean = posixpath.join(cwd or root or "", clean)
    clean = posixpath.normpath(clean)
    clean = clean[1:] if clean.startswith("//") else clean
    inside = _below(clean, root)
    if inside is not None:
        return inside
    for base in CONTAINER_ROOTS:
        inside = _below(clean, base)
        if inside is not None and (root is None or (known is not None and inside in known)):
            return inside
    if known and foreign:
        return _by_end(clean, known) or clean
    return clean


def root_of(absolute: Iterable[str], relative: Iterable[str]) -> str | None:
    """The folder that makes relative paths of a run the absolute ones of the same run; `None` if there is none, or two
    as likely.
    """
    ends = {path for path in relative if path not in ("", ".") and not path.startswith("..")}
    votes: Counter[str] = Counter()
    for path in set(absolute):
        parts = path.split("/")
        for cut in range(2, min(len(parts), 40)):
            if "/".join(parts[cut:]) in ends:
                votes["/".join(parts[:cut])] += 1
    best = votes.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else None


def worked_in(calls: Iterable[ToolCall], repo: FilesByPath | None) -> str | None:
    """The folder that the repository lies in, if calls name it: of a run on this machine whose log does not tell its
    folder.
    """
    folder = getattr(repo, "folder", None)
    if not isinstance(folder, Path):
        return None
    named = [base for base in dict.fromkeys((str(folder.absolute()), str(folder.resolve()))) if len(base) > 1]
    marks = [(base, re.compile(re.escape(base) + r"(?![\w.-])")) for base in named]
    for call in calls:
        try:
            given = call.arguments if isinstance(call.arguments, str) else canonical_json(call.arguments)
        except (RecursionError, TypeError, ValueError):
            continue  # too deep, or none that JSON has
        for base, mark in marks:
            if base in given and mark.search(given):
                return base
    return None


def is_absolute(path: str) -> bool:
    """True if a path is told from the top, of a drive or of all."""
    return path.startswith("/") or bool(_DRIVE.match(path))


def _below(path: str, root: str | None) -> str | None:
    if not root:
        return None
    base = _folder(root)
    if path == base:
        return "."
    return path[len(base.rstrip("/")) + 1 :] if path.startswith(base.rstrip("/") + "/") else None


@lru_cache(64)
def _folder(root: str) -> str:
    return posixpath.normpath((cleaned(root) or root).rstrip("/") or "/")


def _by_end(path: str, known: Collection[str]) -> str | None:
    parts = path.strip("/").split("/")
    found = {end for cut in range(len(parts) - 1) if (end := "/".join(parts[cut:])) in known}
    return found.pop() if len(found) == 1 else None


@dataclass
class RunWorkspace:
    """The folders and files of a run's calls. `counts` collects facts about the evidence of its reads.

    `roots`: folders that turned out to hold the repository, where the log names none, by how often. `first_test`: the
    first command that ran tests.
    """

    root: str | None = None
    repo: FilesByPath | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary.load)
    lasting_shell: bool = False
    outputs: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    cwd: str | None = None
    roots: Counter[str] = field(default_factory=Counter)
    first_test: str | None = None
    repo_paths: Collection[str] | None = field(init=False, default=None)
    edits: Edits | None = field(init=False, default=None)
    #: What reading the run's commands may still cost.
    budget: Budget = field(init=False, default_factory=Budget.of_log)

    def __post_init__(self) -> None:
        self.repo_paths = frozenset(self.repo.paths()) if self.repo is not None else None
        self.edits = Edits(self.repo) if self.repo is not None else None

    @property
    def now(self) -> FilesByPath | None:
        """The repository as the agent has left it so far."""
        return self.edits or self.repo

    def locate(self, path: str, cwd: str | None = None) -> str | None:
        """The path from the repository's root; see `paths.located`."""
        found = located(path, cwd or self.cwd, self.root, self.repo_paths)
        if found is None:
            self.counts["paths that are none"] += 1
        elif self.root is None and path.startswith("/") and not found.startswith("/") and path.endswith("/" + found):
            self.roots[path.removesuffix("/" + found)] += 1
        return found


@dataclass(slots=True)
class Handled:
    """One call on its way to events."""

    call: ToolCall
    step: int
    row: ToolRow
    place: RunWorkspace
    foreign: bool
    text: str | None
    command: str = ""
    #: What a command did to each file that it changed.
    changes: dict[str, str] = field(default_factory=dict)

    def event(
        self,
        kind: EventKind,
        path: str | None,
        ranges: Ranges,
        provenance: Provenance,
        strength: Strength = "shown",
        *,
        ok: bool = True,
        cut: bool = False,
    ) -> Event:
        call = self.call
        return Event(
            self.step,
            call.ident,
            kind,
            call.tool,
            path,
            ranges,
            provenance,
            strength,
            ok,
            cut or call.cut,
            call.sidechain,
            call.t,
            call.tokens_before,
            call.place,
            turn=call.turn,
        )

    @property
    def folder(self) -> str | None:
        return self.call.cwd or self.call.lasting_cwd

    @property
    def asked(self) -> Strength:
        """Strength of the evidence that the lines asked for were shown, when no output says so."""
        return "shown" if self.text is not None or not self.place.outputs else "claimed"

    def paths(self) -> list[str]:
        found = (self.place.locate(path, self.folder) for path in self.row.paths_of(self.call.arguments))
        return [path for path in found if path is not None]


def has_failed(one: Handled) -> bool:
    """True if a call that is no command failed: the log says so, or its output is nothing but an error."""
    if one.call.failed is not None:
        return one.call.failed
    if one.call.exit_code not in (None, 0) and not (one.text or "").strip():
        return True
    return one.text is not None and looks_failed(one.text)


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
    paths = [
        path
        for name in names
        if name != "/dev/null" and (path := one.place.locate(name.strip(), one.folder)) is not None
    ]
    return list(dict.fromkeys(paths))


def _replaced(arguments: Any) -> Ranges:
    """The lines that an edit puts a new text in the place of, by its arguments."""
    given = mapping(arguments)
    first, last = whole(given.get("start_line")), whole(given.get("end_line"))
    if first is None or first < 1 or not isinstance(given.get("new_text"), str):
        return None
    return ((first, first if last is None else last),) if last is None or last >= first else None


def _edited(record: Any) -> Ranges:
    """The lines that an edit took out or changed, in the coordinates of the file before it; no claim where none
    were.
    """
    hunks = [mapping(hunk) for hunk in sequence(mapping(record).get("structuredPatch"))]
    pairs = [(whole(hunk.get("oldStart")), whole(hunk.get("oldLines"))) for hunk in hunks]
    diff = mapping(record).get("diff") or mapping(mapping(record).get("filediff")).get("patch")
    if not pairs and isinstance(diff, str):
        pairs = [(int(hit[1]), int(hit[2]) if hit[2] else 1) for hit in _HUNK.finditer(diff)]
    found = tuple(
        (first, first + number - 1) for first, number in pairs if first and number and first > 0 and number > 0
    )
    return found or None


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
            "read",
            path,
            told,
            "structured",
            cut=bool(mapping(mapping(one.call.structured).get("file")).get("truncatedByTokenCap")),
        )
    if not one.text or not one.text.strip(" \n."):
        return one.event("read", path, asked, "args", one.asked)
    if _folder_listing(one, path):
        return one.event("list", path, None, "args", "listed")
    seen = shown_lines(one.text)
    if seen.ranges is not None:
        if not _within(seen.ranges, asked):
            one.place.counts["output differs from arguments"] += 1
        return one.event("read", path, seen.ranges, "output_numbered", cut=seen.cut)
    if (matched := _matched(one, path, seen, asked)) is not None:
        return one.event("read", path, matched, "output_matched", cut=seen.cut)
    if seen.cut or one.call.cut:
        first = asked[0][0] if isinstance(asked, tuple) else 1
        head = before_cut(seen.lines)
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
    """True if what was viewed is a folder: an editor lists its files."""
    text = one.text or ""
    return "files and directories up to" in text[:400] or (
        one.place.repo_paths is not None and _is_folder(path, one.place.repo_paths)
    )


def _is_folder(path: str, known: Collection[str]) -> bool:
    return path not in known and (path == "." or any(name.startswith(path + "/") for name in known))


def _within(seen: tuple[tuple[int, int], ...], asked: Ranges) -> bool:
    if not isinstance(asked, tuple):
        return True
    return all(any(first <= a and b <= last for first, last in asked) for a, b in seen)


def _matched(one: Handled, path: str, seen: NumberedLines, asked: Ranges) -> Ranges:
    """Lines at which the shown text stands in the file: at the place asked for, else where it occurs once."""
    now = one.place.now
    blob = now.blob(path) if now is not None and path in now.paths() else None
    if blob is None:
        return None
    file = [line.rstrip("\r") for line in blob.decode("utf-8", "replace").removesuffix("\n").split("\n")]
    text = [line.rstrip("\r") for line in seen.lines]
    text = text[: before_cut(text)]
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


def events_of_search(one: Handled) -> list[Event]:
    """Events of a search: lines where its output names them, else files."""
    paths = one.paths()
    if has_failed(one):
        return [one.event("search", path, None, "args", "listed", ok=False) for path in _or_none(paths)]
    record = mapping(one.call.structured)
    text = record.get("content") if isinstance(record.get("content"), str) else one.text
    if not text:
        listed = [
            found
            for name in sequence(record.get("filenames"))
            if isinstance(name, str) and (found := one.place.locate(name, one.folder))
        ]
        events = [one.event("search", path, None, "structured", "listed") for path in dict.fromkeys(listed)]
        return events or [one.event("search", path, None, "args", "listed") for path in _or_none(paths)]
    provenance: Provenance = "args" if one.foreign else "output_numbered"
    mode = mapping(one.call.arguments).get("output_mode") or record.get("mode")
    return _search_shown(one, str(text), paths, provenance, mode) or [
        one.event("search", path, None, "args", "listed") for path in _or_none(paths)
    ]


def _search_shown(one: Handled, text: str, paths: list[str], provenance: Provenance, mode: Any) -> list[Event]:
    hits = search_hits(text)
    if mode == "count":  # `path:2` says how many lines, not which
        hits.files += hits.lines
        hits.lines = {}
    events: list[Event] = []
    lines: dict[str, list[int]] = {}
    for name, numbers in hits.lines.items():
        if (path := _found_below(one, name, hits.relative)) is not None:
            lines.setdefault(path, []).extend(number for number in numbers if number > 0)
    for path, numbers in lines.items():
        events.append(one.event("search", path, ranges_of(numbers), provenance, cut=hits.cut))
    if not lines and len(paths) == 1 and (numbers := line_numbers(text)) and not hits.files:
        return [one.event("search", paths[0], ranges_of(numbers), provenance, cut=hits.cut)]
    for name in hits.files:
        if (path := _found_below(one, name, hits.relative)) is not None and path not in lines:
            events.append(one.event("search", path, None, provenance, "listed", cut=hits.cut))
    if not events and mode == "content":
        events = _unnumbered(one, text, hits.cut)
    return events


def _unnumbered(one: Handled, text: str, cut: bool) -> list[Event]:
    """Files of the repository whose lines a search showed without their numbers."""
    known = one.place.repo_paths or ()
    names = dict.fromkeys(line.partition(":")[0] for line in text.split("\n") if ":" in line)
    found = dict.fromkeys(path for name in names if (path := _found_below(one, name)) in known)
    return [one.event("search", path, None, "args", cut=cut) for path in found]


def _found_below(one: Handled, name: str, relative: bool = False) -> str | None:
    """A path that a search or listing printed: from the folder searched (for certain if `relative`) or the working one;
    the repository's files decide.
    """
    named = one.row.paths_of(one.call.arguments)
    here = one.place.locate(name, one.folder)
    if not named or name.startswith("/"):
        return here
    base = one.folder or one.place.cwd or one.place.root
    searched = named[0] if named[0].startswith("/") or not base else f"{base.rstrip('/')}/{named[0]}"
    below = one.place.locate(name, searched)
    known = one.place.repo_paths
    if relative or (known is not None and below in known):
        return below
    top = (one.place.locate(named[0], one.folder) or ".").rstrip("/")
    stray = top != "." and here is not None and here != top and not here.startswith(top + "/")
    return None if stray and known is not None and "/" not in name else here


def events_of_list(one: Handled) -> list[Event]:
    """Events of a listing: places, none of them read."""
    paths = one.paths()
    if has_failed(one):
        return [one.event("list", path, None, "args", "listed", ok=False) for path in _or_none(paths)]
    names = [name for name in sequence(mapping(one.call.structured).get("filenames")) if isinstance(name, str)]
    names = names or (search_hits(one.text).files if one.text else [])
    found = [path for name in names if (path := _found_below(one, name)) is not None]
    return [one.event("list", path, None, "args", "listed") for path in dict.fromkeys([*paths, *found])] or [
        one.event("list", None, None, "args", "listed")
    ]


def _or_none(paths: list[str]) -> list[str | None]:
    return [*paths] or [None]
