"""`context-bench view`: a store in the browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from context_bench.core.addresses import listening_port
from context_bench.session.defaults import DEFAULT_STORE


def command(
    store: Annotated[str, typer.Argument(help="Where results are kept.", metavar="[STORE]", show_default=DEFAULT_STORE)] = DEFAULT_STORE,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> int:
    """Look at stored runs in a browser: verdicts, charts, every row, two runs compared; a running run as it goes.

    Only this machine can reach it, and only with the address it prints. The store is read, never written.
    """
    import asyncio

    listening_port(port, "--port")
    try:
        asyncio.run(_serve(store, port, open_browser=not no_open))
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


async def _serve(store: str, port: int, *, open_browser: bool) -> None:
    import asyncio

    from context_bench.viewer import Viewer

    async with Viewer(store, result_of=stored_result, port=port) as viewer:
        print(viewer.url, flush=True)
        print(f"context-bench: showing {viewer.library.store.name} there; Ctrl-C stops.", file=sys.stderr, flush=True)
        if open_browser and _has_browser():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, viewer.url)
        await asyncio.Event().wait()


def stored_result(store: Any, record: Any) -> Any:
    """The result of a stored run, by its own options, as `show` has it."""
    from context_bench.session.runs import result_of

    return result_of(store, record)


def _has_browser() -> bool:
    """Is somebody sitting here who could see one?"""
    shown = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return shown and sys.stdout.isatty() and not os.environ.get("SSH_CONNECTION")
