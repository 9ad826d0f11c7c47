"""`context-bench serve`: any system or control as an OpenAI- and Anthropic-compatible proxy."""

from __future__ import annotations

import asyncio

import typer

from context_bench.core.urls import listening_port
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import Common
from context_bench.traffic.command.client import run_client


@takes(
    Common,
    system=own("What it does: full, head_tail:keep=0.5, bm25:budget=300, py:pkg.mod:Class …", default=None),
    upstream=own("Where requests go on to: a URL, embedded, echo, scripted:FILE."),
    port=own("Port to listen on (loopback); 0 takes a free one."),
)
def command(context: typer.Context, system: str, upstream: str, port: int) -> int:
    """Serve a system as a proxy, so that it can be measured, or used, like any other.

    `-- CMD` runs CMD once it serves, with its provider's address set to this proxy, and ends with CMD's exit code.
    """
    listening_port(port, "--port")
    client = list(context.args)
    if client:
        return interrupts.looped(_serve(system, upstream, port, client))  # Ctrl-C is the client's own to deal with
    interrupts.run(_serve(system, upstream, port, client))
    return 0


async def _serve(system: str, upstream: str, port: int, client: list[str]) -> int:
    from rich.console import Console

    from context_bench.compression.systems.serve import Served
    from context_bench.llm.redact import redact
    from context_bench.reports.text import visible
    from context_bench.session.upstream import started_upstream

    console = Console(stderr=True, highlight=False)
    async with started_upstream(upstream) as url, Served(system, url, port=port) as served:
        ends = f"ends with {visible(client[0])}" if client else "Ctrl-C ends it"
        console.print(f"{visible(system)} on {served.url} → {visible(redact(upstream))}; {ends}", markup=False, soft_wrap=True)
        if client:
            return await run_client("serve", client, served.url)
        await asyncio.Event().wait()
    return 0
