"""`context-bench agent`: agents on repository tasks, arm against arm, verified by the tasks' own tests."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from context_bench.cli.flags import options_of, takes
from context_bench.cli.options import AgentOptions


@takes(
    AgentOptions,
    "arm upstream tap trials max_examples max_seconds max_calls max_cost_per_task baseline margin noise_floor "
    "output out store run max_cost dry_run nothing stdin pass_env readable repos test_command unsafe seed "
    "max_workers api_key_env marker run_timeout bodies resume reuse price price_model max_failures quiet config",
)
def command(
    context: typer.Context,
    tasks: Annotated[
        str,
        typer.Argument(help="Folder or file of tasks (Harbor, SWE-bench-like), or bundled:repo-tasks.", metavar="TASKS"),
    ],
    **_given: Any,
) -> int:
    """Give repository tasks to an agent (`-- CMD`) in several arms, each run in a fresh copy behind walls.

    In CMD: {instruction}, {instruction_file}, {workspace}. In an arm's values: {tap}, {key}, {workspace}, {home}, {path}.
    """
    from context_bench.cli.agenting import run_them

    return run_them(options_of(context, AgentOptions, command=list(context.args)))
