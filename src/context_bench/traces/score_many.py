"""Score many recorded runs against their golds: each set is a run of the engine, in a store beside the file of rows.

The engine does what is owed, keeps it, and goes on where it stopped; the file of rows is written from the store when
all is done. With a folder to keep both in, a row is made once: the same log against the same gold with the same
settings is taken from the store.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.core.roles import CANDIDATE, described_cell
from context_bench.shell.repo import Repo
from context_bench.stats.solving import Status
from context_bench.traces.coverage import Policy
from context_bench.traces.evaluators import EditPlace, GoldCoverage, Resolved, Trajectory
from context_bench.traces.gold import Gold, GoldSet, load_gold
from context_bench.traces.recorded_runs import (
    DATASET,
    RecordedRun,
    RecordedRuns,
    RunLog,
    Scoring,
    Settings,
    TraceScorer,
    example_of,
    output_of,
)
from context_bench.traces.repositories import OneRepository, Repositories
from context_bench.traces.score_one import golds_sha, policy_of, require_countable, trace_sha
from context_bench.traces.symbols import grammar_versions
from context_bench.traces.trace_rows import ROWS, TraceRow, read_rows
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces import units

if TYPE_CHECKING:  # a process that scores has no loop
    from asyncio import Task

Sources = str | Path | Sequence[str | Path] | Mapping[str, str | Path | Sequence[str | Path]]
StatusOf = Callable[[str, Gold], Status]
STORE = "store.db"
#: The name of a run whose set has none.
UNNAMED = "traces"
#: The score that such a run is about.
SCORE = "coverage.line"
#: Processes are worth their start from here on: bytes of logs.
_WORTH = 16 * 1024 * 1024


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
    def store(self) -> Path:
        """The store of the runs, one for each set."""
        return self.path.with_name(STORE)

    @property
    def without_trace(self) -> dict[str, list[str]]:
        """By set: golds that no trace of it is about."""
        return {
            run: [gold.instance_id for gold in self.golds if gold.instance_id not in self.seen.get(run, ())]
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

    `traces`: files and folders of logs in any known format, by label for several sets of runs side by side; or traces.
    `repos`: where the repositories are (see `Repositories`); what has none is scored without. `out`: a folder to keep
    the rows in, and the store of the runs; what is there already is not scored again unless `fresh`. `workers`:
    processes; `None`: as many as pay (a script needs `if __name__ == "__main__"` then). `tools`: further rows of the
    table of tools. `instance`: the task that all runs are about, where the logs do not say. `status(run, gold)`: what
    the harness found. `patches`: by set (of the empty name: for all sets) and task the patch that was handed in, for
    logs that hold none. `cache`: a folder for the definitions of files. `on_done(files, of)` is told the progress.

    A log about none of the golds is a row with the error `no_gold`. Raises `BadInput` where a set holds no trace at
    all.
    """
    rules = policy_of(policy)
    require_countable(count)
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
        {run: dict(patch_of) for run, patch_of in (patches or {}).items() if patch_of},
    )
    Repositories(settings.repos).close()  # a place that is none is told before anything is read
    result.repos, result.counted = list(settings.repos), list(settings.counted)
    given: Any = traces if isinstance(traces, str | Path | Mapping) else list(traces)
    in_memory = isinstance(given, list) and bool(given) and isinstance(given[0], Trace)
    if fresh or in_memory:
        for part in result.path.parent.glob(f"{STORE}*"):
            part.unlink()
    scorer = TraceScorer(settings, result.golds)
    runs = TraceRuns(result, settings, scorer.sha, status, on_done)
    if in_memory:
        _execute(result, runs, [_of_traces(given, scorer, repos)], 1)
        return result
    logs = _logs(given)
    scoring = Scoring(scorer, _workers([log for own in logs.values() for log in own], workers))
    try:
        sets = [_of_logs(label, own, scorer, scoring) for label, own in logs.items()]
        _execute(result, runs, sets, 1 if scoring.count == 1 else 2 * scoring.count)
    finally:
        scoring.close()
        scorer.repos.close()
    return result


def _execute(result: TraceResults, runs: TraceRuns, sets: Sequence[TraceSet], workers: int) -> None:
    from context_bench.llm.background import run_sync

    try:
        run_sync(runs.run(sets, workers))
    except BaseException:
        result.close()
        if runs.stopped is not None:
            raise runs.stopped from None
        raise


