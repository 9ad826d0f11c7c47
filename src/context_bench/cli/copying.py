"""`context-bench copy`: runs from one store to another, with all that belongs to them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from context_bench.cli.defaults import DEFAULT_STORE
from context_bench.core.errors import BadInput


def command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Names or ids, or `last`. [default: all runs of the store]", metavar="[RUN]...")
    ] = None,
    to: Annotated[str, typer.Option("--to", help="The other store: a path, or postgresql://USER@HOST:PORT/DATABASE.", metavar="URL")] = "",
    store: Annotated[str, typer.Option("--store", help="The store that the runs are in.", metavar="URL")] = DEFAULT_STORE,
    name: Annotated[str | None, typer.Option("--as", help="Another name for the copy of a single run.", metavar="NAME")] = None,
) -> int:
    """Copy runs with answers, scores, calls, bodies, set-ups and plan: the copy gives the same reports and can be resumed there.

    What is there already is left alone; a copy that was broken off goes on. Both stores may be files or on servers.
    """
    from context_bench.cli.runs import found_in, opened_store
    from context_bench.engine import copy_run, list_runs, open_store

    if not to:
        raise BadInput("--to is missing: the store that the runs are copied to")
    if name is not None and len(runs or []) != 1:
        raise BadInput("--as goes with exactly one run")
    with opened_store(store) as source, open_store(to) as target:
        chosen = (
            [found_in(source, run).id for run in runs]
            if runs
            else [run.id for run in reversed(list_runs(source)) if run.status != "copying"]
        )
        if not chosen:
            raise BadInput(f"no run in {store}")
        for run in chosen:
            _tell(copy_run(source, target, run, name=name), target.name)
    return 0


def _tell(copied: Any, where: str) -> None:
    from context_bench.reports.text import visible

    if copied.there:
        told = f"{copied.name} is in {where} already"
    else:
        told = f"copied {copied.name} to {where}: {copied.rows:,} answers, {copied.calls:,} calls, {copied.bodies:,} bodies"
    print(f"context-bench: {visible(told)}", file=sys.stderr)
