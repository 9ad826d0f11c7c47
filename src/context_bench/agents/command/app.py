"""`context-bench agent`: agents on repository tasks, arm against arm, verified by the tasks' own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


def command(
    context: typer.Context,
    tasks: Annotated[
        str,
        typer.Argument(help="Folder or file of tasks (Harbor, SWE-bench-like), or bundled:repo-tasks.", metavar="TASKS"),
    ],
    arm: Annotated[
        list[str] | None,
        typer.Option(help="NAME= (as it is), NAME='KEY=VALUE …' for its environment, or NAME=SCRIPT run before it.", metavar="NAME=…"),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="The model's provider behind the tap: a URL, embedded, or scripted:FILE.", metavar="URL")
    ] = None,
    tap: Annotated[
        str | None, typer.Option(help="Port of the tap, which is a proxy arm's upstream. [default: 9090]", metavar="PORT")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Times each task is given to each arm. [default: 1]")] = None,
    max_tasks: Annotated[int | None, typer.Option("-n", "--max-tasks", help="Most tasks. [default: all]")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Abort rule: seconds of one run. [default: the task's own]")] = None,
    max_calls: Annotated[int | None, typer.Option(help="Abort rule: answered calls of the model in one run.")] = None,
    max_cost_per_task: Annotated[float | None, typer.Option(help="Abort rule: US dollars of one run.", metavar="USD")] = None,
    baseline: Annotated[str | None, typer.Option(help="Arm that the others are compared with. [default: base, else the first]")] = None,
    margin: Annotated[float | None, typer.Option(help="Loss of solve rate that would still be acceptable, such as 0.1.")] = None,
    noise_floor: Annotated[
        bool | None, typer.Option("--noise-floor/--no-noise-floor", help="Run the baseline twice. [default: with 2 trials or more]")
    ] = None,
    output: Annotated[str | None, typer.Option(help="table, markdown, json, html, csv, or a registered reporter. [default: table]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    store: Annotated[str | None, typer.Option(help="Where results are kept. [default: ./.context-bench/store.db]", metavar="URL")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; the same name again resumes it.")] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Begin no further agent once this many US dollars are spent (exit 5).", metavar="USD")
    ] = None,
    dry_run: Annotated[bool | None, typer.Option("--dry-run", help="Only say what it would take.")] = None,
    nothing: Annotated[
        bool | None, _more("--nothing/--no-nothing", help="Also verify every task with nothing done (arm none). [default: yes]")
    ] = None,
    stdin: Annotated[bool | None, _more("--stdin", help="Give the instruction to CMD's standard input.")] = None,
    pass_env: Annotated[list[str] | None, _more(help="Variable of this shell that agents get, too; repeatable.", metavar="NAME")] = None,
    readable: Annotated[list[str] | None, _more(help="Path that agents may read; repeatable.", metavar="PATH")] = None,
    repos: Annotated[str | None, _more(help="Folder with the repositories that tasks name.", metavar="DIR")] = None,
    test_command: Annotated[str | None, _more(help="What runs the tests of rows that name no command.", metavar="CMD")] = None,
    unsafe: Annotated[bool | None, _more("--unsafe", help="Without a sandbox where none works: agents can do all that you can.")] = None,
    seed: Annotated[int | None, _more(help="Seed of everything random. [default: 0]")] = None,
    max_workers: Annotated[int | None, _more(help="Agents at work at once. [default: 1]")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with the upstream's key. [default: OPENAI_API_KEY]")] = None,
    marker: Annotated[str | None, _more(help="How calls are recognised behind a proxy: key, serial. [default: key]")] = None,
    run_timeout: Annotated[float | None, _more(help="Seconds for the whole run.")] = None,
    bodies: Annotated[str | None, _more(help="Keep request and reply bodies: all, none. [default: all]")] = None,
    resume: Annotated[str | None, _more(help="Go on with this run; alone: the last unfinished one.", metavar="[RUN]")] = None,
    reuse: Annotated[bool | None, _more("--reuse", help="Also use rows of other runs with the same content.")] = None,
    price: Annotated[list[str] | None, _more(help="MODEL=INPUT,OUTPUT[,READ[,WRITE]] in USD per million tokens; repeatable.")] = None,
    price_model: Annotated[str | None, _more(help="Show money as if this model had answered.")] = None,
    max_failures: Annotated[float | None, _more(help="Share of failures per arm above which the exit code is 1. [default: 0.02]")] = None,
    quiet: Annotated[bool | None, _more("--quiet", help="No progress.")] = None,
    config: Annotated[Path | None, _more(help="Options from a TOML file; flags win.", metavar="FILE.toml")] = None,
) -> int:
    """Give repository tasks to an agent (`-- CMD`) in several arms, each run in a fresh copy behind walls.

    In CMD: {instruction}, {instruction_file}, {workspace}. In an arm's values: {tap}, {key}, {workspace}, {home}, {path}.
    """
    from context_bench.agents.command.run import AgentOptions, run_them
    from context_bench.session.options import read_options

    left = ("config", "max_tasks")
    given = {name: value for name, value in context.params.items() if value not in (None, [], ()) and name not in left}
    if context.args:
        given["command"] = list(context.args)
    if max_tasks is not None:
        given["max_examples"] = max_tasks
    return run_them(read_options(given, config, AgentOptions))
