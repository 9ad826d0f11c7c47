"""`context-bench doctor`: examine a proxy, an MCP proxy or a client before a benchmark is blamed for what it does.

With a recorder (a tap that stands where the proxy's provider would stand) what arrived there is compared with what was
sent. Without one, only what the proxy itself shows can be told, and the findings say so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from context_bench.core.errors import BadInput
from context_bench.llm.redact import bare_url, key_in
from context_bench.session import interrupts
from context_bench.session.flags import flag, own, takes
from context_bench.session.options import Common

if TYPE_CHECKING:
    from context_bench.core.protocols import Recorder
    from context_bench.session.activity import Finding

__all__ = ["doctor", "examine"]


class DoctorOptions(Common):
    """The options of `context-bench doctor` that no other command has."""

    mcp: str | None = flag("An MCP proxy, its command or URL; {behind} in it is our server's command.", unit="COMMAND")
    behind: str | None = flag("With --mcp: the server behind it, if it is not ours.", unit="COMMAND")


@takes(
    DoctorOptions,
    command=own("A client, started with our addresses and dummy keys.", default=None, unit="COMMAND"),
    proxy=own("Base URL of the proxy.", default=None, note=""),
    tap=own("A port to start a tap on (the proxy's upstream), or the URL of a running tap.", note=""),
    upstream=own(
        "What stands behind the tap: echo (free), embedded, scripted:FILE or a URL.", unit=None, default="echo"
    ),
    model=own("Model name to send.", default="gpt-4o-mini"),
    api_key_env=own(rare=False),
)
def doctor(
    url: Annotated[str | None, typer.Argument(help="Base URL of the proxy, as --proxy.", metavar="[URL]")] = None,
    *,
    proxy: str | None,
    mcp: str | None,
    behind: str | None,
    command: str | None,
    tap: str | None,
    upstream: str,
    model: str,
    api_key_env: str,
    json: bool,
) -> int:
    """Examine a proxy: routes, key, headers, roles, cache marks, thinking, streaming, and which request shapes it
    shrinks. Or an MCP proxy (--mcp), against the server behind it; or a client (--command), against a provider of ours
    that sends odd and broken streams. Exit code 1 if something is wrong.
    """
    if url is not None and proxy is not None:
        raise BadInput(f"doctor examines one proxy, found {bare_url(url)} and --proxy {bare_url(proxy)}")
    proxy = url if proxy is None else proxy
    given = [name for name, value in (("--proxy", proxy), ("--mcp", mcp), ("--command", command)) if value is not None]
    if len(given) != 1 or (behind is not None and mcp is None):
        raise BadInput(
            f"doctor examines one thing, found {' and '.join(given) or 'none'}: give the proxy's URL, "
            "--mcp COMMAND (with --behind COMMAND or without) or --command COMMAND"
        )
    if proxy is not None:
        findings = interrupts.run(_proxy(proxy, tap, upstream, model, api_key_env))
    elif mcp is not None:
        from context_bench.traffic.doctor.mcp_checks import examine_mcp

        findings = interrupts.run(examine_mcp(mcp, behind))
    else:
        from context_bench.traffic.doctor.client_checks import examine_client

        findings = interrupts.run(examine_client(command or ""))
    _print(findings, json)
    return 1 if any(finding.status == "fail" for finding in findings) else 0


async def _proxy(proxy: str, tap: str | None, upstream: str, model: str, api_key_env: str) -> list[Finding]:
    from context_bench.llm.responders import SlowEcho
    from context_bench.llm.servers import ModelServer
    from context_bench.session.options import RunOptions
    from context_bench.session.run_session import run_environment

    async with AsyncExitStack() as stack:
        options = RunOptions(tap=tap, api_key_env=api_key_env)
        if options.tap_port is not None:
            own = await stack.enter_async_context(ModelServer(SlowEcho())) if upstream == "echo" else None
            options.upstream = upstream if own is None else own.url
        environment = await stack.enter_async_context(run_environment(options))
        return await examine(proxy, recorder=environment.tap, model=model, api_key=key_in(api_key_env))


def _print(findings: Sequence[Finding], json: bool) -> None:
    if json:
        import json as library

        from context_bench.core.records import plain

        sys.stdout.write(library.dumps([plain(finding) for finding in findings], indent=2) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from context_bench.reports.visible_text import visible

    marks = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]", "unknown": "?"}
    table = Table("", "what", "found", box=None, pad_edge=False)
    for finding in findings:
        found = finding.detail + (f" → {finding.advice}" if finding.advice else "")
        table.add_row(marks.get(finding.status, "?"), Text(visible(finding.name)), Text(visible(found, 1000)))
    Console().print(table)


_TAP = "give --tap PORT and point the proxy's own upstream setting at it"


async def examine(
    proxy_url: str,
    recorder: Recorder | None = None,
    *,
    model: str = "gpt-4o-mini",
    api_key: str | None = None,
    proxy_key: str | None = None,
    timeout: float = 30.0,
) -> list[Finding]:
    """Examine the proxy at `proxy_url` (with or without `/v1`); about 50 short and 24 medium requests (1,500 tokens)
    with a recorder.

    `recorder` must stand behind the proxy: the proxy's own upstream setting is its URL. Never raises for what the proxy
    does.
    """
    from context_bench.llm.chat import ChatClient
    from context_bench.session.activity import ROUTES, Asker, Finding, activity
    from context_bench.traffic.doctor import proxy_checks as checks

    client = ChatClient(proxy_url, api_key=api_key, proxy_key=proxy_key, timeout=timeout, max_retries=0)
    try:
        asker = Asker(client, recorder, model, api_key, proxy_key)
        found, reached = await checks.reachable(asker)
        if not reached:
            return found
        asked = {name: await asker.ask(f"route {name}", asker.short(shape)) for name, shape in ROUTES.items()}
        found += [checks.route(name, seen, asker) for name, seen in asked.items()]
        found.append(await checks.count_tokens(asker))
        if recorder is not None and not any(seen.records for seen in asked.values()):
            return [*found, checks.nothing_arrived(asker, recorder, asked)]
        working = [shape for name, shape in ROUTES.items() if asked[name].error is None]
        if working:
            found += [await checks.streaming(asker, working), await checks.packed(asker, working)]
        if recorder is None:
            return [*found, Finding("what it forwards", "unknown", "not visible from this side", _TAP)]
        found += await checks.marks(asker, working)
        if working:
            found += [
                await checks.own_cache(asker, working),
                *await checks.kept(asker, working),
                *await activity(asker, working),
            ]
        return found
    finally:
        await client.aclose()