@dataclass(slots=True)
class TraceSet:
    """One set of recorded runs, ready to be executed. `recorded`: their logs, unless they are traces in memory."""

    label: str
    examples: Iterable[Example]
    ask: Callable[[Example], Any]
    recorded: RecordedRuns | None = None

    @property
    def name(self) -> str:
        """The name of its run and of its system."""
        return self.label or UNNAMED


class TraceRuns:
    """The runs of one call of `score_traces`: executed one after the other, then written as rows."""

    def __init__(
        self,
        result: TraceResults,
        settings: Settings,
        sha: str,
        status: StatusOf | None,
        on_done: Callable[[int, int], None] | None,
    ) -> None:
        self._result, self._settings, self._sha, self._status = result, settings, sha, status
        self._on_done = on_done
        self.stopped: BaseException | None = None  # what `on_done` raised: raised in a loop, it would end the loop

    async def run(self, sets: Sequence[TraceSet], workers: int) -> None:
        """Execute the sets, then write the file of rows."""
        from context_bench.engine import open_store

        with closing(open_store(self._result.store)) as store:
            runs = {one.label: await self._execute(store, one, workers) for one in sets}
            new = self._result.path.with_name(f"{ROWS}.new")
            with new.open("wb") as file:
                for one in sets:
                    file.writelines(self._lines(store, runs[one.label], one))
            new.replace(self._result.path)

    async def _execute(self, store: Any, one: TraceSet, workers: int) -> str:
        """Have the engine do what is owed of one set; returns the run's id."""
        from asyncio import CancelledError, current_task

        from context_bench.engine import Arm, RunSettings, execute

        progress = FileProgress(one, self._on_done, current_task())
        executed = await execute(
            store,
            name=one.name,
            arms=[Arm(RecordedRun(one.name, one.ask, self._sha))],
            examples=one.examples,
            evaluators=self._evaluators(one.label),
            manifest=self._manifest(one),
            settings=RunSettings(max_workers=workers, bodies="all", late_grace=0.0),
            progress=progress,
        )
        self.stopped = progress.stopped
        if executed.stopped is not None:
            raise executed.stopped
        if not executed.completed:
            raise CancelledError
        result = self._result
        result.runs.append(one.label)
        result.made += executed.counts["done"]
        result.reused += executed.counts["reused"]
        if not executed.examples:
            result.unread |= one.recorded.unread(()) if one.recorded is not None else {}
            unread = "\n".join(f"  - {path}: {why}" for path, why in list(result.unread.items())[:5])
            named = f" in the set {one.label}" if one.label else ""
            raise BadInput(f"no traces{named}:\n{unread or '  - nothing was found'}")
        return executed.run_id

    def _evaluators(self, label: str) -> list[Any]:
        rules = self._settings.rules
        judged = []
        if self._status is not None:
            judged.append(Resolved({gold.instance_id: self._status(label, gold) for gold in self._result.golds}))
        return [GoldCoverage(rules), Trajectory(rules), EditPlace(rules), *judged]

    def _manifest(self, one: TraceSet) -> dict[str, Any]:
        golds, sha = self._result.golds, golds_sha(self._result.golds)
        return {
            "traces": {
                "set": one.label,
                **self._settings.rules,
                "gold": {"sha": sha, "instances": len(golds)},
                "repositories": list(self._settings.repos),
                "grammars": grammar_versions(),
            },
            "datasets": [{"name": DATASET, "sha256": sha, "examples": len(golds)}],
            "cells": [described_cell({}, {one.name: CANDIDATE}, None)],
            "margin": {"value": None, "rule": "min(0.02, 10 % of full − none)", "score_field": SCORE},
            "options": {"score_field": SCORE, "threshold": 0.5, "seed": 0, "trials": 1},
        }

    def _lines(self, store: Any, run: str, one: TraceSet) -> Iterator[bytes]:
        """The rows of a stored run, in the order of the logs. A run that could not be scored is told as its log's."""
        from context_bench.engine import run_of
        from context_bench.engine.store.reading import stored

        result, logs = self._result, set[str]()
        seen = result.seen.setdefault(one.label, set())
        for found in stored(store, run_of(store, run).number):
            example = found.example or {}
            logs.add(str(example.get("log")))
            if "row" not in found.output:
                path = example.get("task") if one.recorded is None else one.recorded.log(example["log"]).path
                result.unread[str(path)] = "; ".join(found.row.errors.values())
                continue
            line = found.output["row"].encode()
            gold = None if self._status is None else result.golds.find(example.get("task"))
            if self._status is not None and gold is not None:
                line = orjson.dumps(orjson.loads(line) | {"status": self._status(one.label, gold)})
            seen.add(str(example.get("task")))
            yield line + b"\n"
        if one.recorded is not None:
            result.unread |= one.recorded.unread(logs)


