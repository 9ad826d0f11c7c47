"""`context-bench judge`: is the judge of a run to be trusted? Audits, labels by people, agreement with them, answers side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_bench.session import asking
from context_bench.session.defaults import DEFAULT_STORE

if TYPE_CHECKING:
    from context_bench.session.options import RunOptions

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Is the judge of a run to be trusted: audit, label by hand, calibrate, pairs."
)

RunArgument = Annotated[str, typer.Argument(help="Name or id of the run, or `last`.")]
StoreOption = Annotated[str, typer.Option("--store", help="Where results are kept.", metavar="URL")]
UrlOption = Annotated[str | None, typer.Option(help="The judge's endpoint. [default: that of the run]", metavar="URL")]
ModelOption = Annotated[str | None, typer.Option(help="The judge's model. [default: that of the run]")]
KeyOption = Annotated[str, typer.Option(help="Variable with the judge's key.")]
CacheOption = Annotated[bool, typer.Option("--cache-only", help="Send nothing; what is not remembered counts as failed.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Also write all figures to this file.", metavar="FILE")]
SeedOption = Annotated[int, typer.Option(help="Seed of the sample and of everything random.")]
WorkersOption = Annotated[int, typer.Option(help="Items in flight.", min=1)]


@app.command("audit")
def audit(
    context: typer.Context,
    run: RunArgument,
    store: StoreOption = DEFAULT_STORE,
    judge_url: UrlOption = None,
    judge_model: ModelOption = None,
    judge_key_env: KeyOption = "OPENAI_API_KEY",
    items: Annotated[int, typer.Option("-n", "--items", help="Answers to try it on.", min=1)] = 20,
    only: Annotated[
        str, typer.Option(help="Parts: marks, attacks, repeats, order, leak, views, drift. marks asks nobody.", metavar="A,B")
    ] = "marks,attacks,repeats,order,leak,views,drift",
    replicates: Annotated[int, typer.Option(help="Times each item is judged, to see whether it says the same.", min=2)] = 3,
    describe: Annotated[
        list[str] | None, typer.Option(help="What a method does, for the leak audit, in words that do not name it.", metavar="SYSTEM=TEXT")
    ] = None,
    seed: SeedOption = 0,
    max_workers: WorkersOption = 4,
    max_cost: asking.MaxCostOption = None,
    price: asking.PriceOption = None,
    timeout: asking.TimeoutOption = None,
    retries: asking.RetriesOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    cache_only: CacheOption = False,
    json: JsonOption = None,
) -> int:
    """Failures, marks that give methods away, attacks, agreement with itself, order, leak, views, drift. Exit code 4 if it must not judge.

    It must not if an attack gains more than 0.5 of 5 points or succeeds in more than 5 % of the answers (by the lower end of the interval),
    if it contradicts itself (alpha below 0.667), if more than 10 % of its verdicts cannot be read, or if twenty known items have moved by
    more than 0.2 since it was first asked.
    """
    from context_bench.cli.judge_audit import AuditOptions, run_audit

    parts = [part.strip() for part in only.split(",") if part.strip()]
    options = AuditOptions(items, parts, replicates, describe or [], seed, max_workers, cache_only, json)
    return run_audit(run, store, (judge_url, judge_model, judge_key_env), options, _limits(context))


@app.command("label")
def label(
    run: RunArgument,
    store: StoreOption = DEFAULT_STORE,
    labels: Annotated[Path, typer.Option(help="Where ratings are kept; goes on where it stopped.", metavar="FILE")] = Path("labels.jsonl"),
    rater: Annotated[str, typer.Option(help="Who rates, where several do.")] = "me",
    items: Annotated[int, typer.Option("-n", "--items", help="Answers to rate.", min=1)] = 40,
    score_field: Annotated[str, typer.Option(help="Score over whose range the answers are chosen.")] = "rubric_overall",
    seed: SeedOption = 0,
) -> int:
    """Rate answers by hand, 0 to 5, without knowing whose they are. Every key is kept at once; the same command goes on."""
    from context_bench.cli.judge_label import label_by_hand

    return label_by_hand(run, store, labels, rater, items, score_field, seed)


@app.command("calibrate")
def calibrate(
    run: RunArgument,
    labels: Annotated[list[Path], typer.Argument(help="Files that `judge label` wrote, of one rater or of several.", metavar="LABELS...")],
    store: StoreOption = DEFAULT_STORE,
    score_field: Annotated[str, typer.Option(help="The judge's score.")] = "rubric_overall",
    passed: Annotated[float, typer.Option(help="Rating from which an answer counts as passed.", min=0, max=5)] = 3.0,
    json: JsonOption = None,
) -> int:
    """Hold the judge against people: agreement, bias by system, means corrected by it. The run is labelled with what was found."""
    from context_bench.cli.judge_label import calibrate_run

    return calibrate_run(run, store, labels, score_field, passed, json)


@app.command("pairs")
def pairs(
    context: typer.Context,
    run: RunArgument,
    system: Annotated[str, typer.Argument(help="System of the run.")],
    baseline: Annotated[str, typer.Argument(help="System that it is set beside.")],
    store: StoreOption = DEFAULT_STORE,
    judge_url: UrlOption = None,
    judge_model: ModelOption = None,
    judge_key_env: KeyOption = "OPENAI_API_KEY",
    items: Annotated[int | None, typer.Option("-n", "--items", help="Most questions to ask about. [default: all]", min=1)] = None,
    seed: SeedOption = 0,
    max_workers: WorkersOption = 4,
    max_cost: asking.MaxCostOption = None,
    price: asking.PriceOption = None,
    timeout: asking.TimeoutOption = None,
    retries: asking.RetriesOption = None,
    rpm: asking.RpmOption = None,
    tpm: asking.TpmOption = None,
    cache_only: CacheOption = False,
    json: JsonOption = None,
) -> int:
    """Which of two systems' answers is better, asked in both orders: a win counts only where both agree."""
    from context_bench.cli.judge_audit import run_pairs

    asked = (judge_url, judge_model, judge_key_env)
    return run_pairs(run, store, asked, (system, baseline), items, seed, _limits(context), cache_only, json)


def _limits(context: typer.Context) -> RunOptions:
    """How the judge is asked: its own account, as if it were a run's only one."""
    from context_bench.session.options import read_options

    names = ("max_workers", "max_cost", "price", "timeout", "retries", "rpm", "tpm")
    given = {name: context.params[name] for name in names if context.params.get(name) not in (None, [], ())}
    asked: RunOptions = read_options(given, None)
    return asked
