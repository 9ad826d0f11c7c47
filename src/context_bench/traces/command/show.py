"""`context-bench trace show`: one run in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.reporting import terminal

if TYPE_CHECKING:
    from context_bench.traces import Repositories
    from context_bench.traces.gold import Gold
    from context_bench.traces.gold_files import GoldSet
    from context_bench.traces.rows import TraceRow
    from context_bench.transcripts.trace import Trace

_MOST_NAMES = 10


def show(
    trace: Annotated[Path, typer.Argument(help="An agent's log, or a folder of logs; the format is recognised.")],
    gold: Annotated[Path | None, typer.Option(help="What should have been read: parquet, JSONL, or a folder of annot.json.")] = None,
    repo: Annotated[
        Path | None, typer.Option(help="The files before the run: a folder, a git clone (PATH@COMMIT), zip, tar, snapshot.json.")
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(help="Which run, where there are several; or the task it is about, where the log does not say.", metavar="ID"),
    ] = None,
    policy: Annotated[str, typer.Option(help="strict, or contextbench-v1 (the original's figures).")] = "strict",
    width: Annotated[int | None, typer.Option(min=40, help="Columns. [default: the terminal's, at most 120; else 80]")] = None,
) -> int:
    """One run: its steps, what each read and how that is known, coverage as it grew, and the gold that was missed.

    Without --gold it shows what was read and edited. Without --repo, lines are as the log tells them.
    """
    from context_bench.traces import Repositories
    from context_bench.traces.gold_files import load_gold
    from context_bench.traces.reports.show import render
    from context_bench.traces.scoring import policy_of

    policy_of(policy)
    golds = load_gold(gold) if gold is not None else None
    with Repositories([str(repo)] if repo is not None else []) as repos:
        rows = _rows(trace, golds, repos, repo, instance, policy)
    drawn = terminal()
    sys.stdout.write("\n".join(render(row, width=width or drawn["width"], color=drawn["color"]) for row in rows))
    return 0


def _rows(path: Path, golds: GoldSet | None, repos: Repositories, repo: Path | None, instance: str | None, policy: str) -> list[TraceRow]:
    """The run that is wanted, in all its attempts; `BadInput` where it is not there or not named."""
    from context_bench.transcripts.solved.record import id_forms
    from context_bench.transcripts.traces import load_traces

    if not path.exists():
        raise BadInput(f"{path}: no such trace (expected an agent's log, or a folder of logs)")
    wanted = set(id_forms(instance)) if instance is not None else None
    only = _files(repo)

    def gold_of(trace: Trace) -> Gold | None:
        name = trace.instance_id
        return golds.find(name, name.rsplit("/", 1)[0], path.absolute().parent.name, instance) if golds is not None else None

    def files_of(trace: Trace) -> Any:
        found = gold_of(trace)
        if found is None:
            return only(trace)
        place = repos.find(found, trace.repo, trace.commit)
        return None if isinstance(place, str) else place[0]

    kept: list[Trace] = []
    names: list[str] = []
    for one in load_traces(path, repo=files_of):
        names.append(one.instance_id)
        if wanted is None or wanted & set(id_forms(one.instance_id)):
            kept = [*kept, one] if wanted is not None or not kept else kept
    if len(names) == 1 and not kept and golds is not None and golds.find(instance) is not None:
        kept = [one]
    if not kept:
        raise BadInput(f"{path}: no run of {instance!r}. There are: {_listed(names)}")
    if wanted is None and len(names) > 1:
        raise BadInput(f"{path} holds {len(names):,} runs: name one with --instance. There are: {_listed(names)}")
    return [_row(one, gold_of(one), golds, repos, only, policy) for one in kept]


def _files(repo: Path | None) -> Any:
    """The repository of a trace, where no gold says which commit it is."""
    from context_bench.shell.repo import open_repo

    known: dict[str | None, Any] = {}

    def of(trace: Trace) -> Any:
        if repo is None:
            return None
        if trace.commit not in known:
            try:
                known[trace.commit] = open_repo(str(repo), trace.commit)
            except BadInput:
                known[trace.commit] = open_repo(str(repo), None)
        return known[trace.commit]

    return of


def _row(trace: Trace, gold: Gold | None, golds: GoldSet | None, repos: Repositories, only: Any, policy: str) -> TraceRow:
    from context_bench.traces import score_trace
    from context_bench.traces.gold import Gold as NoGold

    if gold is None:
        row = score_trace(NoGold(trace.instance_id), trace, only(trace), policy, drift=False)
        row.score = None
        for step in row.steps:
            step.coverage = {}
        row.error = (
            f"none of the {len(golds):,} golds is of {trace.instance_id!r}: --instance says which task it is" if golds is not None else None
        )
        return row
    found = repos.find(gold, trace.repo, trace.commit)
    row = score_trace(gold, trace, None if isinstance(found, str) else found[1], policy)
    if isinstance(found, str) and repos:
        row.notes.append(f"no repository: {found}")
    return row


def _listed(names: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:_MOST_NAMES]))
    return f"{shown} … ({len(names):,} in all)" if len(names) > _MOST_NAMES else shown
