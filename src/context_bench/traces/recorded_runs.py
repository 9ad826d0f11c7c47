"""Recorded runs as a run of the engine: the logs of a set are its dataset, what they recorded is its system.

`Settings` holds all that a row depends on; a row is made again only when its hash differs. `TraceScorer` does the work
of one process: gold and repository of each recorded run, its patch, its row.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import orjson
import zstandard

from context_bench.core.errors import BadInput, Stop, describe
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import YOUNG, opened
from context_bench.core.records import Call, Example
from context_bench.shell.repo import Repo
from context_bench.traces.figures import figures_of
from context_bench.traces.gold import Gold, GoldSet
from context_bench.traces.repositories import Repositories, task_names
from context_bench.traces.score_one import golds_sha, score_trace, unscored
from context_bench.traces.symbols import grammar_versions
from context_bench.traces.trace_rows import TraceRow
from context_bench.transcripts.trace import Trace, utf8_clean
from context_bench.transcripts.traces import Transcript, Vocabulary, trace_of, transcripts_in

#: Part of every key: rows made by another state of this code are made again.
_VERSION = 3
#: The name of the dataset of every such run, so that runs against one gold can be compared.
DATASET = "gold"
Read = Callable[[str], list[tuple[str, bytes | None]]]
#: Bytes of transcripts that were read for their names and wait to be scored, and the level at which they are packed.
_READ_AHEAD, _QUICKLY = 16 * 1024 * 1024, 1


@dataclass(frozen=True)
class Settings:
    """All that a row depends on beside its log and its gold."""

    policy: str
    counted: tuple[str, ...]
    by: Literal["call", "turn"]
    dilate: int
    longest: int | None
    repos: tuple[str, ...]
    tools: str | None
    instance: str | None
    cache: str | None
    patches: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def sha(self, golds: GoldSet) -> str:
        """A hash of them, of the gold and of the grammars."""
        files = [
            (spec, content_sha(Path(spec)) if Path(spec).is_file() else _stamps(Path(spec))) for spec in self.repos
        ]
        tools = content_sha(Path(self.tools)) if self.tools else ""
        parts = [
            _VERSION,
            self.policy,
            self.counted,
            self.by,
            self.dilate,
            self.longest,
            files,
            tools,
            self.instance,
            golds_sha(golds),
            grammar_versions(),
            *([self.patches] if self.patches else []),
        ]
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def rules(self) -> dict[str, Any]:
        """The settings that decide what a figure means."""
        return {
            "policy": self.policy,
            "counted": list(self.counted),
            "by": self.by,
            "dilate": self.dilate,
            "longest": self.longest,
        }


def content_sha(path: Path) -> str:
    """A hash of a file's bytes, or of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]:
        digest.update(file.name.encode("utf-8", "surrogateescape") + b"\0")
        with opened(file) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _stamps(folder: Path) -> str:
    """A hash of names, sizes and times of a folder's files, which is much cheaper than their content; of git, where its
    branches are.
    """
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        if "HEAD" in files and "objects" in folders:
            folders[:], files = ["refs"], ["HEAD", "packed-refs"]
        folders.sort()
        for name in sorted(files):
            with suppress(OSError):
                stat = (Path(place) / name).stat()
                stamp = f"{place}\0{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n"
                digest.update(stamp.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RunLog:
    """A file of one or more recorded runs, or a folder that is one. `run`: the label of its set; `within`: the folder
    it was found in.
    """

    run: str
    path: str
    within: str | None = None

    def key(self, settings: str) -> str:
        """A hash of everything the rows of this log depend on. `settings`: that of all settings."""
        path = Path(self.path)
        parts = f"{settings}\0{self.run}\0{path.name}\0{path.parent.name}\0{content_sha(path)}"
        return hashlib.sha256(parts.encode("utf-8", "backslashreplace")).hexdigest()[:24]


class RecordedRuns:
    """The dataset of one set: an example for each recorded run, in the order of the logs.

    Beside what `example_of` gives, it has `log` (the hash of what its row depends on) and the `number` of the run in
    that log, from 0. Equal logs and settings are known again without being read (`Fingerprinted`). `read` gives the
    names of a log's runs with their transcripts (`transcripts_of`).

    Attributes:
        runs: the number of recorded runs in each log read so far.
    """

    def __init__(self, logs: Sequence[RunLog], scorer: TraceScorer, read: Read | None = None) -> None:
        self._logs, self._scorer, self._transcripts = logs, scorer, read or transcripts_of
        self._keys = [log.key(scorer.sha) for log in logs]
        self._read = ReadAhead()
        self._faults: dict[str, str] = {}
        self._unchecked: list[tuple[RunLog, str]] = []
        self._same = True
        self.runs: list[int] = []

    def __len__(self) -> int:
        return len(self._logs)

    def fingerprint(self) -> list[str]:
        """The hashes of the logs."""
        return self._keys

    def unchanged(self) -> bool:
        """True if the logs that were read so far are what they were. Each is read again for this once: the engine asks
        after every few examples.
        """
        read, self._unchecked = self._unchecked, []
        self._same = self._same and all(log.key(self._scorer.sha) == key for log, key in read)
        return self._same

    def __iter__(self) -> Iterator[Example]:
        attempts: Counter[str] = Counter()
        for log, key in zip(self._logs, self._keys, strict=True):
            names = self._names(log, key)
            self._unchecked.append((log, key))
            self.runs.append(len(names))
            for number, name in enumerate(names):
                gold = self._scorer.gold_of(name, log)
                task = _task(name, log) if gold is None else gold.instance_id
                attempts[task] += 1
                yield {**example_of(task, attempts[task], gold), "log": key, "number": number}

    def _names(self, log: RunLog, key: str) -> list[str]:
        """The names of a log's runs; none, and the reason kept, if it cannot be read."""
        try:
            found = self._transcripts(log.path)
        except BadInput as error:
            self._faults[key] = str(error).splitlines()[0][:300].removeprefix(f"{log.path}: ")
            return []
        for number, (_, packed) in enumerate(found):
            self._read.keep((key, number), packed)
        return [name for name, _ in found]

    def work(self, example: Example) -> tuple[RunLog, int, int, str, bytes | None]:
        """The arguments of `TraceScorer.answer` for an example."""
        key, number = example["log"], example["number"]
        return self.log(key), number, example["attempt"], key, self._read.take((key, number))

    def log(self, key: str) -> RunLog:
        """The log of that hash."""
        return self._logs[self._keys.index(key)]

    def unread(self, stored: Collection[str]) -> dict[str, str]:
        """The logs without a stored run, by path, each with the reason. `stored`: the hashes of all others."""
        missing = [(log, key) for log, key in zip(self._logs, self._keys, strict=True) if key not in stored]
        for log, key in missing:
            if key not in self._faults:
                self._names(log, key)
        return {log.path: self._faults[key] for log, key in missing if key in self._faults}


def transcripts_of(path: str) -> list[tuple[str, bytes | None]]:
    """The runs of a log: the name of each, and packed what a trace needs of its transcript, as long as all that was
    packed of the log has room.
    """
    found: list[tuple[str, bytes | None]] = []
    size = 0
    for one in transcripts_in(Path(path)):
        packed = _packed(one) if size < _READ_AHEAD else None
        size += len(packed or b"")
        found.append((one.ident, packed))
    return found


def _packed(one: Transcript) -> bytes | None:
    lean = replace(one, contexts=[], within=[], sent=None, retrace=None, _open={})
    with suppress(pickle.PicklingError, AttributeError, TypeError):  # of a program's own kind: it is read again
        return zstandard.ZstdCompressor(_QUICKLY).compress(pickle.dumps(lean, pickle.HIGHEST_PROTOCOL))
    return None


def _unpacked(packed: bytes) -> Transcript:
    one: Transcript = pickle.loads(zstandard.ZstdDecompressor().decompress(packed))
    return one


class ReadAhead:
    """Transcripts that were read for their names, packed, until they are scored: a log need not be read twice.

    At most `_READ_AHEAD` bytes; the oldest make room, and are read again if they are asked for.
    """

    def __init__(self) -> None:
        self._packed: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # read in one thread, taken in another

    def keep(self, place: tuple[str, int], packed: bytes | None) -> None:
        """Keep a packed transcript."""
        if packed is None:
            return
        with self._lock:
            self._packed[place] = packed
            self._size += len(packed)
            while self._size > _READ_AHEAD and self._packed:
                self._size -= len(self._packed.popitem(last=False)[1])

    def take(self, place: tuple[str, int]) -> bytes | None:
        """The packed transcript, once."""
        with self._lock:
            packed = self._packed.pop(place, None)
            self._size -= len(packed or b"")
            return packed


def example_of(task: str, attempt: int, gold: Gold | None) -> Example:
    """The example of a recorded run: `id` (`TASK (2)` for the second attempt), `task`, `attempt` from 1, and as
    `cluster` the repository.
    """
    return {
        "id": task if attempt == 1 else f"{task} ({attempt})",
        "dataset": DATASET,
        "cluster": (gold.repo if gold is not None else None) or task,
        "task": task,
        "attempt": attempt,
    }


class TraceScorer:
    """Scores recorded runs in one process; repositories stay open, and so does the log that was read last."""

    def __init__(self, settings: Settings, golds: GoldSet, sha: str | None = None) -> None:
        self.settings, self.golds = settings, golds
        self.sha = settings.sha(golds) if sha is None else sha
        self.repos = Repositories(settings.repos, cache=Path(settings.cache) if settings.cache else None)
        self._vocabulary = Vocabulary.load(settings.tools)
        self._open: tuple[str, int, Iterator[Transcript]] = ("", 0, iter(()))

    def gold_of(self, name: str, log: RunLog) -> Gold | None:
        """The gold of a run that its log calls `name`."""
        if self.settings.instance is not None:
            return self.golds.find(self.settings.instance)
        return self.golds.find(*task_names(name, Path(log.path), log.within))

    def answer(self, log: RunLog, number: int, attempt: int, key: str, packed: bytes | None) -> dict[str, Any]:
        """The output of the system for one recorded run: its `row`, and what the engine is told of it. `packed`: its
        transcript, if that is at hand (`ReadAhead`).
        """
        one = self._transcript(log.path, number) if packed is None else _unpacked(packed)
        gold = self.gold_of(one.ident, log)
        trace = trace_of(one, self._vocabulary, lambda trace: self._files(gold, trace))
        trace = self.patched(log.run, trace, gold)
        row = self.row(log.run, trace, gold)
        if gold is None:
            row.instance_id = _task(trace.instance_id, log)
        row.key, row.attempt = key, attempt
        return output_of(row, trace)

    def _transcript(self, path: str, number: int) -> Transcript:
        """A run of a log. The log stays open, so that its runs, asked for in their order, are read once."""
        opened, position, runs = self._open
        if opened != path or position > number:
            position, runs = 0, transcripts_in(Path(path))
        one = next(islice(runs, number - position, None), None)
        self._open = (path, number + 1, runs)
        if one is None:
            raise BadInput(f"{path}: the log changed while it was read")
        return one

    def _files(self, gold: Gold | None, trace: Trace) -> Repo | None:
        found = self.repos.find(gold, trace.repo, trace.commit) if gold is not None else ""
        return None if isinstance(found, str) else found[0]

    def patched(self, run: str, trace: Trace, gold: Gold | None) -> Trace:
        """With the patch that was handed in, where the log holds none."""
        if gold is None or (trace.patch or "").strip():
            return trace
        handed_in = (self.settings.patches.get(label, {}) for label in (run, ""))
        patch = next((patches[gold.instance_id] for patches in handed_in if gold.instance_id in patches), None)
        note = "patch: from the predictions"
        return trace if patch is None else replace(trace, patch=patch, notes=[*trace.notes, note])

    def row(self, run: str, trace: Trace, gold: Gold | None) -> TraceRow:
        """One run. What goes wrong with it is its row's error and nobody else's."""
        settings = self.settings
        if gold is None:
            return unscored(run, trace, settings.policy, settings.counted, "no_gold")
        found = self.repos.find(gold, trace.repo, trace.commit)
        try:
            row = score_trace(
                gold,
                trace,
                None if isinstance(found, str) else found[1],
                settings.policy,
                run=run,
                count=settings.counted,
                by=settings.by,
                dilate=settings.dilate,
                longest=settings.longest,
            )
        except Stop:
            raise
        except Exception as error:
            row = unscored(run, trace, settings.policy, settings.counted, describe(error))
            row.instance_id, row.repo, row.language = gold.instance_id, gold.repo, gold.language
        if isinstance(found, str):
            row.notes.append(f"no_repo: {found}")
        return row


def output_of(row: TraceRow, trace: Trace) -> dict[str, Any]:
    """A scored run as an output of the engine: the patch, the row as a line of the file, its figures, and what it
    took.
    """
    try:
        line = orjson.dumps(row.to_json())
    except TypeError:  # half a character, cut by a log
        line = orjson.dumps(utf8_clean(row.to_json()))
    facts = {"agent": row.agent or None, "language": row.language, "unscored": row.error}
    figures = {name: value for name, value in figures_of(row).items() if "." in name}
    edits = (row.score.editloc if row.score is not None else None) or {}
    figures |= {
        f"editloc.{name}": float(value)
        for name in ("precision", "recall", "anchored_precision")
        if isinstance(value := edits.get(name), int | float)
    }
    return {
        "response": trace.patch or "",
        "row": line.decode(),
        "figures": figures,
        "facts": facts,
        "recorded": Call(
            "system",
            row.model or "unknown",
            "recorded:trace",
            started=trace.started or 0.0,
            seconds=row.seconds or 0.0,
            usage=row.usage,
            cost=row.cost,
        ),
    }


class RecordedRun:
    """The system of one set: gives to each example what was recorded, scored. `ask` has it made of an example.

    What the run took is in the ledger as one call to `recorded:trace`. The output has the patch as `response`, the
    `row` as a line of the file of rows, and its `figures` by name, which evaluators pick from.
    """

    played_back = True

    def __init__(self, name: str, ask: Callable[[Example], Awaitable[dict[str, Any]]], settings: str) -> None:
        self.name, self._ask, self._settings = name, ask, settings

    def fingerprint(self) -> dict[str, Any]:
        """All settings, as their hash; the logs are in the examples."""
        return {"class": "RecordedRun", "set": self.name, "settings": self._settings}

    def process(self, example: Example) -> Example:
        """`aprocess`, waited for."""
        from context_bench.llm.background import run_sync

        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The example with its recorded run."""
        output = await self._ask(example)
        call = output.pop("recorded")
        if (ledger := current_ledger()) is not None:
            ledger.record(call)
        return {**example, **output}


_SCORER: TraceScorer | None = None


def _begin(settings: Settings, golds: GoldSet, sha: str) -> None:
    global _SCORER
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    _SCORER = TraceScorer(settings, golds, sha)


def _answer(*work: Any) -> dict[str, Any]:
    assert _SCORER is not None  # set when the process began
    return _SCORER.answer(*work)


class Scoring:
    """The place where recorded runs are read and scored: in a thread of this process, or in `count` processes, which
    begin when they are first asked. Reading counts tokens: the vocabulary for that is in these alone.
    """

    def __init__(self, scorer: TraceScorer, count: int) -> None:
        self.count = count
        self._answer: Callable[..., dict[str, Any]] = scorer.answer if count == 1 else _answer
        self._executor: Executor
        if count == 1:
            self._executor = ThreadPoolExecutor(1, "context-bench-traces")
        else:
            begun_with = (scorer.settings, scorer.golds, scorer.sha)
            self._executor = ProcessPoolExecutor(
                count, mp_context=get_context("spawn"), initializer=_begin, initargs=begun_with
            )

    def read(self, path: str) -> list[tuple[str, bytes | None]]:
        """The runs of a log, with their transcripts (`transcripts_of`)."""
        return self._executor.submit(transcripts_of, path).result()

    def of(self, runs: RecordedRuns) -> Callable[[Example], Awaitable[dict[str, Any]]]:
        """The function that scores an example of `runs`."""

        async def ask(example: Example) -> dict[str, Any]:
            from asyncio import get_running_loop

            work = runs.work(example)
            return await get_running_loop().run_in_executor(self._executor, self._answer, *work)

        return ask

    def close(self) -> None:
        """End the processes; what is in work is waited for, what is not begun is given up."""
        self._executor.shutdown(cancel_futures=True)


def _task(name: str, log: RunLog) -> str:
    """The task that a row without gold is about; a log that names none is found again by its folder."""
    path = Path(log.path)
    return f"{path.parent.name}/{name}" if name == path.name.split(".")[0] else name
