"""`context-bench memory`: does a memory find and answer, what does it cost, and does it forget, mix up or lose what it must not?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from context_bench.cli import compare
from context_bench.memory.command import checks as memory_checks
from context_bench.memory.command import cortex as memory_seed
from context_bench.session import asking, runs

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure memories. Without a subcommand `run` is meant: context-bench memory --system bm25 --dataset bundled:recall-lab",
)
app.command("doctor")(memory_checks.doctor)
app.command("ops")(memory_checks.ops)
app.command("audit")(memory_checks.audit)
app.command("compare")(compare.command)
app.command("replay", help="Judge the stored answers again: no memory and no reader is called. The same as `context-bench rescore`.")(
    runs.rescore
)
app.command("cortex-eval")(memory_seed.cortex_eval)
app.command("cortex-compare")(memory_seed.cortex_compare)


def _more(*names: str, **options: Any) -> Any:
    return typer.Option(*names, hidden=True, **options)


@app.command("run")
def run(
    context: typer.Context,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="bm25, embedding, hybrid, recency, mem0, …; py:pkg.mod:Class; cli:, http:, mcp: and a file; repeatable.", metavar="SPEC"
        ),
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(help="OpenAI-compatible endpoint used by every memory and the reader. [default: the bundled model]", metavar="URL"),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="locomo, longmemeval, dmr, beam, convomem, membench, memoryagentbench, bundled:recall-lab, or a file; repeatable. "
            "[default: locomo]",
            metavar="NAME_OR_PATH",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Answering model, and the judge's. [default: claude-haiku-4-5-20251001]")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="The relay's key; better in the variable of --api-key-env. [default: OPENAI_API_KEY]")
    ] = None,
    max_conversations: Annotated[int | None, typer.Option("-n", "--max-conversations", help="Limit of conversations per dataset.")] = None,
    qa_types: Annotated[str | None, typer.Option(help="Only these types of questions, comma-separated.", metavar="A,B")] = None,
    output: Annotated[str | None, typer.Option(help="table, markdown, json, html, csv, or a registered reporter. [default: table]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    score_field: Annotated[str | None, typer.Option(help="Score that verdicts and the table by type are about. [default: f1]")] = None,
    k: Annotated[
        str | None,
        typer.Option(
            "--k", help="Numbers of hits to measure at; the reader gets the largest. [default: 1,5,10; for the bundled model 1,3]"
        ),
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option(help="At most so many of each conversation, or all. [default: all; for the bundled model 5]", metavar="N"),
    ] = None,
    budget_tokens: Annotated[str | None, typer.Option(help="Also measure at these token budgets.", metavar="N,N")] = None,
    reader: Annotated[
        str | None, typer.Option(help="Who answers: URL, embedded, py:pkg.mod:Class, none (retrieval only). [default: the relay]")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="shared: each conversation once for all its questions; isolated: anew for every question; growing: each beside all before "
            "it. [default: shared]"
        ),
    ] = None,
    floors: Annotated[bool | None, typer.Option("--floors/--no-floors", help="Also run none, random, full_context, oracle.")] = None,
    judge_url: Annotated[str | None, typer.Option(help="Adds MemoryJudge at this endpoint.", metavar="URL")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's model; alone: at the relay.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random. [default: 42]")] = None,
    store: Annotated[str | None, typer.Option(help="Where results are kept. [default: ./.context-bench/store.db]", metavar="URL")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; the same name again resumes it.")] = None,
    max_workers: Annotated[
        int | None, typer.Option(help="Conversations in flight. [default: 1; with the bundled model as many as cores]")
    ] = None,
    max_cost: asking.MaxCostOption = None,
    dry_run: Annotated[bool | None, typer.Option("--dry-run", help="Only say what it would take.")] = None,
    probes: Annotated[int | None, _more(help="Items looked for by their own words after storing (write loss). [default: 20]")] = None,
    overlay: Annotated[str | None, _more(help="Corrections and exclusions of questions, as a file.", metavar="FILE")] = None,
    baseline: Annotated[str | None, _more(help="Memory that the others are compared with. [default: full_context]")] = None,
    margin: Annotated[float | None, _more(help="Loss of score that would still be acceptable.")] = None,
    trials: Annotated[int | None, _more(help="Times everything is repeated, ingest included. [default: 1]")] = None,
    tap: Annotated[str | None, _more(help="See what memories send to the relay: a port.", metavar="PORT")] = None,
    upstream: Annotated[str | None, _more(help="What stands behind the tap. [default: the relay]", metavar="URL")] = None,
    evaluator: Annotated[list[str] | None, _more(help="Further evaluator; repeatable.", metavar="SPEC")] = None,
    metric: Annotated[list[str] | None, _more(help="Further metric; repeatable.", metavar="SPEC")] = None,
    imports: Annotated[list[str] | None, _more("--import", help="Module to import first.", metavar="MODULE")] = None,
    api_key_env: Annotated[str | None, _more(help="Variable with the relay's key. [default: OPENAI_API_KEY]")] = None,
    judge_key_env: Annotated[str | None, _more(help="Variable with the judge's key.")] = None,
    temperature: Annotated[float | None, _more(help="Sampling temperature of the reader. [default: 0]")] = None,
    max_tokens: Annotated[int | None, _more(help="Most tokens of an answer.")] = None,
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
        float | None, _more(help="Share of failures per memory above which the exit code is 1. [default: 0.02]")
    ] = None,
    force: Annotated[bool | None, _more("--force", help="Go on where a check would refuse.")] = None,
    quiet: Annotated[bool | None, _more("--quiet", help="No progress.")] = None,
    config: Annotated[Path | None, _more(help="Options from a TOML file; flags win.", metavar="FILE.toml")] = None,
) -> int:
    """Put conversations into memories, ask, and measure what was found, answered, forgotten and paid."""
    from context_bench.memory.command.run import MemoryOptions, remember
    from context_bench.session.options import read_options

    left = ("config", "max_conversations")
    given = {name: value for name, value in context.params.items() if value not in (None, [], ()) and name not in left}
    if max_conversations is not None:
        given["max_examples"] = max_conversations
    return remember(read_options(given, config, MemoryOptions))
