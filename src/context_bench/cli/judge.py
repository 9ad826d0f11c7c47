"""`context-bench judge`: is the judge of a run to be trusted? Audits, labels by people, agreement with them, answers
side by side.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_bench.session.flags import flag, own, takes
from context_bench.session.options import Common

if TYPE_CHECKING:
    from context_bench.session.options import RunOptions


class JudgeOptions(Common):
    """Options of `context-bench judge …`."""

    items: int = flag("Answers to try it on.", 20, names="-n --items", least=1)
    only: str = flag(
        "Parts: marks, attacks, repeats, order, leak, views, drift. marks asks nobody.",
        "marks,attacks,repeats,order,leak,views,drift",
        unit="A,B",
    )
    describe: list[str] | None = flag(
        "What a method does, for the leak audit, in words that do not name it.", unit="SYSTEM=TEXT"
    )
    cache_only: bool = flag("Send nothing; what is not remembered counts as failed.", False)
    labels: Path = flag("Where ratings are kept; goes on where it stopped.", Path("labels.jsonl"), unit="FILE")
    rater: str = flag("Who rates, where several do.", "me")
    passed: float = flag("Rating from which an answer counts as passed.", 3.0, least=0, most=5)


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Is the judge of a run to be trusted: audit, label by hand, calibrate, pairs.",
)

RunArgument = Annotated[str, typer.Argument(help="Name or id of the run, or `last`.")]


@app.command("audit")
@takes(
    JudgeOptions,
    judge_url=own("The judge's endpoint.", note="that of the run"),
    judge_model=own(note="that of the run"),
    replicates=own("Times each item is judged, to see whether it says the same.", least=2, default=3),
    seed=own("Seed of the sample and of everything random."),
    max_workers=own("Items in flight.", least=1, default=4),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def audit(
    context: typer.Context,
    run: RunArgument,
    store: str,
    judge_url: str | None,
    judge_model: str | None,
    judge_key_env: str,
    items: int,
    only: str,
    replicates: int,
    describe: list[str] | None,
    seed: int,
    max_workers: int,
    max_cost: float | None,
    price: list[str] | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    tpm: float | None,
    cache_only: bool,
    json: Path | None,
) -> int:
    """Failures, marks that give methods away, attacks, agreement with itself, order, leak, views, drift. Exit code 4 if
    it must not judge.

    It must not if an attack gains more than 0.5 of 5 points or succeeds in more than 5 % of the answers (by the lower
    end of the interval), if it contradicts itself (alpha below 0.667), if more than 10 % of its verdicts cannot be
    read, or if twenty known items have moved by more than 0.2 since it was first asked.
    """
    from context_bench.cli.judge_audit import AuditOptions, run_audit

    parts = [part.strip() for part in only.split(",") if part.strip()]
    options = AuditOptions(items, parts, replicates, describe or [], seed, max_workers, cache_only, json)
    return run_audit(run, store, (judge_url, judge_model, judge_key_env), options, _limits(context))


@app.command("label")
@takes(
    JudgeOptions,
    items=own("Answers to rate.", default=40),
    score_field=own("Score over whose range the answers are chosen.", default="rubric_overall"),
    seed=own("Seed of the sample and of everything random."),
)
def label(run: RunArgument, store: str, labels: Path, rater: str, items: int, score_field: str, seed: int) -> int:
    """Rate answers by hand, 0 to 5, without knowing whose they are. Every key is kept at once; the same command goes
    on.
    """
    from context_bench.cli.judge_label import label_answers

    return label_answers(run, store, labels, rater, items, score_field, seed)


@app.command("calibrate")
@takes(
    JudgeOptions,
    score_field=own("The judge's score.", default="rubric_overall"),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def calibrate(
    run: RunArgument,
    labels: Annotated[
        list[Path],
        typer.Argument(help="Files that `judge label` wrote, of one rater or of several.", metavar="LABELS..."),
    ],
    store: str,
    score_field: str,
    passed: float,
    json: Path | None,
) -> int:
    """Hold the judge against people: agreement, bias by system, means corrected by it. The run is labelled with what
    was found.
    """
    from context_bench.cli.judge_label import calibrate_run

    return calibrate_run(run, store, labels, score_field, passed, json)


@app.command("pairs")
@takes(
    JudgeOptions,
    judge_url=own("The judge's endpoint.", note="that of the run"),
    judge_model=own(note="that of the run"),
    items=own("Most questions to ask about.", note="all"),
    seed=own("Seed of the sample and of everything random."),
    max_workers=own("Items in flight.", least=1, default=4),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def pairs(
    context: typer.Context,
    run: RunArgument,
    system: Annotated[str, typer.Argument(help="System of the run.")],
    baseline: Annotated[str, typer.Argument(help="System that it is set beside.")],
    store: str,
    judge_url: str | None,
    judge_model: str | None,
    judge_key_env: str,
    items: int | None,
    seed: int,
    max_workers: int,
    max_cost: float | None,
    price: list[str] | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    tpm: float | None,
    cache_only: bool,
    json: Path | None,
) -> int:
    """Which of two systems' answers is better, asked in both orders: a win counts only where both agree."""
    from context_bench.cli.judge_audit import run_pairs

    asked = (judge_url, judge_model, judge_key_env)
    return run_pairs(run, store, asked, (system, baseline), items, seed, _limits(context), cache_only, json)


def _limits(context: typer.Context) -> RunOptions:
    """Settings by which the judge is asked: its own account, as if it were a run's only one."""
    from context_bench.session.flags import read_options
    from context_bench.session.options import RunOptions

    names = ("max_workers", "max_cost", "price", "timeout", "retries", "rpm", "tpm")
    given = {name: context.params[name] for name in names if context.params.get(name) not in (None, [], ())}
    return read_options(given, None, RunOptions)
