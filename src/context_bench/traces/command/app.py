"""`context-bench trace …`: agents' logs against gold, converted, compared and shown."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.flags import own, takes
from context_bench.session.options import TraceOptions
from context_bench.session.output_files import replacing, say, write_out
from context_bench.session.reporting import json_text, terminal
from context_bench.traces.command.score import on_terminal, score

if TYPE_CHECKING:
    from context_bench.traces import Repositories
    from context_bench.traces.gold import Gold, GoldSet
    from context_bench.traces.reading import RunReading
    from context_bench.traces.trace_rows import TraceRow
    from context_bench.transcripts.trace import Trace


app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Did an agent read the right code? Its log against gold."
)


@takes(
    TraceOptions,
    out=own("Write here instead of standard output.", unit="FILE", names="--out -o"),
    gold=own("Gold, so that logs find their repository and task id."),
)
def convert(
    trace: Annotated[list[Path], typer.Argument(help="Logs or folders of logs.", metavar="TRACE...")],
    to: str,
    out: Path | None,
    repo: list[str] | None,
    gold: Path | None,
    instance: str | None,
    tools: Path | None,
) -> int:
    """Any log as JSON lines: what each call read, or predictions for the original evaluator."""
    from context_bench.traces.repositories import convert_traces

    if to not in ("events", "contextbench"):
        raise BadInput(f"--to is {to!r}, expected events or contextbench")
    for path in trace:
        if not path.exists():
            raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
    skipped: list[str] = []
    lines = convert_traces(
        trace,
        to=to,
        repos=repo or (),
        gold=gold,
        instance=instance,
        tools=tools,
        on_skip=lambda why: skipped.append(str(why)),
    )
    number = 0
    with nullcontext(sys.stdout.buffer) if out is None else replacing(out, "wb") as file:
        for line in lines:
            file.write(line)
            number += 1
        file.flush()
    for why in skipped[:5]:
        say(f"passed over: {why.splitlines()[0]:.300}")
    say(f"{number:,} traces{f' written to {out}' if out else ''}, {len(skipped):,} files passed over")
    return 0


@takes(
    TraceOptions, output=own("table, json or markdown."), out=own("Write here instead of standard output.", unit="FILE")
)
def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="Rows of `trace score` (a JSONL file, or its --out-dir); FILE:SET for one set.", metavar="A"
        ),
    ],
    b: Annotated[str, typer.Argument(help="The same of the other.", metavar="B")],
    output: str,
    out: Path | None,
) -> int:
    """B minus A on the instances both have: paired bootstrap over repositories, McNemar for solved.

    Of two folders of agents' logs, without gold: what the runs of each read.
    """
    from context_bench.traces import compare_traces

    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output is {output!r}, expected table, json or markdown")
    if _are_logs(a) and _are_logs(b):
        return _compare_logs(a, b, output, out)
    (first, run_a), (second, run_b) = _one_set(a), _one_set(b)
    found = compare_traces(first, second, run_a=run_a, run_b=run_b)
    write_out(_compared(found, output, out), out, "report")
    return 0


def _one_set(text: str) -> tuple[str, str | None]:
    """`FILE` or `FILE:SET`."""
    if Path(text).exists() or ":" not in text:
        return text, None
    path, _, run = text.rpartition(":")
    return path, run


def _are_logs(text: str) -> bool:
    """True for a log or a folder of logs; rows of `trace score` are none."""
    path = Path(text)
    if not path.exists() or (path.is_dir() and (path / "rows.jsonl").exists()):
        return False
    from context_bench.transcripts.format import LogSource

    if path.is_dir():
        return True
    first = next(iter(LogSource(path).sample()), None)
    return not (isinstance(first, dict) and {"run", "instance_id"} <= first.keys())


def _compare_logs(a: str, b: str, output: str, out: Path | None) -> int:
    from context_bench.reports.table import as_markdown, as_table
    from context_bench.traces.reading import compare_readings, comparison_grid

    sides = [_readings(Path(a), None), _readings(Path(b), None)]
    told = compare_readings(*sides)
    if output == "json":
        text = json_text({"schema": "context-bench/trace-reading-compared/1", "a": a, "b": b, "figures": told})
    else:
        grid = [comparison_grid(told, (len(sides[0]), len(sides[1])))]
        text = (
            as_markdown(grid)
            if output == "markdown"
            else as_table(grid, color=out is None and bool(terminal()["color"]))
        )
    write_out(text, out, "report")
    return 0


def _compared(found: Any, output: str, out: Path | None) -> str:
    if output == "json":
        return json_text(found.to_json())
    from context_bench.reports import render
    from context_bench.traces.reports.sections import comparison_page

    return render(comparison_page(found), output, **(on_terminal(output) if out is None else {}))


_MOST_NAMES = 10
_WIDTH = 80


@takes(
    TraceOptions,
    gold=own("What should have been read: parquet, JSONL, or a folder of annot.json.", unit=None),
    repo=own("The files before the run: a folder, a git clone (PATH@COMMIT), zip, tar, snapshot.json.", unit=None),
    instance=own("Which run, where there are several; or the task it is about, where the log does not say."),
    policy=own("strict, or contextbench-v1 (the original's figures)."),
    output=own("table or json (what was read; without --gold)."),
)
def show(
    traces: Annotated[
        list[Path],
        typer.Argument(help="Agents' logs, or folders of logs; the format is recognised.", metavar="TRACE..."),
    ],
    gold: Path | None,
    repo: Path | None,
    instance: str | None,
    policy: str,
    width: int | None,
    output: str,
) -> int:
    """One run: its steps, what each read and how that is known, coverage as it grew, and the gold that was missed.

    Without --gold it shows what was read and edited, the tokens of each file, what was read again unchanged or never
    used, searches that found nothing; of several runs, the same by repository. Without --repo, lines are as the log
    tells them.
    """
    if output not in ("table", "json"):
        raise BadInput(f"--output is {output!r}, expected table or json")
    if len(traces) > 1 and gold is not None:
        raise BadInput(f"--gold is about one log or folder, and {len(traces)} are given: show them one by one")
    if missing := [str(path) for path in traces if not path.exists()]:
        raise BadInput(f"{missing[0]}: no such trace (expected an agent's log, or a folder of logs)")
    if gold is None:
        read = {path: _readings(path, instance) for path in traces}
        found = [one for runs in read.values() for one in runs]
        if output == "json":
            sys.stdout.write(
                json_text({"schema": "context-bench/trace-reading/1", "runs": [r.as_dict() for r in found]})
            )
            return 0
        if len(found) > 1 and instance is None:
            return _by_repository(found, width)
        traces = [path for path, runs in read.items() if runs] or traces[:1]
    elif output == "json":
        raise BadInput("--output json shows what was read without gold; `trace score --out-dir` keeps rows with gold")
    from context_bench.traces import Repositories
    from context_bench.traces.gold import load_gold
    from context_bench.traces.reports.run_details import render
    from context_bench.traces.score_one import policy_of

    policy_of(policy)
    golds = load_gold(gold) if gold is not None else None
    with Repositories([str(repo)] if repo is not None else []) as repos:
        rows = [row for path in traces for row in _rows(path, golds, repos, repo, instance, policy)]
    drawn = terminal()
    size = {"width": width or drawn["width"], "color": drawn["color"]}
    if gold is None:  # the answer, and below it the steps that it is made of
        from context_bench.reports.table import as_table
        from context_bench.traces.reading import reading_grids

        narrow = size | {"width": size["width"] or _WIDTH}
        sys.stdout.write("".join(as_table(reading_grids(one), **narrow) + "\n" for one in found))
    sys.stdout.write("\n".join(render(row, **size) for row in rows))
    return 0


def _readings(path: Path, instance: str | None) -> list[RunReading]:
    """Readings of the runs of a log, or of those of one name."""
    from context_bench.traces.reading import readings
    from context_bench.transcripts.harness_results import id_forms

    wanted = set(id_forms(instance)) if instance is not None else None
    found = readings(path, on_skip=lambda why: say(f"passed over: {str(why).splitlines()[0]:.300}"))
    return [one for one in found if wanted is None or wanted & set(id_forms(one.run))]


def _by_repository(found: list[RunReading], width: int | None) -> int:
    """Print what several runs read, summed by repository."""
    from context_bench.reports.table import as_table
    from context_bench.traces.reading import by_repository, reading_grids, repository_grid

    drawn, groups = terminal(), by_repository(found)
    grids = [repository_grid(groups), *(grid for one in groups[:_MOST_NAMES] for grid in reading_grids(one))]
    sys.stdout.write(as_table(grids, width=width or drawn["width"] or _WIDTH, color=drawn["color"]))
    return 0


def _rows(
    path: Path, golds: GoldSet | None, repos: Repositories, repo: Path | None, instance: str | None, policy: str
) -> list[TraceRow]:
    """The run that is wanted, in all its attempts; `BadInput` where it is not there or not named."""
    from context_bench.transcripts.harness_results import id_forms
    from context_bench.transcripts.traces import load_traces

    if not path.exists():
        raise BadInput(f"{path}: no such trace (expected an agent's log, or a folder of logs)")
    wanted = set(id_forms(instance)) if instance is not None else None
    only = _files(repo)

    def gold_of(trace: Trace) -> Gold | None:
        name = trace.instance_id
        return (
            golds.find(name, name.rsplit("/", 1)[0], path.absolute().parent.name, instance)
            if golds is not None
            else None
        )

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

    opened: dict[str | None, Any] = {}

    def of(trace: Trace) -> Any:
        if repo is None:
            return None
        if trace.commit not in opened:
            try:
                opened[trace.commit] = open_repo(str(repo), trace.commit)
            except BadInput:
                opened[trace.commit] = open_repo(str(repo), None)
        return opened[trace.commit]

    return of


def _row(
    trace: Trace, gold: Gold | None, golds: GoldSet | None, repos: Repositories, only: Any, policy: str
) -> TraceRow:
    from context_bench.traces import score_trace
    from context_bench.traces.gold import Gold as NoGold

    if gold is None:
        row = score_trace(NoGold(trace.instance_id), trace, only(trace), policy, drift=False)
        row.score = None
        for step in row.steps:
            step.coverage = {}
        row.error = (
            f"none of the {len(golds):,} golds is of {trace.instance_id!r}: --instance says which task it is"
            if golds is not None
            else None
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


for command in (score, convert, compare, show):
    app.command(command.__name__)(command)
