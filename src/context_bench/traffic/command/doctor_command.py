"""`context-bench doctor`: what does this proxy speak, keep and change? Before a benchmark is blamed for it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from context_bench.llm.redact import key_in
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import Common


@takes(
    Common,
    proxy=own("Base URL of the proxy.", default=None),
    tap=own("A port to start a tap on (the proxy's upstream), or the URL of a running tap.", note=""),
    upstream=own(
        "What stands behind the tap: echo (free), embedded, scripted:FILE or a URL.", unit=None, default="echo"
    ),
    model=own("Model name to send.", default="gpt-4o-mini"),
    api_key_env=own(rare=False),
)
def command(proxy: str, tap: str | None, upstream: str, model: str, api_key_env: str, json: bool) -> int:
    """Examine a proxy: routes, key, headers, roles, cache marks, thinking, streaming, and which request shapes it
    shrinks.
    """
    return interrupts.run(_examine(proxy, tap, upstream, model, api_key_env, json))


async def _examine(proxy: str, tap: str | None, upstream: str, model: str, api_key_env: str, json: bool) -> int:

    from context_bench.llm.responders import SlowEcho
    from context_bench.llm.servers import ModelServer
    from context_bench.session.options import RunOptions
    from context_bench.session.run_session import run_environment
    from context_bench.traffic.doctor import examine

    async with AsyncExitStack() as stack:
        options = RunOptions(tap=tap, api_key_env=api_key_env)
        if options.tap_port is not None:
            own = await stack.enter_async_context(ModelServer(SlowEcho())) if upstream == "echo" else None
            options.upstream = upstream if own is None else own.url
        environment = await stack.enter_async_context(run_environment(options))
        findings = await examine(proxy, recorder=environment.tap, model=model, api_key=key_in(api_key_env))
    _print(findings, json)
    return 1 if any(finding.status == "fail" for finding in findings) else 0


def _print(findings: list, json: bool) -> None:  # type: ignore[type-arg]
    if json:
        import json as library

        from context_bench.core.records import plain

        print(library.dumps([plain(finding) for finding in findings], indent=2))
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
