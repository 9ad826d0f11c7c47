"""Many runs against their golds: file by file, in processes where that pays, each row on disk before the next file is begun.

Memory does not grow with the number of runs: rows are written as they come and read back where they are needed. With a folder to keep them
in, a row is made once: the same log against the same gold in the same way is taken from what is there.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Repo
from context_bench.traces.coverage import Policy
from context_bench.traces.gold import Gold
from context_bench.traces.gold_files import GoldSet, load_gold
from context_bench.traces.job import Job, OneRepository, Unit
from context_bench.traces.keeping import DONE, Kept, Sink, StatusOf, bring_into_order
from context_bench.traces.repositories import Repositories
from context_bench.traces.results import ROWS, TraceResults
from context_bench.traces.scoring import policy_of
from context_bench.traces.settings import Settings
from context_bench.traces.spreading import work_off
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.read import units

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
