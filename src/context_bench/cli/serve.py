"""`context-bench serve`: any system or control as an OpenAI- and Anthropic-compatible proxy."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from context_bench.core.addresses import listening_port
from context_bench.session import interrupts
from context_bench.traffic.command.client import run_client


def command(
    context: typer.Context,
    system: Annotated[
        str, typer.Option(help="What it does: full, head_tail:keep=0.5, bm25:budget=300, py:pkg.mod:Class …", metavar="SPEC")
    ],
    upstream: Annotated[str, typer.Option(help="Where requests go on to: a URL, embedded, echo, scripted:FILE.", metavar="URL")],
    port: Annotated[int, typer.Option(help="Port to listen on (loopback); 0 takes a free one.")] = 8080,
) -> int:
    """Serve a system as a proxy, so that it can be measured, or used, like any other.

    `-- CMD` runs CMD once it serves, with its provider's address set to this proxy, and ends with CMD's exit code.
    """
    listening_port(port, "--port")
    client = list(context.args)
    if client:
        return asyncio.run(_serve(system, upstream, port, client))  # Ctrl-C is the client's own to deal with
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
