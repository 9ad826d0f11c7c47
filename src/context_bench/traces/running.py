"""Many runs against their golds: file by file, in processes where that pays, each row on disk before the next file is begun.

Memory does not grow with the number of runs: rows are written as they come and read back where they are needed. With a folder to keep them
in, a row is made once: the same log against the same gold in the same way is taken from what is there.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, NamedTuple, Self

import orjson

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Repo
from context_bench.traces.coverage import Policy
from context_bench.traces.gold import Gold, GoldSet, load_gold
from context_bench.traces.job import Job, OneRepository, Settings, Unit, work_off
from context_bench.traces.rows import Status, TraceRow
from context_bench.traces.scoring import policy_of
from context_bench.traces.symbols import Repositories
from context_bench.transcripts.trace import Trace, utf8_clean
from context_bench.transcripts.traces.read import units

ROWS = "rows.jsonl"


@dataclass
class TraceResults:
    """The rows of `score_traces`, on disk; `rows()` reads them again and again. Used in a `with`, rows that were not to be kept go away.

    `golds`: what was asked for. `made`, `reused`: rows scored now, and taken from before. `unread`: files that hold no trace, by reason.
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
        return {run: [one.instance_id for one in self.golds if one.instance_id not in self.seen.get(run, ())] for run in self.runs}

    def close(self) -> None:
        """Remove the rows, if they were not to be kept."""
        if not self.kept:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_rows(path: str | Path, *, course: bool = True) -> Iterator[TraceRow]:
    """The rows of a file of them, or of a folder that `score_traces` wrote; `BadInput` names a line that is none."""
    place = Path(path)
    place = place / ROWS if place.is_dir() else place
    try:
        file = place.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {place}: {error.strerror}; expected rows that `context-bench trace score` wrote") from None
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
                raise BadInput(f"{place}, line {number}: not a row of a scored trace ({str(error).splitlines()[0]:.200})") from None


DONE = "rows.done"
StatusOf = Callable[[str, Gold], Status]


class Known(NamedTuple):
    """What is known of a row that is there as bytes."""

    run: str
    instance_id: str
    key: str
    attempt: int
    gold_sha: str
    length: int


class _Place:
    """Where in the file of rows a row stands."""

    __slots__ = ("attempt", "key", "length", "start", "who")

    def __init__(self, row: TraceRow | Known, start: int, length: int) -> None:
        self.key, self.who, self.attempt, self.start, self.length = row.key, (row.run, row.instance_id), row.attempt, start, length


class Kept:
    """What an earlier run left in the file of rows, rid of what is not asked for now."""

    def __init__(self, path: Path, job: Job, found: Sequence[Unit], fresh: bool, status: StatusOf | None) -> None:
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

    def take(self, row: Known, line: bytes) -> None:
        """A row that another process made; it is read again only where its status is to be told."""
        if self._status is not None and row.gold_sha:
            self.add(TraceRow.from_json(orjson.loads(line)))
        else:
            self._write(row, line)

    def _write(self, row: TraceRow | Known, line: bytes) -> None:
        self.index.append(_Place(row, self._rows.tell(), self._rows.write(line)))
        self._result.made += 1
        self.counts[row.run] = self.counts.get(row.run, 0) + 1
        self.seen([(row.run, row.instance_id)])

    def seen(self, pairs: Iterable[tuple[str, str]]) -> None:
        for run, name in pairs:
            self._result.seen.setdefault(run, set()).add(name)

    def finished(self, unit: Unit, key: str, fault: str | None) -> None:
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


Sources = str | Path | Sequence[str | Path] | Mapping[str, str | Path | Sequence[str | Path]]


