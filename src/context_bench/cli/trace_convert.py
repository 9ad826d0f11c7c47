"""`context-bench trace convert`: any log as JSON lines."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from context_bench.cli.files import replacing, say
from context_bench.cli.flags import own, takes
from context_bench.cli.options import TraceOptions
from context_bench.core.errors import BadInput


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
    from context_bench.traces.converting import convert_traces

    if to not in ("events", "contextbench"):
        raise BadInput(f"--to is {to!r}, expected events or contextbench")
    for path in trace:
        if not path.exists():
            raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
    told: list[str] = []
    lines = convert_traces(
        trace, to=to, repos=repo or (), gold=gold, instance=instance, tools=tools, on_skip=lambda why: told.append(str(why))
    )
    number = 0
    with nullcontext(sys.stdout.buffer) if out is None else replacing(out, "wb") as file:
        for line in lines:
            file.write(line)
            number += 1
        file.flush()
    for why in told[:5]:
        say(f"passed over: {why.splitlines()[0]:.300}")
    say(f"{number:,} traces{f' written to {out}' if out else ''}, {len(told):,} files passed over")
    return 0
