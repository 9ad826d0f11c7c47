"""`context-bench replay`: recorded sessions once more, through each proxy; what becomes of cache, money, wire and next actions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.session import asking


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


def command(
    context: typer.Context,
    sessions: Annotated[
        list[str],
        typer.Argument(help="Files or folders of recorded sessions, bundled:sessions[/NAME], or hf:OWNER/NAME.", metavar="SESSIONS..."),
    ],
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Base URL of a proxy, whose own upstream is the tap; repeat for several.", metavar="URL"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the proxy at the same position; default host:port.")] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="The provider behind the tap: echo (no model, free), a URL, embedded, or scripted:FILE.", metavar="URL"),
    ] = None,
    tap: Annotated[
        str | None, typer.Option(help="Port to start the tap on, or the URL of a running one. [default: 9090]", metavar="PORT|URL")
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(help="0: tokens, cache, money, wire, loss. 1: also the next action. [default: 0 with echo, else 1]", min=0, max=1),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Sent instead of the recorded model.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Cache rules and prices: a model's, or a family's rules (openai, openai-5.6, anthropic, vllm, deepseek) at the recorded "
            "model's prices. [default: the recorded model's]",
            metavar="MODEL",
        ),
    ] = None,
    max_sessions: Annotated[int | None, typer.Option("-n", "--max-sessions", help="Most sessions to replay. [default: all]")] = None,
    output: Annotated[str | None, typer.Option(help="table, markdown, json, html, csv, or a registered reporter. [default: table]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    store: Annotated[str | None, typer.Option(help="Where results are kept. [default: ./.context-bench/store.db]", metavar="URL")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; the same name again resumes it.")] = None,
    max_cost: asking.MaxCostOption = None,
    dry_run: Annotated[bool | None, typer.Option("--dry-run", help="Only say what it would take.")] = None,
    wire: Annotated[str | None, _more(help="Render sessions for this API: openai, anthropic, responses. [default: as recorded]")] = None,
    trials: Annotated[int | None, _more(help="Times each session is replayed. [default: 1]")] = None,
    margin: Annotated[float | None, _more(help="Loss of agreement that would still be acceptable.")] = None,
    seed: Annotated[int | None, _more(help="Seed of everything random. [default: 0]")] = None,
    max_workers: Annotated[int | None, _more(help="Sessions in flight. [default: one per system]")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with the upstream's key. [default: OPENAI_API_KEY]")] = None,
    proxy_key_env: Annotated[str | None, _more(help="Variable with the key that the proxy itself checks.")] = None,
    proxy_version: Annotated[str | None, _more(help="Enters the proxies' identity.")] = None,
    marker: Annotated[str | None, _more(help="How calls are recognised behind the proxy: key, header, serial. [default: key]")] = None,
    tap_check: Annotated[bool | None, _more("--tap-check/--no-tap-check", help="Insist that each proxy's traffic reaches the tap.")] = None,
    timeout: asking.TimeoutOption = None,
    example_timeout: asking.ExampleTimeoutOption = None,
    run_timeout: asking.RunTimeoutOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    fixed_concurrency: asking.FixedOption = None,
    retries: asking.RetriesOption = None,
    resume: Annotated[str | None, _more(help="Go on with this run; alone: the last unfinished one.", metavar="[RUN]")] = None,
    reuse: Annotated[bool | None, _more("--reuse", help="Also use rows of other runs with the same content.")] = None,
    price: asking.PriceOption = None,
    max_failures: Annotated[float | None, _more(help="Share of failures above which the exit code is 1. [default: 0.02]")] = None,
    quiet: Annotated[bool | None, _more("--quiet", help="No progress.")] = None,
    config: Annotated[Path | None, _more(help="Options from a TOML file; flags win.", metavar="FILE.toml")] = None,
) -> int:
    """Send recorded sessions again, request by request, through each proxy, and measure what arrives behind it."""
    from context_bench.session.options import read_options
    from context_bench.session.replay_run import ReplayOptions, replay_sessions

    given = {key: value for key, value in context.params.items() if value not in (None, [], ()) and key not in ("config", "max_sessions")}
    if max_sessions is not None:
        given["max_examples"] = max_sessions
    return replay_sessions(read_options(given, config, ReplayOptions))
