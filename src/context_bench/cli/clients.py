"""A program that a command of ours starts as the client of what it serves (`… -- CMD`), and waits for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from context_bench.core.errors import BadInput

#: What programs read their provider's address from, and whether with /v1.
ADDRESSES = {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1", "ANTHROPIC_BASE_URL": ""}


async def run_client(by: str, command: Sequence[str], url: str) -> int:
    """Run a program with its provider's address set to `url`; its terminal and streams are its own. Returns its exit code.

    Ctrl-C reaches it from the terminal and is its own to deal with; SIGTERM and SIGHUP are handed on. `by`: the command that starts it.
    """
    loop = asyncio.get_running_loop()
    addresses = {name: f"{url}{path}" for name, path in ADDRESSES.items()}
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        client = await asyncio.create_subprocess_exec(*command, env={**os.environ, **addresses}, stdin=None, stdout=None, stderr=None)
    except OSError as error:
        raise BadInput(f"{by}: {command[0]!r} cannot be started: {error.strerror or error}") from None

    def hand_on(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            client.send_signal(number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, hand_on, each)
    code = await client.wait()
    return code if code >= 0 else 128 - code
