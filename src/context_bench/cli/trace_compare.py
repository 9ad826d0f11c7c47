"""`context-bench trace compare`: two sets of scored traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.cli.files import write_out
from context_bench.cli.flags import own, takes
from context_bench.cli.options import TraceOptions
from context_bench.cli.publishing import json_text
from context_bench.cli.trace_reports import on_terminal
from context_bench.core.errors import BadInput


@takes(TraceOptions, output=own("table, json or markdown."), out=own("Write here instead of standard output.", unit="FILE"))
def compare(
    a: Annotated[str, typer.Argument(help="Rows of `trace score` (a JSONL file, or its --out-dir); FILE:SET for one set.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The same of the other.", metavar="B")],
    output: str,
    out: Path | None,
) -> int:
    """B minus A on the instances both have: paired bootstrap over repositories, McNemar for solved."""
    from context_bench.traces import compare_traces

    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output is {output!r}, expected table, json or markdown")
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


def _compared(found: Any, output: str, out: Path | None) -> str:
    if output == "json":
        return json_text(found.to_json())
    from context_bench.reports import render
    from context_bench.reports.traces.sections import comparison_page

    return render(comparison_page(found), output, **(on_terminal(output) if out is None else {}))
