"""Files as they stand after the agent's own edits, line by line in the coordinates of the commit it started from.

A file that is read again after an edit has other line numbers than the gold is counted in. So every edit that says what
it replaced by what is carried out on the text, and each line remembers which line of the base it was; lines that the
agent wrote are nobody's. What an edit did that nobody can follow (`sed -i`, a replacement that is not found) leaves the
file *lost*: its later reads are matched to the base by text.

Reads patches as agents write them: unified diffs, and `*** Begin Patch` with hunks that name no lines.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain
from typing import Any

from context_bench.core.numbers import whole
from context_bench.shell.model import ranges_of
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.format import mapping, sequence
from context_bench.transcripts.trace import Ranges

#: The line of the old file it says to begin at (0: none), and its lines with their signs.
Hunk = tuple[int, list[tuple[str, str]]]
_FILE = re.compile(r"\*\*\* (Update|Add|Delete) File: (.+)")
_MOVE_TO = re.compile(r"\*\*\* Move to: (.+)")
_HEAD = re.compile(r"(---|\+\+\+) (?:[ab]/)?([^\t\n]+)")
_RENAME = re.compile(r"rename (from|to) (.+)")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")


@dataclass(slots=True)
class PatchPart:
    """Edits of a patch to one file. No `source`: it is new; no `target`: it is deleted."""

    source: str | None
    target: str | None
    hunks: list[Hunk] = field(default_factory=list)


def parts(patch: str) -> Iterator[PatchPart]:
    """The parts of a patch, one per file."""
    lines = patch.replace("\r\n", "\n").split("\n")
    yield from _marked(lines) if any(map(_FILE.match, lines)) else _unified(lines)


def _marked(lines: list[str]) -> Iterator[PatchPart]:
    part: PatchPart | None = None
    for line in lines:
        if mark := _FILE.match(line):
            if part is not None:
                yield _trimmed(part)
            name = mark[2].strip()
            part = PatchPart(None if mark[1] == "Add" else name, None if mark[1] == "Delete" else name)
        elif part is None:
            continue
        elif mark := _MOVE_TO.match(line):
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


def _trimmed(part: PatchPart) -> PatchPart:
    """Without the blank lines between a hunk and the next mark."""
    for _, hunk in part.hunks:
        while hunk and hunk[-1] == (" ", ""):
            hunk.pop()
    return part


def _unified(lines: list[str]) -> Iterator[PatchPart]:
    part: PatchPart | None = None
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
                part = PatchPart(None, None)
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
                part, old = PatchPart(_named(old), _named(mark[2].strip())), None
    if part is not None:
        yield part


def _named(name: str) -> str | None:
    return None if name == "/dev/null" else name


Locate = Callable[[str], str | None]
_MOVE = re.compile(
    r"(?:^|[\n;&|])[ \t]{0,20}(?:git[ \t]{1,20})?mv[ \t]{1,20}(?:-\w{1,20}[ \t]{1,20}){0,5}([^\s;&|<>]{1,1000})"
    r"[ \t]{1,20}([^\s;&|<>]{1,1000})[ \t]{0,20}"
    r"(?=$|[\n;&|])"
)
_MOST_LINES = 50_000
_MOST_HUNKS = 500
_FEW_COMPARED = 250_000
_MOST_COMPARED = 4_000_000  # lines of one text times lines of the other


@dataclass(slots=True)
class EditedText:
    """A file's lines and, for each, its number in the base (0: the agent's own)."""

    lines: list[str]
    numbers: list[int]

    @classmethod
    def of(cls, data: bytes) -> EditedText:
        """The file as the agent found it."""
        lines = split(data.decode("utf-8", "replace"))
        return cls(lines, list(range(1, len(lines) + 1)))

    def data(self) -> bytes:
        """The text as bytes."""
        return "".join(line + "\n" for line in self.lines).encode("utf-8", "replace")

    def put(self, start: int, end: int, new: Sequence[str]) -> None:
        """Replace lines `start` to `end` (from 0, `end` not included); lines that stay the same keep their numbers."""
        old, numbers = self.lines[start:end], self.numbers[start:end]
        kept = [0] * len(new)
        for a, b, length in _same(old, new):
            kept[b : b + length] = numbers[a : a + length]
        self.lines[start:end] = new
        self.numbers[start:end] = kept

    def replace(self, old: str, new: str, everywhere: bool) -> bool:
        """Replace text as editors do; false where it is not there, or in several places and not meant everywhere."""
        text = "\n".join(self.lines) + "\n"
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        times = text.count(old) if old else 0
        if times == 0 or (times > 1 and not everywhere):
            return False
        self.put(0, len(self.lines), split(text.replace(old, new)))
        return True

    def hunk(self, old: list[str], new: list[str], near: int) -> int | None:
        """Replace the lines `old`, looked for from `near` on and then anywhere; the line after them, or `None` where
        they are not.
        """
        if not old:
            place = min(near, len(self.lines))
            self.put(place, place, new)
            return place + len(new)
        wanted = [line.rstrip() for line in old]
        near = min(near, len(self.lines))
        for start in chain(range(near, len(self.lines)), range(near)):
            if (
                self.lines[start].rstrip() == wanted[0]
                and [line.rstrip() for line in self.lines[start : start + len(old)]] == wanted
            ):
                self.put(start, start + len(old), new)
                return start + len(new)
        return None

    def base(self, ranges: Ranges) -> Ranges:
        """These lines in numbers of the base."""
        if ranges is None:
            return None
        places: Iterator[int]
        if ranges == "all":
            places = iter(range(len(self.numbers)))
        else:
            places = (
                place for first, last in ranges for place in range(max(0, first - 1), min(last, len(self.numbers)))
            )
        return ranges_of({self.numbers[place] for place in places} - {0})


@dataclass
class Edits:
    """The files that a run changed so far. It is a repository, too: that of the files as they are now.

    `lost`: files changed in a way that nobody can follow. `names`: files under another name than in the base, by their
    name now.
    """

    repo: FilesByPath
    texts: dict[str, EditedText] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    _before: dict[str, list[EditedText]] = field(default_factory=dict)
    _paths: tuple[Any, frozenset[str]] | None = None

    def __bool__(self) -> bool:
        return bool(self.texts or self.lost or self.removed or self.names)

    def blob(self, path: str) -> bytes | None:
        """A file as it is now; of a lost one, as it was."""
        if path in self.texts:
            return self.texts[path].data()
        return None if path in self.removed else self.repo.blob(self.names.get(path, path))

    def paths(self) -> Collection[str]:
        """The files there are now."""
        state = (frozenset(self.texts), frozenset(self.removed), frozenset(self.names))
        if self._paths is None or self._paths[0] != state:
            self._paths = state, frozenset({*self.repo.paths(), *self.texts, *self.names} - self.removed)
        return self._paths[1]

    @property
    def like(self) -> FilesByPath | None:
        """A repository with the same paths, as far as files of the base are concerned; `None` after a renaming."""
        return None if self.names else self.repo

    @property
    def differing(self) -> Collection[str]:
        """Paths whose text is known to be another than in the base, or that have gone or come."""
        return {*self.texts, *self.removed, *self.names}

    def origin(self, path: str) -> str:
        """The name a file has in the base."""
        return self.names.get(path, path)

    def to_base(self, path: str, ranges: Ranges, numbered: Sequence[tuple[int, str]] = ()) -> tuple[Ranges, bool]:
        """Lines of a file as it is now, in the base, and whether that is sure. `numbered`: what was shown, for files
        that are lost.
        """
        if path in self.texts:
            return self.texts[path].base(ranges), True
        if path not in self.lost or ranges is None:
            return ranges, True
        found = self._aligned(path, numbered)
        return (ranges, False) if found is None else (found, True)

    def taken_out(self, path: str) -> Ranges:
        """Lines of the base that the last edit of a file took out or replaced; `None` where none, or nobody knows."""
        now, before = self.texts.get(path), self._before.get(path)
        gone = set(before[-1].numbers) - {0, *now.numbers} if now is not None and before else None
        return ranges_of(gone) if gone else None

    def _aligned(self, path: str, numbered: Sequence[tuple[int, str]]) -> Ranges:
        data = self.repo.blob(self.origin(path))
        shown = [text.rstrip() for _, text in numbered]
        if data is None or not any(shown):
            return None
        base = [line.rstrip() for line in split(data.decode("utf-8", "replace"))]
        if len(base) * len(shown) > _MOST_COMPARED:
            return None
        places = [(a, length) for a, b, length in _blocks(base, shown) if any(shown[b : b + length])]
        if 2 * sum(length for _, length in places) < len(shown):
            return None
        return ranges_of({number for a, length in places for number in range(a + 1, a + length + 1)})

    def edit(self, path: str, arguments: Any, record: Any = None) -> None:
        """Carry out a call of an editing tool on one file."""
        given = mapping(arguments)
        if (other := {"undo_edit": self._undo, "delete": self.remove}.get(str(given.get("command")))) is not None:
            other(path)
            return
        text = self._open(path)
        made = text is not None and self._apply(text, given, record)
        content = _whole_text(given) if _first_text(given, _OLD) is None else None
        if not made and content is not None:
            self._write(path, content)
        elif not made:
            self.lose(path)

    def _apply(self, text: EditedText, given: Any, record: Any) -> bool:
        if (old := _first_text(given, _OLD)) is not None:
            new = _first_text(given, _NEW) or ""
            if not old and not text.lines:
                text.put(0, 0, split(new))
                return True
            return text.replace(
                old, new, given.get("replace_all") is True or whole(given.get("expected_replacements")) not in (None, 1)
            )
        if edits := sequence(given.get("edits")):
            return all(
                _first_text(one, _OLD) is not None and self._apply(text, one, None) for one in map(mapping, edits)
            )
        if (line := whole(given.get("insert_line"))) is not None and isinstance(given.get("new_str"), str):
            place = min(max(0, line), len(text.lines))
            text.put(place, place, split(given["new_str"]))
            return True
        if isinstance(given.get("new_text"), str) and (span := _place(given)) is not None:
            new = given["new_text"].split("\n") if given["new_text"] else []
            text.put(min(span[0], len(text.lines)), min(span[1], len(text.lines)), new)
            return True
        return _whole_text(given) is None and self._hunks(text, _structured_hunks(record))

    def patch(self, patch: str, locate: Locate) -> set[str]:
        """Carry out a patch (unified, or in the form `*** Begin Patch`); the files it names. `locate`: a name's path in
        the repository.
        """
        named: set[str] = set()
        for part in parts(patch):
            source, target = (locate(name) if name else None for name in (part.source, part.target))
            named |= {path for path in (source, target) if path}
            if source is None and target is not None:
                self._write(target, "\n".join(line for _, hunk in part.hunks for sign, line in hunk if sign == "+"))
            elif source is not None and target is None:
                self.remove(source)
            elif source is not None and target is not None:
                text = self._open(source)
                if text is None or not self._hunks(text, part.hunks):
                    self.lose(source)
                if target != source:
                    self.move(source, target)
        return named

    def _hunks(self, text: EditedText, hunks: Sequence[Hunk]) -> bool:
        if len(hunks) > _MOST_HUNKS:
            return False
        near = shift = 0
        for start, hunk in hunks:
            old = [line for sign, line in hunk if sign in " -"]
            new = [line for sign, line in hunk if sign in " +"]
            place = text.hunk(old, new, max(0, start - 1 + shift) if start else near)
            if place is None:
                return False
            near, shift = place, shift + len(new) - len(old)
        return bool(hunks)

    def move(self, source: str, target: str) -> None:
        """A file has another name from now on."""
        known = source in self.repo.paths() or source in self.names or source in self.texts or source in self.lost
        if source == target or not known:
            return
        origin = self.origin(source)
        if source in self.texts:
            self.texts[target] = self.texts.pop(source)
        if source in self._before:
            self._before[target] = self._before.pop(source)
        if source in self.lost:
            self.lost.discard(source)
            self.lost.add(target)
        self.names.pop(source, None)
        self.removed.discard(target)
        self.removed.add(source)
        if origin in self.repo.paths():
            self.names[target] = origin

    def follow_renames(self, command: str, gone: Collection[str]) -> set[str]:
        """Follow renames by `mv` and `git mv` in a command, after which the files `gone` are no more; the names before
        and after.
        """
        done: set[str] = set()
        for words in _MOVE.findall(command):
            name, target = (posixpath.normpath(word.strip("'\"")) for word in words)
            found = [
                path
                for path in gone
                if path == name or path.endswith("/" + name.lstrip("./")) or name.endswith("/" + path)
            ]
            if len(found) != 1 or found[0] not in self.paths():
                continue
            old = found[0]
            # the folder that the command's names start from, as the path has it
            inside, outside = (old[: -len(name)], "") if old.endswith(name) else ("", name[: -len(old)])
            new = inside + target.removeprefix(outside)
            if new in ("", ".") or any(path.startswith(new + "/") for path in self.paths()):
                new = posixpath.normpath(f"{new or '.'}/{old.rsplit('/', 1)[-1]}")
            self.move(old, new)
            done |= {old, new}
        return done

    def lose(self, path: str) -> None:
        """The file was changed, nobody knows how."""
        self.restore(path)
        self.lost.add(path)

    def remove(self, path: str) -> None:
        """The file is no longer there."""
        self.restore(path)
        self.names.pop(path, None)
        self.removed.add(path)

    def restore(self, path: str) -> None:
        """The file is as in the base again."""
        self.texts.pop(path, None)
        self.lost.discard(path)
        self.removed.discard(path)

    def _write(self, path: str, content: str) -> None:
        """The file has this content now; lines that stay the same keep their numbers."""
        text = self._open(path) or EditedText([], [])
        text.put(0, len(text.lines), split(content))
        self.texts[path] = text
        self.removed.discard(path)

    def _open(self, path: str) -> EditedText | None:
        """The text of a file that is about to be changed; `None` where nobody knows it."""
        text = self.texts.get(path)
        if text is None:
            if path in self.lost or path in self.removed:
                return None
            data = self.repo.blob(self.origin(path))
            if data is None or data.count(b"\n") > _MOST_LINES or b"\0" in data[:8192]:
                return None
            text = EditedText.of(data)
        self._before.setdefault(path, []).append(EditedText(list(text.lines), list(text.numbers)))
        del self._before[path][:-20]
        self.texts[path] = text
        return text

    def _undo(self, path: str) -> None:
        if before := self._before.get(path):
            self.texts[path] = before.pop()
        else:
            self.lose(path)


def _structured_hunks(record: Any) -> list[Hunk]:
    """The hunks of a program's own record of an edit."""
    found = []
    for hunk in map(mapping, sequence(mapping(record).get("structuredPatch"))):
        lines = [line for line in sequence(hunk.get("lines")) if isinstance(line, str) and line[:1] in ("+", "-", " ")]
        found.append((whole(hunk.get("oldStart")) or 0, [(line[0], line[1:]) for line in lines]))
    return found


