"""The client that `watch -- CMD` and `serve -- CMD` start: the command and environment that bring its requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_bench.core.errors import BadInput
from context_bench.traffic.command.known_clients import adapted

#: What programs read their provider's address from, and whether with /v1.
_ADDRESSES = {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1", "ANTHROPIC_BASE_URL": ""}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program as it is to be started: its command line, and all of its environment."""

    command: list[str]
    env: dict[str, str]
    note: str | None = None  # what a known client needed beside that


def prepare(command: Sequence[str], url: str, environ: Mapping[str, str]) -> Prepared:
    """`command` with its provider's address set to the tap at `url` (without `/v1`); everything else of `environ` stays as it is."""
    made, added, note = adapted(command, url, environ)
    return Prepared(made, {**environ, **{name: f"{url}{path}" for name, path in _ADDRESSES.items()}, **added}, note)


async def run_client(by: str, command: Sequence[str], url: str, *, quiet: bool = False) -> int:
    """Run a program against the server at `url`; its terminal and streams are its own. Returns its exit code.

    Ctrl-C reaches it from the terminal and is its own to deal with; SIGTERM and SIGHUP are handed on. `by`: the command that starts it.
    """
    loop = asyncio.get_running_loop()
    prepared = prepare(command, url, os.environ)
    if prepared.note and not quiet:
        print(prepared.note, file=sys.stderr)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        client = await asyncio.create_subprocess_exec(*prepared.command, env=prepared.env, stdin=None, stdout=None, stderr=None)
    except OSError as error:
        raise BadInput(f"{by}: {command[0]!r} cannot be started: {error.strerror or error}") from None

    def hand_on(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            client.send_signal(number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, hand_on, each)
    code = await client.wait()
    return code if code >= 0 else 128 - code
