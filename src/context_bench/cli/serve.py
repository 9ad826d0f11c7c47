"""`context-bench serve`: any system or control as an OpenAI- and Anthropic-compatible proxy."""

from __future__ import annotations

from typing import Annotated

import typer

from context_bench.cli import interrupts


def command(
    system: Annotated[
        str, typer.Option(help="What it does: full, head_tail:keep=0.5, bm25:budget=300, py:pkg.mod:Class …", metavar="SPEC")
    ],
    upstream: Annotated[str, typer.Option(help="Where requests go on to: a URL, embedded, echo, scripted:FILE.", metavar="URL")],
    port: Annotated[int, typer.Option(help="Port to listen on (loopback).")] = 8080,
) -> int:
    """Serve a system as a proxy, so that it can be measured, or used, like any other."""
    interrupts.run(_serve(system, upstream, port))
    return 0


async def _serve(system: str, upstream: str, port: int) -> None:
    import asyncio

    from rich.console import Console

    from context_bench.cli.upstream import started_upstream
    from context_bench.llm.redact import redact
    from context_bench.reports.text import visible
    from context_bench.systems.serve import Served

    console = Console(stderr=True, highlight=False)
    async with started_upstream(upstream) as url, Served(system, url, port=port) as served:
        console.print(f"{visible(system)} on {served.url} → {visible(redact(upstream))}; Ctrl-C ends it", markup=False)
        await asyncio.Event().wait()
