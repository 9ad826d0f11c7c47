"""`context-bench tap`: stand where the provider would stand, and write down what arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput
from context_bench.llm.redact import key_in
from context_bench.session import interrupts


def command(
    port: Annotated[int, typer.Option(help="Port to listen on (loopback).")] = 9090,
    upstream: Annotated[str, typer.Option(help="The provider behind: a URL, embedded, echo, or scripted:FILE.")] = "",
    upstream_key_env: Annotated[str | None, typer.Option(help="Variable with the provider's key, swapped in for one-time keys.")] = None,
    marker: Annotated[str, typer.Option(help="How calls are recognised: key, header, serial.")] = "key",
    record: Annotated[str, typer.Option(help="What is kept: meta, hashes, redacted, full.")] = "meta",
    out: Annotated[Path | None, typer.Option(help="Append each record as a JSON line to this file (mode 0600).")] = None,
    model: Annotated[str | None, typer.Option(help="Count tokens as this model does, whatever the requests name.")] = None,
) -> int:
    """Record what really reaches the provider: point your proxy's own upstream setting at this port."""
    listening_port(port, "--port")
    if not upstream:
        raise BadInput("tap: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    key = key_in(upstream_key_env)
    if upstream_key_env and not key:
        raise BadInput(f"tap: the variable {upstream_key_env} (--upstream-key-env) is not set")
    interrupts.run(_serve(port, upstream, key, marker, record, out, model))
    return 0


async def _serve(port: int, upstream: str, key: str | None, marker: str, record: str, out: Path | None, model: str | None) -> None:
    from rich.console import Console

    from context_bench.core.records import Forwarded, not_compared
    from context_bench.reports.text import visible
    from context_bench.session.upstream import started_upstream
    from context_bench.tap import serve_tap

    console = Console(stderr=True, highlight=False)
    oversized = 0

    def show(seen: Forwarded) -> None:
        nonlocal oversized
        oversized += seen.oversized
        tokens = "uncounted" if seen.tokens is None else f"{seen.tokens:,} tokens{'' if seen.exact else ' (estimate)'}"
        tokens += " (too large to be compared)" if seen.oversized else ""
        line = f"{seen.status or '---'} {seen.wire} {seen.model or ''} {tokens} {seen.seconds * 1000:.0f} ms"
        console.print(visible(line), markup=False)

    try:
        async with started_upstream(upstream) as url:
            await serve_tap(
                port,
                url,
                marker=marker,
                record=record,
                upstream_key=key,
                counter_model=model,
                records_file=out,
                on_record=show,
                on_ready=lambda tap: console.print(
                    f"tap on {tap.url} → {visible(upstream)} (recording: {record}); Ctrl-C ends it", markup=False
                ),
            )
    finally:
        if oversized:
            console.print(not_compared(oversized), markup=False)
