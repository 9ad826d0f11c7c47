"""`context-bench replay`: recorded sessions once more, through each proxy; what becomes of cache, money, wire and next actions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from context_bench.cli.flags import options_of, takes
from context_bench.cli.options import ReplayOptions


@takes(
    ReplayOptions,
    "proxy name upstream tap level model profile max_examples output out store run max_cost dry_run wire trials "
    "margin seed max_workers api_key_env proxy_key_env proxy_version marker tap_check timeout example_timeout "
    "run_timeout rpm tpm fixed_concurrency retries resume reuse price max_failures quiet config",
)
def command(
    context: typer.Context,
    sessions: Annotated[
        list[str],
        typer.Argument(help="Files or folders of recorded sessions, bundled:sessions[/NAME], or hf:OWNER/NAME.", metavar="SESSIONS..."),
    ],
    **_given: Any,
) -> int:
    """Send recorded sessions again, request by request, through each proxy, and measure what arrives behind it."""
    from context_bench.cli.replaying import replay_sessions

    return replay_sessions(options_of(context, ReplayOptions))
