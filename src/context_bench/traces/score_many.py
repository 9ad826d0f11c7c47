"""Score many runs against their golds: file by file, in processes if that pays, each row on disk before the next file
is begun.

Memory does not grow with the number of runs: rows come back from processes as bytes, are written as they come and are
read back later. With a folder to keep them in, a row is made once: the same log against the same gold with the same
settings is taken from that folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Repo
from context_bench.traces.coverage import Policy
from context_bench.traces.gold import Gold, GoldSet, load_gold
from context_bench.traces.job import OneRepository, ScoringJob, Settings, TraceItem
from context_bench.traces.row_file import (
    DONE,
    ROWS,
    KeptRows,
    RowFacts,
    Sink,
    StatusOf,
    TraceResults,
    bring_into_order,
    line_of,
)
from context_bench.traces.score_one import policy_of
from context_bench.traces.symbols import Repositories
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.trace_files import units

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

    `traces`: files and folders of logs in any known format, by label for several sets of runs side by side; or traces.
    `repos`: where the repositories are (see `Repositories`); what has none is scored without. `out`: a folder to keep
    the rows in; what is there already is not scored again unless `fresh`. `workers`: processes; `None`: as many as pay
    (a script needs `if __name__ == "__main__"` then). `tools`: further rows of the table of tools.
    `instance`: the task that all runs are about, where the logs do not say. `status(run, gold)`: what the harness
    found. `patches`: by set (of the empty name: for all sets) and task the patch that was handed in, for logs that hold
    none. `cache`: a folder for the definitions of files. `on_done(files, of)` is told the progress.

    A log about none of the golds is a row with the error `no_gold`. Raises `BadInput` where a set holds no trace at
    all.
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


def _units(traces: Sources, result: TraceResults) -> Iterator[TraceItem]:
    """The files of every set. What does not exist is an error; what holds no trace is found out later."""
    sets: Mapping[str, Any] = traces if isinstance(traces, Mapping) else {"": traces}
    for run, places in sets.items():
        result.runs.append(run)
        for place in [places] if isinstance(places, str | Path) else places:
            path = Path(place)
            if not path.exists():
                raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
            if path.is_dir():
                yield from (TraceItem(run, str(one), str(path)) for one in units(path))
            else:
                yield TraceItem(run, str(path))


def _of_files(
    result: TraceResults,
    found: Sequence[TraceItem],
    settings: Settings,
    status: StatusOf | None,
    fresh: bool,
    workers: int | None,
    on_done: Callable[[int, int], None] | None,
) -> TraceResults:
    """Keep the rows of an earlier run and score the other files."""
    job = ScoringJob(settings, result.golds)
    kept = KeptRows(result.path, job, found, fresh, status)
    result.reused = kept.rows
    todo = [unit for unit in found if job.key(unit) not in kept.done] if kept.rows or kept.done else found
    with result.path.open("ab") as rows, result.path.with_name(DONE).open("ab") as done:
        sink = Sink(result, rows, done, status)
        sink.seen(kept.seen)
        work_off(job, todo, kept, sink, workers, on_done)
    for run in result.runs:
        if not sink.counts.get(run) and not kept.counts.get(run):
            faults = (
                "\n".join(f"  - {path}: {why}" for path, why in list(result.unread.items())[:5])
                or "  - nothing was found"
            )
            result.close()
            raise BadInput(f"no traces{f' in the set {run}' if len(result.runs) > 1 else ''}:\n{faults}")
    bring_into_order(
        result, [job.key(unit) for unit in found if unit.path not in result.unread], [*kept.index, *sink.index]
    )
    return result


def _of_traces(
    result: TraceResults, traces: Iterable[Trace], settings: Settings, status: StatusOf | None, repo: Any
) -> TraceResults:
    """Traces that are there already: nothing to resume, nothing to read."""
    job = ScoringJob(settings, result.golds)
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


#: Processes are worth their start from here on: bytes of logs.
_WORTH = 16 * 1024 * 1024


def work_off(
    job: ScoringJob,
    todo: Sequence[TraceItem],
    kept: KeptRows,
    sink: Sink,
    workers: int | None,
    on_done: Callable[[int, int], None] | None,
) -> None:
    """Every file that is to do, in this process or in several; `on_done(files, of)` is told after each."""
    count = _workers(todo, workers)
    if count > 1:
        _in_processes(job, todo, kept, sink, count, on_done)
        return
    try:
        for number, unit in enumerate(todo, 1):
            fault = None
            try:
                for row in job.rows(unit, kept.known.get(job.key(unit), ())):
                    sink.add(row)
            except BadInput as error:
                fault = _first_line(error)
            sink.finished(unit, job.key(unit), fault)
            if on_done:
                on_done(number, len(todo))
    finally:
        job.repos.close()


def _workers(todo: Sequence[TraceItem], workers: int | None) -> int:
    if workers is not None:
        return max(1, min(workers, len(todo)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or len(todo) < 2:
        return 1
    return min(cores, len(todo), 8) if sum(_length(Path(unit.path)) for unit in todo) >= _WORTH else 1


def _length(path: Path) -> int:
    with suppress(OSError):
        return (
            sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
            if path.is_dir()
            else path.stat().st_size
        )
    return 0


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300]


_JOB: ScoringJob | None = None


def _begin(settings: Settings, golds: GoldSet) -> None:
    global _JOB
    _JOB = ScoringJob(settings, golds)


_Made = tuple[
    str, list["RowFacts"], str, str | None
]  # file of rows, what the parent must know of each, key, what went wrong


def _one(unit: TraceItem, known: Collection[tuple[str, str]], folder: str) -> _Made:
    """In a process of its own: the rows of a file into a file, so that they need not fit into memory."""
    assert _JOB is not None  # set when the process began
    fault = None
    rows: list[RowFacts] = []
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            for row in _JOB.rows(unit, known):
                rows.append(
                    RowFacts(row.run, row.instance_id, row.key, row.attempt, row.gold_sha, file.write(line_of(row)))
                )
        except BadInput as error:
            fault = _first_line(error)
    return file.name, rows, _JOB.key(unit), fault


def _in_processes(
    job: ScoringJob,
    todo: Sequence[TraceItem],
    kept: KeptRows,
    sink: Sink,
    count: int,
    on_done: Callable[[int, int], None] | None,
) -> None:
    waiting = iter(todo)
    running: dict[Future[_Made], TraceItem] = {}
    finished = 0
    with (
        tempfile.TemporaryDirectory(prefix="context-bench-rows-") as folder,
        ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=_begin, initargs=(job.settings, job.golds)
        ) as pool,
    ):

        def more() -> None:
            while len(running) < 2 * count and (unit := next(waiting, None)) is not None:
                running[
                    pool.submit(_one, unit, kept.known.get(job.key(unit), set()) if kept.known else set(), folder)
                ] = unit

        more()
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit = running.pop(future)
                name, rows, key, fault = future.result()
                job.learn(unit, key)
                with Path(name).open("rb") as file:
                    for row in rows:
                        sink.take(row, file.read(row.length))
                Path(name).unlink()
                sink.finished(unit, key, fault)
                finished += 1
                if on_done:
                    on_done(finished, len(todo))
            more()
