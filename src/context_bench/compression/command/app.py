"""`context-bench compress …`: what a compressor did to recorded texts and sessions, and what an agent can still do after one."""

from __future__ import annotations

import typer

from context_bench.compression.command import (
    cache as compress_cache,
)
from context_bench.compression.command import (
    fidelity as compress_fidelity,
)
from context_bench.compression.command import (
    options as compress_run,
)
from context_bench.compression.command import (
    wire as compress_wire,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure what a compressor did to recorded texts and sessions.")
app.command("run")(compress_run.run)
app.command("probe")(compress_run.probe)
app.command("fidelity")(compress_fidelity.fidelity)
app.command("wire")(compress_wire.wire)
app.command("cache")(compress_cache.cache)
