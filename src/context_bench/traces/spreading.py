"""Files of traces on their way through one process or several; rows come back as bytes, so that they need not fit into memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from context_bench.core.errors import BadInput
from context_bench.traces.gold_files import GoldSet
from context_bench.traces.job import Job, Unit
from context_bench.traces.keeping import Kept, Known, Sink, line_of
from context_bench.traces.settings import Settings

#: Processes are worth their start from here on: bytes of logs.
_WORTH = 16 * 1024 * 1024


def work_off(
    job: Job, todo: Sequence[Unit], kept: Kept, sink: Sink, workers: int | None, on_done: Callable[[int, int], None] | None
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


def _workers(todo: Sequence[Unit], workers: int | None) -> int:
    if workers is not None:
        return max(1, min(workers, len(todo)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or len(todo) < 2:
        return 1
    return min(cores, len(todo), 8) if sum(_length(Path(unit.path)) for unit in todo) >= _WORTH else 1


def _length(path: Path) -> int:
    with suppress(OSError):
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) if path.is_dir() else path.stat().st_size
    return 0


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300]


_JOB: Job | None = None


def _begin(settings: Settings, golds: GoldSet) -> None:
    global _JOB
    _JOB = Job(settings, golds)


_Made = tuple[str, list["Known"], str, str | None]  # file of rows, what the parent must know of each, key, what went wrong


def _one(unit: Unit, known: Collection[tuple[str, str]], folder: str) -> _Made:
    """In a process of its own: the rows of a file into a file, so that they need not fit into memory."""
    assert _JOB is not None  # set when the process began
    fault = None
    rows: list[Known] = []
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            for row in _JOB.rows(unit, known):
                rows.append(Known(row.run, row.instance_id, row.key, row.attempt, row.gold_sha, file.write(line_of(row))))
        except BadInput as error:
            fault = _first_line(error)
    return file.name, rows, _JOB.key(unit), fault


def _in_processes(job: Job, todo: Sequence[Unit], kept: Kept, sink: Sink, count: int, on_done: Callable[[int, int], None] | None) -> None:
    waiting = iter(todo)
    running: dict[Future[_Made], Unit] = {}
    finished = 0
    with (
        tempfile.TemporaryDirectory(prefix="context-bench-rows-") as folder,
        ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin, initargs=(job.settings, job.golds)) as pool,
    ):

        def more() -> None:
            while len(running) < 2 * count and (unit := next(waiting, None)) is not None:
                running[pool.submit(_one, unit, kept.known.get(job.key(unit), set()) if kept.known else set(), folder)] = unit

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
