"""`context-bench trace …`: agents' logs against gold, converted, compared and shown."""

from __future__ import annotations

import typer

from context_bench.traces.command.compare import compare
from context_bench.traces.command.convert import convert
from context_bench.traces.command.score import score
from context_bench.traces.command.show import show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Did an agent read the right code? Its log against gold.")
for command in (score, convert, compare, show):
    app.command(command.__name__)(command)