class FileProgress:
    """Tells `on_done` how many logs are done, as rows become durable. What it raises ends the run: `stopped`."""

    def __init__(self, one: TraceSet, on_done: Callable[[int, int], None] | None, task: Task[Any] | None) -> None:
        self._recorded, self._on_done, self._task = one.recorded, on_done, task
        self._rows = self._kept = 0
        self._files = self._end = 0  # logs that are done, and the rows of these
        self.stopped: BaseException | None = None

    def start(self, systems: Sequence[str], total: int | None) -> None:
        """Nothing is done yet."""

    def planned(self, system: str, total: int | None, kept: int) -> None:
        """Rows that the store had already are done."""
        self._kept = kept

    def advance(self, step: Any) -> None:
        """A row is durable."""
        self._rows += 1
        if self._on_done is None or self.stopped is not None or self._recorded is None:
            return
        runs, before = self._recorded.runs, self._files
        while self._files < len(runs) and self._end + runs[self._files] <= self._rows + self._kept:
            self._end += runs[self._files]
            self._files += 1
        if self._files == before:
            return
        try:
            self._on_done(self._files, len(self._recorded))
        except BaseException as error:  # the caller's: it is raised where the run was asked for
            self.stopped = error
            if self._task is not None:
                self._task.cancel()

    def note(self, text: str) -> None:
        """Nothing is said but the progress."""

    def close(self) -> None:
        """The run is over."""


def _opened(out: str | Path | None, golds: GoldSet, policy: str) -> TraceResults:
    """A place for the rows; one that nobody named goes away with its results."""
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="context-bench-traces-"))
    folder.mkdir(parents=True, exist_ok=True)
    result = TraceResults(folder / ROWS, golds, policy, [], kept=out is not None)
    if out is None:
        weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def _specs(repos: Repositories | Repo | str | Path | Sequence[str | Path] | None) -> Sequence[str]:
    """Describe the places of the repositories; nothing of one that is open already."""
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


def _logs(traces: Sources) -> dict[str, list[RunLog]]:
    """The logs of every set. What does not exist is an error; what holds no trace is found out later."""
    sets: Mapping[str, Any] = traces if isinstance(traces, Mapping) else {"": traces}
    return {
        run: [log for place in ([places] if isinstance(places, str | Path) else places) for log in _in(run, place)]
        for run, places in sets.items()
    }


def _in(run: str, place: str | Path) -> list[RunLog]:
    path = Path(place)
    if not path.exists():
        raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
    if path.is_dir():
        return [RunLog(run, str(one), str(path)) for one in units(path)]
    return [RunLog(run, str(path))]


def _of_logs(label: str, logs: Sequence[RunLog], scorer: TraceScorer, scoring: Scoring) -> TraceSet:
    runs = RecordedRuns(logs, scorer, scoring.read)
    return TraceSet(label, runs, scoring.of(runs), runs)


def _of_traces(traces: Sequence[Trace], scorer: TraceScorer, repo: Any) -> TraceSet:
    """Traces that are there already."""
    if isinstance(repo, Repositories):
        scorer.repos = repo
    elif repo is not None and not isinstance(repo, str | Path | Sequence):
        scorer.repos = OneRepository(repo)
    examples: list[Example] = []
    attempts: Counter[str] = Counter()
    for number, trace in enumerate(traces):
        gold = scorer.golds.find(scorer.settings.instance or trace.instance_id)
        task = trace.instance_id if gold is None else gold.instance_id
        attempts[task] += 1
        examples.append({**example_of(task, attempts[task], gold), "log": trace_sha(trace), "number": number})

    async def ask(example: Example) -> dict[str, Any]:
        trace = traces[example["number"]]
        row = scorer.row("", trace, scorer.golds.find(example["task"]))
        row.attempt = example["attempt"]
        return output_of(row, trace)

    return TraceSet("", examples, ask)


def _workers(logs: Sequence[RunLog], workers: int | None) -> int:
    if workers is not None:
        return max(1, min(workers, len(logs)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or len(logs) < 2:
        return 1
    return min(cores, len(logs), 8) if sum(_length(Path(log.path)) for log in logs) >= _WORTH else 1


def _length(path: Path) -> int:
    with suppress(OSError):
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path.stat().st_size
    return 0
