"""Drive one installed version and collect what our instruments say of it.

A *proxy* (or a package behind a shim that speaks HTTP) stands between the two taps of a watch; an *agent* stands before
the back tap only. What a watch counts for each turn are the kinds that a user of `context-bench watch` sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from installing import Environment
from probes import PROBES, Probe
from provider import Provider

from context_bench.tap import Watch
from context_bench.wire.diff import first_difference
from context_bench.wire.turns import Turn

_SHIMS = Path(__file__).parent / "shims"
_START = 120.0  # seconds that a program may take until its port answers
_ANSWER = 60.0
_AGENT = 120.0


@dataclass(slots=True)
class Flags:
    """Kinds that were found, how often, and the first words of each."""

    kinds: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)

    def add(self, kind: str, detail: str = "", times: int = 1) -> None:
        self.kinds[kind] += times
        if detail:
            self.details.append(detail if detail.startswith(kind) else f"{kind}: {detail}")


def clean_environment(extra: dict[str, str], home: str) -> dict[str, str]:
    """Our environment without anything that could be a key, proxies or settings of ours, with a home of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PROXY", "PYTHON", "VIRTUAL_ENV"))
    }
    dummies = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    return {**kept, **dummies, "HOME": home, "NO_PROXY": "*", "HF_HUB_OFFLINE": "1", **extra}


def words_of(pair: dict[str, Any], environment: Environment, places: dict[str, str]) -> list[str]:
    """The command line that starts the pair's package or its shim."""
    if "shim" in pair:
        shim = _SHIMS / pair["shim"]
        if environment.runtime == "node":  # modules are looked for beside the program
            for file in _SHIMS.glob("*.mjs"):
                shutil.copy(file, environment.folder / file.name)
            shim = environment.folder / pair["shim"]
        port = [places["port"]] if "port" in places else []
        return [environment.program, str(shim), *port, places["back"], *pair.get("arguments", [])]
    words = [word.format(**places) for word in pair["command"]]
    if environment.runtime == "node":
        return [environment.program, str(environment.folder / words[0]), *words[1:]]
    return [str(environment.folder / "bin" / words[0]), *words[1:]]


@contextlib.asynccontextmanager
async def running(words: Sequence[str], extra: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program with a home and an output file of its own; it is ended on the way out."""
    with (
        tempfile.TemporaryDirectory(prefix="context-bench-pair-", ignore_cleanup_errors=True) as home,
        (Path(home) / "output.txt").open("w+b") as output,
    ):
        given = clean_environment(extra, home)
        process = await asyncio.create_subprocess_exec(
            *words, stdout=output, stderr=output, cwd=home, env=given, start_new_session=True
        )
        try:
            yield process
        except ProgramFailed as failure:
            output.seek(0)
            raise ProgramFailed(f"{failure}: {output.read()[-1500:].decode('utf-8', 'replace')}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


class ProgramFailed(Exception):
    """A package's program did not start, or ended with an error."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def _until_open(port: int, process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_START):
            while True:
                if process.returncode is not None:
                    raise ProgramFailed(f"ended with {process.returncode} before it listened")
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise ProgramFailed(f"did not listen within {_START:g} s") from None


async def flags_of(pair: dict[str, Any], environment: Environment) -> Flags:
    """Everything that our instruments flag in one version of a pair."""
    if pair["way"] == "memory":
        from memories import through_suites

        return await through_suites(pair, environment)
    if pair["way"] == "mcp":
        return await _mcp_proxy(pair, environment)
    found, proxied = Flags(), pair["way"] == "proxy"
    runs = [await through_proxy(pair, environment)] if proxied else await before_provider(pair, environment)
    for later in runs[1:]:
        for before, now in zip(runs[0].provider.log, later.provider.log, strict=True):
            if (difference := first_difference(before.body, now.body)) is not None:
                found.add("forwarded_differently", difference.sentence())
    for run in runs:
        for turn in run.turns:
            for kind, times in turn.violations.items():
                words = next((one for one in turn.details if one.startswith(f"{kind}:")), "")
                found.add(kind, words, times)
    return found


async def _mcp_proxy(pair: dict[str, Any], environment: Environment) -> Flags:
    """What `doctor --mcp` finds wrong with the proxy of the pair's shim, our server behind it."""
    from context_bench.traffic.doctor.mcp_checks import examine_mcp

    found = Flags()
    for finding in await examine_mcp(f"{environment.program} {_SHIMS / pair['shim']} {{behind}}"):
        if finding.status == "fail":
            found.add(finding.name, finding.detail)
    return found


@dataclass(slots=True)
class Driven:
    """What was seen of one run: the turns of the watch, and what reached the provider."""

    turns: list[Turn]
    provider: Provider


async def through_proxy(pair: dict[str, Any], environment: Environment) -> Driven:
    """Send the pair's probe through the package, between a front and a back tap."""
    probe, turns, port = PROBES[pair["probe"]], list[Turn](), free_port()

    async def keep(batch: list[Turn]) -> None:
        turns.extend(batch)

    async with (
        Provider(probe.replies) as provider,
        Watch(provider.url, via=f"http://127.0.0.1:{port}", record="full", keep=keep) as watch,
    ):
        assert watch.back_url is not None
        places = {"port": str(port), "back": watch.back_url}
        config = {name: text.format(**places) for name, text in pair.get("files", {}).items()}
        with tempfile.TemporaryDirectory(prefix="context-bench-pair-") as folder:
            for name, text in config.items():
                (Path(folder) / name).write_text(text)
            words = words_of(pair, environment, {**places, "folder": folder})
            async with running(words, pair.get("env", {})) as process:
                await _until_open(port, process)
                headers = {name: value.format(**places) for name, value in pair.get("headers", {}).items()}
                await _send(watch.url, probe, headers)
                await watch.drain()
    return Driven(turns, provider)


async def _send(url: str, probe: Probe, headers: dict[str, str]) -> None:
    timeout = aiohttp.ClientTimeout(total=_ANSWER)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        for path, body in probe.requests:
            anthropic = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
            common = anthropic if path.endswith("/messages") else {"authorization": "Bearer k"}
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # the taps note how a reply broke off
                async with session.post(f"{url}{path}", json=body, headers={**common, **headers}) as reply:
                    await reply.read()


async def before_provider(pair: dict[str, Any], environment: Environment) -> list[Driven]:
    """Run the pair's agent against the back tap only, once for each of its `runs`."""
    found = []
    for arguments in pair.get("runs", [pair.get("arguments", [])]):
        turns = list[Turn]()

        async def keep(batch: list[Turn], turns: list[Turn] = turns) -> None:
            turns.extend(batch)

        replies = PROBES[pair["probe"]].replies if "probe" in pair else ()
        async with Provider(replies) as provider, Watch(provider.url, record="full", keep=keep) as watch:
            words = words_of({**pair, "arguments": arguments}, environment, {"back": watch.url})
            async with running(words, pair.get("env", {})) as process:
                await asyncio.wait_for(process.wait(), _AGENT)
                if process.returncode and not provider.log:
                    raise ProgramFailed(f"ended with {process.returncode} and asked nothing")
            await watch.drain()
        found.append(Driven(turns, provider))
    return found
