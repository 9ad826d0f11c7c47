"""`context-bench run`: the main job. Flags here, everything else in `cli.session`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.session import asking


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


def command(
    context: typer.Context,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Base URL of an OpenAI-compatible proxy (with or without /v1); repeat for several.", metavar="URL"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the proxy at the same position; default host:port.")] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Built-in name, name:config, bundled:…, hf:OWNER/NAME, or a file (.jsonl .csv .parquet .toml …); repeatable.",
            metavar="NAME_OR_PATH",
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(help="Another system: py:pkg.mod:Class, a registered name, or a control such as bm25:keep=0.5.", metavar="SPEC"),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Sent as `model`. [default: claude-haiku-4-5-20251001]")] = None,
    max_examples: Annotated[int | None, typer.Option("-n", "--max-examples", help="Limit per dataset. [default: all]")] = None,
    output: Annotated[str | None, typer.Option(help="table, markdown, json, html, csv, or a registered reporter. [default: table]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    score_field: Annotated[str | None, typer.Option(help="Score that verdicts and pass marks are about. [default: f1]")] = None,
    threshold: Annotated[float | None, typer.Option(help="Pass mark (score ≥ threshold). [default: 0.7]")] = None,
    judge_url: Annotated[str | None, typer.Option(help="Adds LLMJudge at this OpenAI-compatible endpoint.", metavar="URL")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's model. [default: claude-haiku-4-5-20251001]")] = None,
    max_workers: Annotated[int | None, typer.Option(help="Examples in flight. [default: 1]")] = None,
    cache_dir: Annotated[str | None, typer.Option(help="Keep results here and use again what is there.", metavar="DIR")] = None,
    tap: Annotated[
        str | None,
        typer.Option(
            help="See what really reaches the provider: a port to start a tap on, or the URL of a running one.", metavar="PORT|URL"
        ),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="The provider behind: a URL, embedded, echo, or scripted:FILE.", metavar="URL")
    ] = None,
    controls: Annotated[
        str | None,
        typer.Option(
            help="Control arms; alone: full,full#2,none,head_tail,random_drop; or head_tail@NAME. Needs --upstream.", metavar="[LIST]"
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="System that the others are compared with. [default: full, else the first]", metavar="NAME")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Loss of score that would still be acceptable. [default: min(0.02, 10 % of full − none)]")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Request shapes: plain-user, plain-system, tool-result, claude-code, codex, openai-agent. [default: plain-user]",
            metavar="LIST",
        ),
    ] = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Ask for streamed replies (gives time to first token).")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Times each example is asked. [default: 1]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random. [default: 0]")] = None,
    max_cost: asking.MaxCostOption = None,
    store: Annotated[str | None, typer.Option(help="Where results are kept. [default: ./.context-bench/store.db]", metavar="URL")] = None,
    dry_run: Annotated[
        bool | None, typer.Option("--dry-run", help="Only say what it would take: calls, tokens, money, detectable difference.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Options from a TOML file; flags win.", metavar="FILE.toml")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with the upstream's key. [default: OPENAI_API_KEY]")] = None,
    proxy_key_env: Annotated[str | None, _more(help="Variable with the key that the proxy itself checks.")] = None,
    judge_key_env: Annotated[str | None, _more(help="Variable with the judge's key. [default: that of --api-key-env]")] = None,
    temperature: Annotated[float | None, _more(help="Sampling temperature. [default: not sent]")] = None,
    max_tokens: Annotated[int | None, _more(help="Most tokens of a reply. [default: not sent]")] = None,
    system_prompt: Annotated[str | None, _more(help="Put before every request as a system message.")] = None,
    prompt: Annotated[str | None, _more(help="Template with {context} and {question} for plain shapes.")] = None,
    timeout: asking.TimeoutOption = None,
    example_timeout: asking.ExampleTimeoutOption = None,
    setup_timeout: asking.SetupTimeoutOption = None,
    run_timeout: asking.RunTimeoutOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    judge_rpm: asking.JudgeRpmOption = None,
    judge_tpm: asking.JudgeTpmOption = None,
    fixed_concurrency: asking.FixedOption = None,
    executor: Annotated[str | None, _more(help="Where the work is done: local, or ray (the nodes of a cluster). [default: local]")] = None,
    ray_address: Annotated[
        str | None, _more(help="The Ray cluster, as HOST:PORT or auto. [default: RAY_ADDRESS, else one on this machine]", metavar="ADDRESS")
    ] = None,
    retries: asking.RetriesOption = None,
    marker: Annotated[str | None, _more(help="How calls are recognised behind the proxy: key, header, serial. [default: key]")] = None,
    record: Annotated[str | None, _more(help="What the tap keeps: meta, hashes, redacted, full. [default: full]")] = None,
    wire: Annotated[str | None, _more(help="API for plain shapes: openai, anthropic, responses. [default: openai]")] = None,
    tap_check: Annotated[bool | None, _more("--tap-check/--no-tap-check", help="Insist that each proxy's traffic reaches the tap.")] = None,
    bodies: Annotated[str | None, _more(help="Keep request and reply bodies: all, changed, none. [default: all up to 10,000 rows]")] = None,
    budget: Annotated[int | None, _more(help="Fixed token budget of truncating controls, instead of the size of each system.")] = None,
    keep: Annotated[float | None, _more(help="Fixed share of the context that truncating controls keep.")] = None,
    reader: Annotated[
        str | None, _more(help="Who answers for systems that only return a context: URL or embedded.", metavar="SPEC")
    ] = None,
    evaluator: Annotated[list[str] | None, _more(help="Further evaluator; repeatable.", metavar="SPEC")] = None,
    metric: Annotated[list[str] | None, _more(help="Further metric; repeatable.", metavar="SPEC")] = None,
    imports: Annotated[list[str] | None, _more("--import", help="Module to import first (for register_* calls).", metavar="MODULE")] = None,
    run: Annotated[str | None, _more(help="Name of the run; the same name again resumes it.")] = None,
    resume: Annotated[str | None, _more(help="Go on with this run; alone: the last unfinished one.", metavar="[RUN]")] = None,
    reuse: Annotated[
        bool | None, _more("--reuse", help="Also use rows of other runs with the same content; says how many and how old.")
    ] = None,
    proxy_version: Annotated[str | None, _more(help="Enters the proxies' identity: a new version is never answered from old rows.")] = None,
    cache_namespace: Annotated[str | None, _more(help="Keep the arms' provider caches apart: auto, prompt, none. [default: auto]")] = None,
    price: asking.PriceOption = None,
    price_model: asking.PriceModelOption = None,
    max_failures: Annotated[
        float | None, _more(help="Share of failures per system above which the exit code is 1. [default: 0.02]")
    ] = None,
    force: Annotated[bool | None, _more("--force", help="Go on where a check would refuse.")] = None,
    quiet: Annotated[bool | None, _more("--quiet", help="No progress.")] = None,
) -> int:
    """Measure proxies and other systems on datasets, against controls, with intervals and verdicts."""
    from context_bench.session.options import read_options
    from context_bench.session.session import run_session

    given = {key: value for key, value in context.params.items() if value not in (None, [], ()) and key != "config"}
    return run_session(read_options(given, config))