#: Names of the text that an edit replaces, of the text it puts in its place, and of the whole text of a file.
_OLD = ("old_string", "old_str", "oldString", "oldText", "old_text")
_NEW = ("new_string", "new_str", "newString", "newText", "new_text")
_WHOLE = ("content", "file_text", "contents", "fileText")


def _first_text(given: Any, names: Iterable[str]) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)


def _place(given: Any) -> tuple[int, int] | None:
    """The lines that a `new_text` stands for (from 0, the end not included): those named, or none before the one it
    goes in front of.
    """
    first, last, before = (whole(given.get(key)) for key in ("start_line", "end_line", "insert_line"))
    if first is not None and first > 0:
        return first - 1, max(first - 1, first if last is None else last)
    return (before - 1, before - 1) if before is not None and before > 0 else None


def _whole_text(given: Any) -> str | None:
    return _first_text(given, _WHOLE if _place(given) is not None else (*_WHOLE, "new_text"))


def split(text: str) -> list[str]:
    """The lines of a text without their ends; its last line end begins no other."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def _same(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of lines that stay the same: place in the old, place in the new, how many."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head:
        yield 0, 0, head
    inner_old, inner_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if inner_old and inner_new and len(inner_old) * len(inner_new) <= _MOST_COMPARED:
        for a, b, length in _blocks(inner_old, inner_new):
            yield head + a, head + b, length
    if tail:
        yield len(old) - tail, len(new) - tail, tail


def _blocks(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int, int]]:
    # lines that come often are dear to match where there are many
    matcher = SequenceMatcher(None, a, b, autojunk=len(a) * len(b) > _FEW_COMPARED)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks() if block.size]