def score_traces(
    gold: str | Path | GoldSet | Iterable[Gold],
    traces: Sources | Iterable[Trace],
    repos: Repositories | Repo | str | Path | Sequence[str | Path] | None = None,
    *,
    policy: str | Policy = "strict",
    count: Collection[str] = (),
    by: Literal["call", "turn"] = "call",
    dilate: int = 0,
    longest: int | None = None,
    out: str | Path | None = None,
    workers: int | None = 1,
    tools: str | Path | None = None,
    instance: str | None = None,
    status: StatusOf | None = None,
    patches: Mapping[str, Mapping[str, str]] | None = None,
    fresh: bool = False,
    cache: str | Path | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> TraceResults:
    """Every run of every file, scored; the rows are in `TraceResults.path`.

    `traces`: files and folders of logs in any known format, by label for several sets of runs side by side; or traces. `repos`: where
    the repositories are (see `Repositories`); what has none is scored without. `out`: a folder to keep the rows in; what is there already
    is not scored again unless `fresh`. `workers`: processes; `None`: as many as pay (a script needs
    `if __name__ == "__main__"` then). `tools`: further rows of the table of tools.
    `instance`: the task that all runs are about, where the logs do not say. `status(run, gold)`: what the harness found. `patches`: by set
    (of the empty name: for all sets) and task the patch that was handed in, for logs that hold none. `cache`: a folder for the definitions
    of files. `on_done(files, of)` is told the progress.

    A log about none of the golds is a row with the error `no_gold`. Raises `BadInput` where a set holds no trace at all.
    """
    rules = policy_of(policy)
    result = _opened(out, _golds(gold), rules.name)
    settings = Settings(
        rules.name,
        tuple(sorted(count)),
        by,
        dilate,
        longest,
        tuple(_specs(repos)),
        str(tools) if tools else None,
        instance,
        str(cache) if cache else None,
        {run: dict(told) for run, told in (patches or {}).items() if told},
    )
    Repositories(settings.repos).close()  # a place that is none is told before anything is read
    result.repos, result.counted = list(settings.repos), list(settings.counted)
    if not isinstance(traces, str | Path | Mapping):
        given = list(traces)
        if given and not isinstance(given[0], str | Path):
            return _of_traces(result, given, settings, status, repos)  # type: ignore[arg-type]
        traces = given  # type: ignore[assignment]
    return _of_files(result, list(_units(traces, result)), settings, status, fresh, workers, on_done)  # type: ignore[arg-type]


def _opened(out: str | Path | None, golds: GoldSet, policy: str) -> TraceResults:
    """A place for the rows; one that nobody named goes away with its results."""
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="context-bench-traces-"))
    folder.mkdir(parents=True, exist_ok=True)
    result = TraceResults(folder / ROWS, golds, policy, [], kept=out is not None)
    if out is None:
        weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def _specs(repos: Repositories | Repo | str | Path | Sequence[str | Path] | None) -> Sequence[str]:
    """Where the repositories are, in words; nothing of one that is open already."""
    if isinstance(repos, Repositories):
        return repos.specs
    if isinstance(repos, str | Path):
        return [str(repos)]
    return [str(spec) for spec in repos] if isinstance(repos, Sequence) else []


def _golds(gold: str | Path | GoldSet | Iterable[Gold]) -> GoldSet:
    if isinstance(gold, GoldSet):
        return gold
    if isinstance(gold, str | Path):
        return load_gold(gold)
    out = GoldSet()
    for one in [gold] if isinstance(gold, Gold) else gold:
        out.add(one)
    return out


def _units(traces: Sources, result: TraceResults) -> Iterator[Unit]:
    """The files of every set. What does not exist is an error; what holds no trace is found out later."""
    sets: Mapping[str, Any] = traces if isinstance(traces, Mapping) else {"": traces}
    for run, places in sets.items():
        result.runs.append(run)
        for place in [places] if isinstance(places, str | Path) else places:
            path = Path(place)
            if not path.exists():
                raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
            if path.is_dir():
                yield from (Unit(run, str(one), str(path)) for one in units(path))
            else:
                yield Unit(run, str(path))


def _of_files(
    result: TraceResults,
    found: Sequence[Unit],
    settings: Settings,
    status: StatusOf | None,
    fresh: bool,
    workers: int | None,
    on_done: Callable[[int, int], None] | None,
) -> TraceResults:
    """What an earlier run left is kept; the other files are scored."""
    job = Job(settings, result.golds)
    kept = Kept(result.path, job, found, fresh, status)
    result.reused = kept.rows
    todo = [unit for unit in found if job.key(unit) not in kept.done] if kept.rows or kept.done else found
    with result.path.open("ab") as rows, result.path.with_name(DONE).open("ab") as done:
        sink = Sink(result, rows, done, status)
        sink.seen(kept.seen)
        work_off(job, todo, kept, sink, workers, on_done)
    for run in result.runs:
        if not sink.counts.get(run) and not kept.counts.get(run):
            faults = "\n".join(f"  - {path}: {why}" for path, why in list(result.unread.items())[:5]) or "  - nothing was found"
            result.close()
            raise BadInput(f"no traces{f' in the set {run}' if len(result.runs) > 1 else ''}:\n{faults}")
    bring_into_order(result, [job.key(unit) for unit in found if unit.path not in result.unread], [*kept.index, *sink.index])
    return result


def _of_traces(result: TraceResults, traces: Iterable[Trace], settings: Settings, status: StatusOf | None, repo: Any) -> TraceResults:
    """Traces that are there already: nothing to resume, nothing to read."""
    job = Job(settings, result.golds)
    if repo is not None and not isinstance(repo, Repositories | str | Path | Sequence):
        job.repos = OneRepository(repo)
    elif isinstance(repo, Repositories):
        job.repos = repo
    result.runs.append("")
    with result.path.open("wb") as rows, result.path.with_name(DONE).open("wb") as done:
        sink = Sink(result, rows, done, status)
        attempts: dict[str, int] = {}
        for trace in traces:
            row = job.row("", trace, result.golds.find(settings.instance or trace.instance_id))
            attempts[row.instance_id] = row.attempt = attempts.get(row.instance_id, 0) + 1
            sink.add(row)
    if not isinstance(repo, Repositories):
        job.repos.close()
    return result
