"""Start the client of `watch -- CMD` and `serve -- CMD`, so that its requests come to the tap or server.

Some clients do not take their provider's address from OPENAI_BASE_URL or ANTHROPIC_BASE_URL alone. Each row of
`CLIENTS` was tried with the version named (Codex 0.169.0, opencode 1.18.33, aider 0.86.2, Gemini CLI 0.61.0; `make
clients` tries it again). A flag that the user gives stays; variables are set as OPENAI_BASE_URL is, whatever they held.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.secrets import names_a_secret

#: What programs read their provider's address from, and whether with /v1.
_ADDRESSES = {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1", "ANTHROPIC_BASE_URL": ""}

_PATIENCE = 5.0


def dummy_environment(key: str, **more: str) -> dict[str, str]:
    """The environment of this process without any variable named like a secret; `key` stands for the providers'. For
    programs that are to meet nobody but our provider.
    """
    kept = {name: value for name, value in os.environ.items() if not names_a_secret(name)}
    local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return {**kept, **local, **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), key), **more}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program as it is to be started: its command line, and all of its environment."""

    command: list[str]
    env: dict[str, str]
    note: str | None = None  # what a known client needed beside that


def prepare(command: Sequence[str], url: str, environ: Mapping[str, str]) -> Prepared:
    """`command` with its provider's address set to the tap at `url` (without `/v1`); everything else of `environ` stays
    as it is.
    """
    made, added, note = adapted(command, url, environ)
    return Prepared(made, {**environ, **{name: f"{url}{path}" for name, path in _ADDRESSES.items()}, **added}, note)


async def run_client(by: str, command: Sequence[str], url: str, *, quiet: bool = False) -> int:
    """Run a program against the server at `url`; its terminal and streams are its own. Returns its exit code.

    Ctrl-C reaches it from the terminal and is its own to deal with; SIGTERM and SIGHUP are handed on. `by`: the command
    that starts it. Cancelled, it ends the program first.
    """
    loop = asyncio.get_running_loop()
    prepared = prepare(command, url, os.environ)
    if prepared.note and not quiet:
        sys.stderr.write(f"{prepared.note}\n")
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        client = await asyncio.create_subprocess_exec(
            *prepared.command, env=prepared.env, stdin=None, stdout=None, stderr=None
        )
    except OSError as error:
        raise BadInput(f"{by}: {command[0]!r} cannot be started: {error.strerror or error}") from None

    def forward_signal(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            client.send_signal(number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, forward_signal, each)
    try:
        code = await client.wait()
    except asyncio.CancelledError:  # it is not to go on
        await _end(client)
        raise
    return code if code >= 0 else 128 - code


async def _end(client: asyncio.subprocess.Process) -> None:
    """End a client: politely, and after `_PATIENCE` seconds without asking."""
    with contextlib.suppress(ProcessLookupError):
        client.terminate()
        try:
            await asyncio.wait_for(client.wait(), _PATIENCE)
        except TimeoutError:
            client.kill()
            await client.wait()


@dataclass(frozen=True, slots=True)
class ClientNeeds:
    """Needs of one client; `{url}` stands for the tap's address without `/v1`."""

    why: str
    flags: tuple[str, ...] = ()  # put right after the program's name …
    unless: str = ""  # … unless an argument holds this
    env: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, Mapping[str, Any]] | None = None  # a variable that holds JSON, and what is set in it
    note: str = ""


CLIENTS: Mapping[str, ClientNeeds] = {
    "codex": ClientNeeds(
        why="it does not read OPENAI_BASE_URL",
        flags=("-c", 'openai_base_url="{url}/v1"'),
        unless="base_url",
        note="a provider of your own (model_provider in its configuration) keeps its own address",
    ),
    "opencode": ClientNeeds(
        why="it wants ANTHROPIC_BASE_URL with /v1",
        config=(
            "OPENCODE_CONFIG_CONTENT",
            {"provider": {name: {"options": {"baseURL": "{url}/v1"}} for name in ("anthropic", "openai")}},
        ),
        note="other providers of its configuration keep their own addresses",
    ),
    "aider": ClientNeeds(
        why="a .env in its folder goes before the environment",
        flags=("--set-env", "OPENAI_BASE_URL={url}/v1", "--set-env", "ANTHROPIC_BASE_URL={url}"),
        unless="BASE_URL=",
    ),
    "gemini": ClientNeeds(
        why="it reads an address of its own",
        env={"GOOGLE_GEMINI_BASE_URL": "{url}"},
        note="its API is passed on and not read: its requests count as other requests, without tokens. It needs "
        '"selectedType": '
        '"gemini-api-key" under security.auth in its settings',
    ),
}


def adapted(
    command: Sequence[str], url: str, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str], str | None]:
    """The command and what to add to the environment for the tap at `url`, and a line that says so; a client not in the
    table as it is.
    """
    name = PurePath(command[0]).name.lower().removesuffix(".exe").removesuffix(".cmd")
    known = CLIENTS.get(name)
    if known is None:
        return list(command), {}, None
    flags = [] if known.unless and any(known.unless in argument for argument in command[1:]) else _put(known.flags, url)
    added = {variable: _put(text, url) for variable, text in known.env.items()}
    note = f"; {known.note}" if known.note else ""
    if known.config is not None:
        variable, wanted = known.config
        merged = _merged(_put(wanted, url), environ.get(variable))
        if merged is None:
            told = (
                f"{name}: {variable} is not a JSON object, so it is left as it is; set in it "
                f"{json.dumps(_put(wanted, url))}{note}"
            )
            return list(command), {}, told
        added[variable] = merged
    if not flags and not added:
        return list(command), {}, None
    what = " ".join(
        [*flags, *(f"{variable}={text}" if variable in known.env else variable for variable, text in added.items())]
    )
    return [command[0], *flags, *command[1:]], added, f"{name}: started with {what}, since {known.why}{note}"


def _put(value: Any, url: str) -> Any:
    if isinstance(value, str):
        return value.replace("{url}", url)
    if isinstance(value, Mapping):
        return {name: _put(item, url) for name, item in value.items()}
    return [_put(item, url) for item in value]


def _merged(ours: dict[str, Any], theirs: str | None) -> str | None:
    """Our JSON over theirs; `None` where theirs is no JSON object."""
    if not theirs:
        return json.dumps(ours)
    try:
        given = json.loads(theirs)
    except ValueError:
        return None
    return json.dumps(_over(ours, given)) if isinstance(given, dict) else None


def _over(above: Any, below: Any) -> Any:
    if not isinstance(above, dict) or not isinstance(below, dict):
        return above
    return {**below, **{name: _over(item, below[name]) if name in below else item for name, item in above.items()}}
