"""`context-bench compare`: two runs of the same questions, paired, with a verdict; or one run against another baseline or margin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_bench.session.defaults import DEFAULT_STORE


def command(
    first: Annotated[str, typer.Argument(help="The earlier run: its name, `last`, or an exported JSON file.", metavar="RUN")],
    second: Annotated[str | None, typer.Argument(help="The later run. Without it, the first run's systems against its baseline.")] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", "--score-field", help="The score to compare. [default: what the runs were about]")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Loss of score that would still be acceptable. [default: as in a run]")] = None,
    system: Annotated[list[str] | None, typer.Option(help="Compare only this system; repeatable. [default: all that both have]")] = None,
    output: Annotated[str, typer.Option(help="table, markdown, json, html, csv, or a registered reporter.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Compare runs that measured different things.")] = False,
    any_load: Annotated[
        bool, typer.Option("--any-load", help="Show latency and time to first token also where the runs were made under different load.")
    ] = False,
    store: Annotated[str, typer.Option("--store", help="Where results are kept.", metavar="URL")] = DEFAULT_STORE,
) -> int:
    """Pair rows by dataset, example and trial, and say what may be said.

    Exit code 3 if the two runs measured different things (other data, model, prompt, evaluator) and `--force` is not given.
    """
    from context_bench.comparison import compare, within
    from context_bench.session.finding import found_run
    from context_bench.session.reporting import write_report

    with found_run(first, store) as before:
        if second is None:
            found = within(before, metric=metric, margin=margin)
            write_report(found, output, out)
            return 0
        with found_run(second, store) as after:
            found = compare(before, after, metric=metric, margin=margin, systems=system, force=force, any_load=any_load)
            write_report(found, output, out)
    return 0
