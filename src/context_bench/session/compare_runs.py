"""`context-bench compare`: two runs of the same questions, paired, with a verdict; or one run against another baseline
or margin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_bench.session.flags import own, takes
from context_bench.session.offers import runs
from context_bench.session.options import StoredOptions


@takes(
    StoredOptions,
    metric=own(
        "The score to compare.", unit=None, names="--metric --score-field", rare=False, note="what the runs were about"
    ),
    margin=own(note="as in a run"),
    system=own("Compare only this system; repeatable.", unit=None, note="all that both have"),
)
def command(
    first: Annotated[
        str,
        typer.Argument(
            help="The earlier run: its name, `last`, or an exported JSON file.", metavar="RUN", autocompletion=runs
        ),
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            help="The later run. Without it, the first run's systems against its baseline.", autocompletion=runs
        ),
    ] = None,
    *,
    metric: str | None,
    margin: float | None,
    system: list[str] | None,
    output: str,
    out: Path | None,
    force: bool,
    any_load: bool,
    store: str,
) -> int:
    """Pair rows by dataset, example and trial, and say what may be said.

    Exit code 3 if the two runs measured different things (other data, model, prompt, evaluator) and `--force` is not
    given.
    """
    from context_bench.comparison import compare, within
    from context_bench.session.reporting import write_report
    from context_bench.session.runs import found_run

    with found_run(first, store) as before:
        if second is None:
            found = within(before, metric=metric, margin=margin)
            write_report(found, output, out)
            return 0
        with found_run(second, store) as after:
            found = compare(before, after, metric=metric, margin=margin, systems=system, force=force, any_load=any_load)
            write_report(found, output, out)
    return 0
