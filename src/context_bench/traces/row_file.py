"""The file of scored rows: rows of an earlier run, rows added to it, and its order at the end.

`TraceResults` reads it as often as wanted and never holds all rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import orjson

from context_bench.core.errors import BadInput
from context_bench.stats.solving import Status
from context_bench.traces.gold import Gold, GoldSet
from context_bench.traces.job import ScoringJob, TraceItem
from context_bench.traces.rows import TraceRow
from context_bench.transcripts.trace import utf8_clean

ROWS = "rows.jsonl"


@dataclass
class TraceResults:
    """The rows of `score_traces`, on disk; `rows()` reads them again and again. Used in a `with`, rows that were not to
    be kept go away.

    `golds`: what was asked for. `made`, `reused`: rows scored now, and taken from before. `unread`: files that hold no
    trace, by reason.
    """

    path: Path
    golds: GoldSet
    policy: str
    runs: list[str]
    made: int = 0
    reused: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    kept: bool = True
    seen: dict[str, set[str]] = field(default_factory=dict)
    repos: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    def rows(self, *, course: bool = True) -> Iterator[TraceRow]:
        """The rows in the order of the files. `course=False` leaves steps and file maps out, which is most of them."""
        return read_rows(self.path, course=course)

    @property
    def without_trace(self) -> dict[str, list[str]]:
        """By set: golds that no trace of it is about."""
        return {
            run: [one.instance_id for one in self.golds if one.instance_id not in self.seen.get(run, ())]
            for run in self.runs
        }

    def close(self) -> None:
        """Remove the rows, if they were not to be kept."""
        if not self.kept:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(path: str | Path, *, course: bool = True) -> Iterator[TraceRow]:
    """The rows of a file of them, or of a folder that `score_traces` wrote; `BadInput` names a line that is none."""
    place = Path(path)
    place = place / ROWS if place.is_dir() else place
    try:
        file = place.open("rb")
    except OSError as error:
        raise BadInput(
            f"cannot read {place}: {error.strerror}; expected rows that `context-bench trace score` wrote"
        ) from None
    with file:
        for number, line in enumerate(file, 1):
            try:
                row = orjson.loads(line)
                if not course:
                    row.pop("steps", None)
                    row.pop("files", None)
                    (row.get("score") or {}).get("trajectory", {}).pop("steps", None)
                yield TraceRow.from_json(row)
            except (ValueError, AttributeError) as error:
                raise BadInput(
                    f"{place}, line {number}: not a row of a scored trace ({str(error).splitlines()[0]:.200})"
                ) from None


DONE = "rows.done"


StatusOf = Callable[[str, Gold], Status]


class RowFacts(NamedTuple):
    """The facts about a row that is kept as bytes."""

    run: str
    instance_id: str
    key: str
    attempt: int
    gold_sha: str
    length: int


class _Place:
    """Position of a row in the file of rows."""

    __slots__ = ("attempt", "key", "length", "start", "who")

    def __init__(self, row: TraceRow | RowFacts, start: int, length: int) -> None:
        self.key, self.who, self.attempt, self.start, self.length = (
            row.key,
            (row.run, row.instance_id),
            row.attempt,
            start,
            length,
        )


class KeptRows:
    """Rows that an earlier run left in the file, without those that are not asked for now."""

    def __init__(
        self, path: Path, job: ScoringJob, found: Sequence[TraceItem], fresh: bool, status: StatusOf | None
    ) -> None:
        self.done: set[str] = set()
        self.known: dict[str, set[tuple[str, str]]] = {}
        self.seen: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}
        self.index: list[_Place] = []
        self.rows = 0
        journal = path.with_name(DONE)
        if not path.exists() or fresh:
            path.unlink(missing_ok=True)
            journal.unlink(missing_ok=True)
            return
        wanted = {job.key(unit) for unit in found}
        with suppress(OSError):
            self.done = {line.strip() for line in journal.read_text("utf-8").splitlines()} & wanted
        other = path.with_name(f"{path.name}.new")
        with path.open("rb") as old, other.open("wb") as new:
            for line in old:
                if (row := _readable(line)) is None or row.key not in wanted:
                    continue
                if status is not None and row.gold_sha and (gold := job.golds.find(row.instance_id)) is not None:
                    row.status = status(row.run, gold)
                self.index.append(_Place(row, new.tell(), new.write(line_of(row))))
                self.known.setdefault(row.key, set()).add((row.instance_id, row.trace_sha))
                self.counts[row.run] = self.counts.get(row.run, 0) + 1
                self.seen.append((row.run, row.instance_id))
                self.rows += 1
        other.replace(path)
        journal.write_text("".join(f"{key}\n" for key in sorted(self.done)), "utf-8")


def _readable(line: bytes) -> TraceRow | None:
    """A row; `None` for what a run that was killed left half written, or another program wrote."""
    try:
        return TraceRow.from_json(orjson.loads(line))
    except (ValueError, AttributeError):
        return None


class Sink:
    """Rows on their way to the file."""

    def __init__(self, result: TraceResults, rows: BinaryIO, done: BinaryIO, status: StatusOf | None) -> None:
        self._result, self._rows, self._done, self._status = result, rows, done, status
        self.counts: dict[str, int] = {}
        self.index: list[_Place] = []

    def add(self, row: TraceRow) -> None:
        if self._status is not None and row.gold_sha and (gold := self._result.golds.find(row.instance_id)) is not None:
            row.status = self._status(row.run, gold)
        self._write(row, line_of(row))

    def take(self, row: RowFacts, line: bytes) -> None:
        """A row that another process made; it is read again only where its status is to be told."""
        if self._status is not None and row.gold_sha:
            self.add(TraceRow.from_json(orjson.loads(line)))
        else:
            self._write(row, line)

    def _write(self, row: TraceRow | RowFacts, line: bytes) -> None:
        self.index.append(_Place(row, self._rows.tell(), self._rows.write(line)))
        self._result.made += 1
        self.counts[row.run] = self.counts.get(row.run, 0) + 1
        self.seen([(row.run, row.instance_id)])

    def seen(self, pairs: Iterable[tuple[str, str]]) -> None:
        for run, name in pairs:
            self._result.seen.setdefault(run, set()).add(name)

    def finished(self, unit: TraceItem, key: str, fault: str | None) -> None:
        """All rows of a file are written."""
        self._rows.flush()
        if fault is not None:
            self._result.unread[unit.path] = fault.removeprefix(f"{unit.path}: ")
        else:
            self._done.write(f"{key}\n".encode())
            self._done.flush()


def line_of(row: TraceRow) -> bytes:
    """A row as a line of the file; text that is no UTF-8 (half a character, cut by a log) is mended on the way."""
    try:
        return orjson.dumps(row.to_json(), option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return orjson.dumps(utf8_clean(row.to_json()), option=orjson.OPT_APPEND_NEWLINE)


def bring_into_order(result: TraceResults, keys: Sequence[str], index: Iterable[_Place]) -> None:
    """Bring the rows into the order of the files and number the attempts, so that equal inputs give equal outputs."""
    places: dict[str, list[_Place]] = {}
    for place in index:
        places.setdefault(place.key, []).append(place)
    wanted = [place for key in dict.fromkeys(keys) for place in places.get(key, ())]
    attempts: dict[tuple[str, str], int] = {}
    numbers = []
    for place in wanted:
        attempts[place.who] = attempts.get(place.who, 0) + 1
        numbers.append(attempts[place.who])
    in_order = all(a.start < b.start for a, b in pairwise(wanted))
    if in_order and all(place.attempt == number for place, number in zip(wanted, numbers, strict=True)):
        return
    other = result.path.with_name(f"{result.path.name}.new")
    with result.path.open("rb") as old, other.open("wb") as new:
        for place, number in zip(wanted, numbers, strict=True):
            old.seek(place.start)
            line = old.read(place.length)
            new.write(
                line
                if place.attempt == number
                else orjson.dumps(orjson.loads(line) | {"attempt": number}, option=orjson.OPT_APPEND_NEWLINE)
            )
    other.replace(result.path)
