"""`context-bench compress run` and `compress probe`: what is lost of a session when it is compressed, by asking about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.session import asking

SessionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files or folders of logs, bundled:sessions[/NAME], hf:OWNER/NAME. [default: bundled:sessions]", metavar="SESSIONS"
    ),
]
PointsOption = Annotated[
    str | None,
    typer.Option(
        help="Where sessions are compressed: fraction:0.75[,…], tokens:N[,…], every:N, at:I[,…], task-boundary. [default: fraction:0.75]",
        metavar="WHERE",
    ),
]
WindowOption = Annotated[int | None, typer.Option(help="Tokens that fractions are of. [default: those of the session]", metavar="TOKENS")]
TypesOption = Annotated[str | None, typer.Option(help="Only these: recall, artifact, continuation, decision.", metavar="A,B")]
ProbesOption = Annotated[
    str | None,
    typer.Option(
        help="Who makes the probes: structured (rules), model (the responder, checked word for word). [default: structured]", metavar="A,B"
    ),
]
PerTypeOption = Annotated[int | None, typer.Option(help="At most so many probes of each type at a point.", metavar="N")]
LimitOption = Annotated[int | None, typer.Option("-n", "--max-examples", help="Limit of sessions.")]


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


def run(
    context: typer.Context,
    sessions: SessionsArgument = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="Compressor: anchored, mask_observations, head_tail:keep=0.3, py:pkg.mod:Class, cli:COMMAND; repeatable.", metavar="SPEC"
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Base URL of a compressing proxy, whose own upstream is the tap; repeatable.", metavar="URL"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the proxy at the same position; default host:port.")] = None,
    tap: Annotated[
        str | None, typer.Option(help="Port to start the tap on, or the URL of a running one. [default: 9090]", metavar="PORT|URL")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="Who answers behind the tap: a URL, embedded, scripted:FILE, sentence. [default: the responder]", metavar="URL"),
    ] = None,
    points: PointsOption = None,
    window: WindowOption = None,
    responder: Annotated[
        str | None,
        typer.Option(help="Who answers: sentence (no model), embedded, scripted:FILE, or a URL. [default: sentence]", metavar="SPEC"),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="The responder's model.")] = None,
    controls: Annotated[
        str | None, typer.Option(help="What is run beside. [default: full,full#2,none,head_tail,random_drop]", metavar="A,B")
    ] = None,
    probes: ProbesOption = None,
    types: TypesOption = None,
    per_type: PerTypeOption = None,
    max_examples: LimitOption = None,
    drift: Annotated[
        bool | None, typer.Option("--drift", help="Compress at one point after the other, and ask about the first after each.")
    ] = None,
    replicates: Annotated[int | None, typer.Option(help="Compressions of each point. [default: 1]")] = None,
    trials: Annotated[int | None, typer.Option(help="Answers to each probe. [default: 1]")] = None,
    eligibility: Annotated[
        int | None,
        typer.Option(help="Answers of their own by which probes are chosen; 0: by their facts. [default: 5; for sentence 0]", metavar="N"),
    ] = None,
    judge_url: Annotated[str | None, typer.Option(help="Adds the rubric judge at this endpoint.", metavar="URL")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's model.")] = None,
    criteria: Annotated[str | None, typer.Option(help="by_probe (those that fit the type) or all 14. [default: by_probe]")] = None,
    visibility: Annotated[
        str | None, typer.Option(help="What the judge sees: context, normalised, response_only. [default: context]")
    ] = None,
    rubric: Annotated[str | None, typer.Option(help="A rubric of your own.", metavar="FILE")] = None,
    output: Annotated[str | None, typer.Option(help="table, markdown, json, html, csv, or a registered reporter. [default: table]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    score_field: Annotated[
        str | None, typer.Option(help="Score that verdicts are about. [default: probe_score; with a judge rubric_overall]")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Loss of score that would still be acceptable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random. [default: 0]")] = None,
    store: Annotated[str | None, typer.Option(help="Where results are kept. [default: ./.context-bench/store.db]", metavar="URL")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; the same name again resumes it.")] = None,
    max_workers: Annotated[int | None, typer.Option(help="Groups in flight. [default: 1]")] = None,
    max_cost: asking.MaxCostOption = None,
    dry_run: Annotated[bool | None, typer.Option("--dry-run", help="Only say what it would take.")] = None,
    wire: Annotated[
        str | None, _more(help="API that all arms speak through the tap: openai, anthropic, responses. [default: openai]")
    ] = None,
    proxy_key_env: Annotated[str | None, _more(help="Variable with the key that the proxy itself checks.")] = None,
    proxy_version: Annotated[str | None, _more(help="Enters the proxies' identity.")] = None,
    marker: Annotated[str | None, _more(help="How calls are recognised behind the proxy: key, header, serial. [default: key]")] = None,
    tap_check: Annotated[bool | None, _more("--tap-check/--no-tap-check", help="Insist that each proxy's traffic reaches the tap.")] = None,
    baseline: Annotated[str | None, _more(help="System that the others are compared with. [default: full]")] = None,
    evaluator: Annotated[list[str] | None, _more(help="Further evaluator; repeatable.", metavar="SPEC")] = None,
    metric: Annotated[list[str] | None, _more(help="Further metric; repeatable.", metavar="SPEC")] = None,
    imports: Annotated[list[str] | None, _more("--import", help="Module to import first.", metavar="MODULE")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with the responder's key. [default: OPENAI_API_KEY]")] = None,
    judge_key_env: Annotated[str | None, _more(help="Variable with the judge's key.")] = None,
    temperature: Annotated[float | None, _more(help="Sampling temperature of the responder. [default: 0]")] = None,
    max_tokens: Annotated[int | None, _more(help="Most tokens of an answer. [default: 400]")] = None,
    timeout: asking.TimeoutOption = None,
    example_timeout: asking.ExampleTimeoutOption = None,
    setup_timeout: asking.SetupTimeoutOption = None,
    run_timeout: asking.RunTimeoutOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    judge_rpm: asking.JudgeRpmOption = None,
    judge_tpm: asking.JudgeTpmOption = None,
    fixed_concurrency: asking.FixedOption = None,
    retries: asking.RetriesOption = None,
    resume: Annotated[str | None, _more(help="Go on with this run; alone: the last unfinished one.", metavar="[RUN]")] = None,
    reuse: Annotated[bool | None, _more("--reuse", help="Also use rows of other runs with the same content.")] = None,
    bodies: Annotated[str | None, _more(help="Keep request and reply bodies: all, changed, none. [default: changed]")] = None,
    price: asking.PriceOption = None,
    price_model: asking.PriceModelOption = None,
    max_failures: Annotated[
        float | None, _more(help="Share of failures per system above which the exit code is 1. [default: 0.02]")
    ] = None,
    force: Annotated[bool | None, _more("--force", help="Go on where a check would refuse.")] = None,
    quiet: Annotated[bool | None, _more("--quiet", help="No progress.")] = None,
    config: Annotated[Path | None, _more(help="Options from a TOML file; flags win.", metavar="FILE.toml")] = None,
) -> int:
    """Compress sessions with each system, ask what was lost, and compare with all, nothing, and plain truncation to the same size."""
    from context_bench.compression.command.run import CompressOptions, compress_sessions
    from context_bench.session.options import read_options

    flags = {name: value for name, value in context.params.items() if value not in (None, [], ()) and name != "config"}
    return compress_sessions(read_options(flags, config, CompressOptions))


def probe(
    context: typer.Context,
    sessions: SessionsArgument = None,
    points: PointsOption = None,
    window: WindowOption = None,
    probes: ProbesOption = None,
    types: TypesOption = None,
    per_type: PerTypeOption = None,
    max_examples: LimitOption = None,
    responder: Annotated[str | None, typer.Option(help="The model that writes probes (--probes model): a URL.", metavar="URL")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Its name.")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with its key. [default: OPENAI_API_KEY]")] = None,
    timeout: asking.TimeoutOption = None,
    retries: asking.RetriesOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    max_cost: asking.MaxCostOption = None,
    price: asking.PriceOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the probes to this file instead of stdout.")] = None,
) -> int:
    """Write the probes of sessions as JSON lines: question, facts of the answer, and where in the session each was found."""
    from context_bench.compression.command.run import CompressOptions, Limits, checked_probes, probe_set
    from context_bench.llm.spend import SpendLimit
    from context_bench.session.files import say
    from context_bench.session.limiting import Accounts
    from context_bench.session.options import read_options

    flags = {name: value for name, value in context.params.items() if value not in (None, [], ()) and name != "out"}
    options = checked_probes(read_options(flags, None, CompressOptions))
    spend = SpendLimit(options.max_cost) if options.max_cost is not None else None
    found = probe_set(options, limits=Limits.of(options, Accounts(options), spend))
    lines = [json.dumps({k: v for k, v in example.items() if k != "session"}, ensure_ascii=False) for example in found.examples()]
    text = "\n".join(lines) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, "utf-8")
    told = found.manifest()
    say(f"{told['counts']['probes']} probes at {told['counts']['points']} points of {told['counts']['sessions']} sessions: {told['types']}")
    return 0
