"""`context-bench trace score`: agents' logs against gold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from context_bench.cli.files import say
from context_bench.cli.flags import own, takes
from context_bench.cli.options import TraceOptions
from context_bench.cli.trace_reports import ENDINGS, OUTPUTS, check_places, keep_all, write_report
from context_bench.cli.trace_solved import patches_of, status_of, summarised
from context_bench.cli.trace_sources import labelled
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.reports.checks import Check
    from context_bench.reports.traces.summary import TraceSummary
    from context_bench.traces import TraceResults


#: The set of traces that were given no name.
UNNAMED = "traces"


@takes(
    TraceOptions,
    output=own(f"On standard output: {', '.join(OUTPUTS)}."),
    threshold=own("Line coverage from which on a task counts as read.", default=0.5),
)
def score(
    gold: Path,
    trace: list[str],
    repo: list[str] | None,
    policy: str,
    count: str | None,
    results: list[str] | None,
    join: Path | None,
    instance: str | None,
    report: list[Path] | None,
    output: str,
    out_dir: Path | None,
    min_coverage: list[str] | None,
    by: str,
    longest: int | None,
    dilate: int,
    threshold: float,
    exclude_infra: bool,
    scorer: str | None,
    tools: Path | None,
    workers: int | None,
    fresh: bool,
    quiet: bool,
) -> int:
    """Score runs: what was read against what had to be read, when, how often again, and where the patch edits.

    Nothing is fetched and nothing of the logs is executed. Exit code 1 if of a set no run could be scored.
    """
    from context_bench.logs.gold import load_gold
    from context_bench.logs.solved import load_solved
    from context_bench.traces import score_traces

    sets = {label or UNNAMED: paths for label, paths in labelled(trace).items()}
    limits = [_limit(text) for text in min_coverage or ()]
    _check(output, report or (), by, threshold)
    check_places(report or (), out_dir)
    golds = load_gold(gold, join=join)
    if instance is not None and golds.find(instance) is None:
        raise BadInput(f"--instance {instance}: the gold knows no such task; the first it knows is {golds.golds[0].instance_id}")
    solved = {label: [load_solved(path, scorer=scorer) for path in paths] for label, paths in labelled(results or ()).items()}
    if unknown := set(solved) - set(sets) - {""}:
        raise BadInput(f"--results names the set {sorted(unknown)[0]!r}, which no --trace has; sets: {', '.join(sets) or '(none)'}")
    found = score_traces(
        golds,
        sets,
        repo or (),
        policy=policy,
        count=_words(count),
        by="turn" if by == "turn" else "call",
        longest=longest,
        dilate=dilate,
        out=out_dir,
        workers=workers,
        tools=tools,
        instance=instance,
        status=status_of(solved),
        patches=patches_of(solved, golds),
        fresh=fresh,
        on_done=None if quiet or not sys.stderr.isatty() else _progress,
    )
    with found if out_dir is None else nullcontext():
        summary = summarised(found, gold, solved, threshold, exclude_infra)
        _reused(found)
        if out_dir is not None:
            keep_all(found, summary, out_dir, gold)
        for place in report or ():
            write_report(found, summary, ENDINGS[place.suffix.lower()], place, gold)
        write_report(found, summary, output, None, gold)
    _hold(summary, limits)
    return _unscored(summary, instance)


def _check(output: str, reports: Sequence[Path], by: str, threshold: float) -> None:
    if output not in OUTPUTS:
        raise BadInput(f"--output is {output!r}, expected one of {', '.join(OUTPUTS)}")
    for place in reports:
        if place.suffix.lower() not in ENDINGS:
            raise BadInput(f"--report {place}: the ending {place.suffix!r} names no report; known: {', '.join(ENDINGS)}")
    if by not in ("call", "turn"):
        raise BadInput(f"--by is {by!r}, expected call or turn")
    if not 0 <= threshold <= 1:
        raise BadInput(f"--threshold is {threshold:g}, expected a coverage from 0 to 1")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _limit(text: str) -> tuple[str, float]:
    from context_bench.cli.gate import limit_of
    from context_bench.core.coverage import LEVELS
    from context_bench.core.errors import UnknownName

    name, least = limit_of(text)
    if name not in LEVELS:
        raise UnknownName("level", name, LEVELS)
    return name, least


def _unscored(summary: TraceSummary, instance: str | None) -> int:
    """Exit code: 1 if there is a set of which nothing could be scored, which is said."""
    code = 0
    for label, one in summary.sets.items():
        if not one.rows or one.errors.total() < len(one.rows):
            continue
        code = 1
        reason, count = one.errors.most_common(1)[0]
        hint = ""
        if reason == "no_gold":
            names = ", ".join(row.instance_id for row in one.rows[:3])
            hint = f": no task of the gold is called {names}"
            hint += "" if instance else "; --instance ID says which task it is, or put a log into a folder named like its task"
        said = f"of the set {label!r} no run could be scored" if len(summary.sets) > 1 else "no run could be scored"
        say(f"{said}: {reason} ({count:,}×){hint}")
    return code


def _progress(done: int, of: int) -> None:
    print(f"\rcontext-bench: {done:,} of {of:,} files", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _reused(found: TraceResults) -> None:
    if found.reused:
        say(f"{found.reused:,} rows were there already, {found.made:,} were scored now")


def _hold(summary: TraceSummary, limits: Sequence[tuple[str, float]]) -> None:
    if not limits:
        return
    from context_bench.cli.gate import hold
    from context_bench.reports.checks import Check

    checks: list[Check] = []
    for label, one in summary.sets.items():
        for level, least in limits:
            mean = one.figures.figures.get(f"macro.coverage.{level}")
            name = f"{label}{'/' if label else ''}coverage.{level}"
            value = None if mean is None else mean.value
            if value is None:
                checks.append(Check(f"{name} ≥ {least:g}", False, f"{name} was not measured"))
            else:
                word = "at least" if value >= least else "below"
                checks.append(Check(f"{name} ≥ {least:g}", value >= least, f"{name} is {value:.6g}, {word} {least:g}"))
    hold(checks)
