"""`context-bench trace score`: agents' logs against gold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.session.flags import own, takes
from context_bench.session.options import TraceOptions
from context_bench.session.output_files import destination, replacing, say
from context_bench.session.reporting import json_text, terminal
from context_bench.session.run_parts import remark

if TYPE_CHECKING:
    from context_bench.session.gate import Check
    from context_bench.traces import TraceResults
    from context_bench.traces.reports.trace_summary import TraceSummary
    from context_bench.traces.score_many import StatusOf
    from context_bench.transcripts.harness_results import SolvedTasks


#: The set of traces that were given no name.
UNNAMED = "traces"
OUTPUTS = ("table", "json", "csv", "markdown", "jsonl", "html")


@takes(
    TraceOptions,
    output=own(f"On standard output: {', '.join(OUTPUTS)}."),
    tag=own(default=None),
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
    title: str | None,
    tag: list[str] | None,
) -> int:
    """Score runs: what was read against what had to be read, when, how often again, and where the patch edits.

    Nothing is fetched and nothing of the logs is executed. Exit code 1 if of a set no run could be scored.
    """
    from context_bench.traces import score_traces
    from context_bench.traces.gold import load_gold
    from context_bench.transcripts.harness_results import load_solved

    sets = {label or UNNAMED: paths for label, paths in labelled(trace).items()}
    limits = [_limit(text) for text in min_coverage or ()]
    _check(output, report or (), by, threshold)
    check_places(report or (), out_dir)
    named = remark(title, tag)
    if named is not None and out_dir is None:
        raise BadInput("trace score: --title and --tag are of what is kept; say where with --out-dir DIR")
    golds = load_gold(gold, join=join)
    if instance is not None and golds.find(instance) is None:
        raise BadInput(
            f"--instance {instance}: the gold knows no such task; the first it knows is {golds.golds[0].instance_id}"
        )
    solved = {
        label: [load_solved(path, scorer=scorer) for path in paths] for label, paths in labelled(results or ()).items()
    }
    if unknown := set(solved) - set(sets) - {""}:
        raise BadInput(
            f"--results names the set {sorted(unknown)[0]!r}, which no --trace has; sets: {', '.join(sets) or '(none)'}"
        )
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
            if named is not None:
                _label(found, named)
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
            raise BadInput(
                f"--report {place}: the ending {place.suffix!r} names no report; known: {', '.join(ENDINGS)}"
            )
    if by not in ("call", "turn"):
        raise BadInput(f"--by is {by!r}, expected call or turn")
    if not 0 <= threshold <= 1:
        raise BadInput(f"--threshold is {threshold:g}, expected a coverage from 0 to 1")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _limit(text: str) -> tuple[str, float]:
    from context_bench.core.errors import UnknownName
    from context_bench.session.gate import limit_of
    from context_bench.traces.coverage import LEVELS

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
            hint += (
                ""
                if instance
                else "; --instance ID says which task it is, or put a log into a folder named like its task"
            )
        said = f"of the set {label!r} no run could be scored" if len(summary.sets) > 1 else "no run could be scored"
        say(f"{said}: {reason} ({count:,}×){hint}")
    return code


def _progress(done: int, of: int) -> None:
    print(f"\rcontext-bench: {done:,} of {of:,} files", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _label(found: TraceResults, named: Any) -> None:
    """Give the stored run of each set its title and tags."""
    from context_bench.engine import open_store, run_of
    from context_bench.engine.store.remarks import label_run

    with closing(open_store(found.store)) as store:
        for label in found.runs:
            label_run(store, run_of(store, label or UNNAMED).id, named)


def _reused(found: TraceResults) -> None:
    if found.reused:
        say(f"{found.reused:,} rows were there already, {found.made:,} were scored now")


def _hold(summary: TraceSummary, limits: Sequence[tuple[str, float]]) -> None:
    if not limits:
        return
    from context_bench.session.gate import Check, hold

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


def status_of(solved: Mapping[str, Sequence[SolvedTasks]]) -> StatusOf | None:
    """Make the function that gives scoring the reported status of each run; `None` without reports."""
    if not solved:
        return None

    def status(run: str, gold: Any) -> Any:
        found = _outcome(solved, run, gold)
        return "unknown" if found is None else found.status

    return status


def _outcome(solved: Mapping[str, Sequence[SolvedTasks]], run: str, gold: Any) -> Any:
    """Status of a task by the reports of a set: the first that knows whether it was solved, else the first that knows
    the task.
    """
    found = [
        one.find(gold.instance_id, *gold.ids) for one in (*solved.get(run, ()), *(solved.get("", ()) if run else ()))
    ]
    told = [one for one in found if one is not None]
    return next((one for one in told if one.status != "unknown"), told[0] if told else None)


def patches_of(solved: Mapping[str, Sequence[SolvedTasks]], golds: Any) -> dict[str, dict[str, str]]:
    """The patches among the reports, by set and task: predictions say where a log without a patch has edited."""
    out: dict[str, dict[str, str]] = {}
    for run, reports in solved.items():
        for gold in golds:
            found = (one.find(gold.instance_id, *gold.ids) for one in reports)
            if patch := next((each.patch for each in found if each is not None and each.patch), None):
                out.setdefault(run, {})[gold.instance_id] = patch
    return out


def summarised(
    found: TraceResults, gold: Path, solved: Mapping[str, Sequence[SolvedTasks]], threshold: float, exclude_infra: bool
) -> TraceSummary:
    """The summary of all rows, with what the reports say of tasks that no trace is about."""
    from context_bench.traces.reports.trace_summary import about, summarise
    from context_bench.traces.score_one import golds_sha
    from context_bench.traces.symbols import grammar_versions

    golds = found.golds
    told = {
        "name": gold.name,
        "sha": golds_sha(golds),
        "instances": len(golds),
        "skipped": dict(golds.skipped),
        "repeated": golds.repeated,
    }
    judged, infra = _judged(found, solved)
    return summarise(
        found.rows(),
        about=about(
            found.policy, counted=found.counted, gold=told, grammars=grammar_versions(), repositories=found.repos
        ),
        without_trace=found.without_trace,
        unread=found.unread,
        judged=judged,
        infra=infra,
        threshold=threshold,
        exclude_infra=exclude_infra,
    )


def _judged(
    found: TraceResults, solved: Mapping[str, Sequence[SolvedTasks]]
) -> tuple[dict[str, list[Any]], dict[str, set[str]]]:
    """By set: tasks of the gold that the harness judged and no trace is about, and tasks whose machinery failed."""
    from context_bench.stats.solving import Case

    cases: dict[str, list[Any]] = {}
    infra: dict[str, set[str]] = {}
    for run in found.runs:
        for gold in found.golds:
            outcome = _outcome(solved, run, gold)
            if outcome is None:
                continue
            if outcome.infra:
                infra.setdefault(run, set()).add(gold.instance_id)
            if gold.instance_id not in found.seen.get(run, ()):
                cases.setdefault(run, []).append(Case(gold.instance_id, outcome.status, None, gold.repo, outcome.infra))
    return cases, infra


def labelled(texts: Sequence[str]) -> dict[str, list[Path]]:
    """`NAME=PATH` and paths without a name (the set ""), by name. A path that exists as it is written has no name."""
    out: dict[str, list[Path]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        named = bool(equals) and "/" not in name and not Path(text).exists()
        out.setdefault(name if named else "", []).append(Path(path if named else text))
    return out


ENDINGS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".jsonl": "jsonl",
    ".html": "html",
    ".htm": "html",
}


def check_places(reports: Sequence[Path], folder: Path | None) -> None:
    """Refuse outputs that cannot be written before an hour of scoring, not after it."""
    for place in reports:
        if place.is_dir():
            raise BadInput(f"--report {place} is a folder; expected a file to write")
        _require_writable("--report", place, place.parent)
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"--out-dir {folder} is a file; expected a folder")
        _require_writable("--out-dir", folder, folder)


def _require_writable(option: str, place: Path, folder: Path) -> None:
    there = next((one for one in (folder, *folder.absolute().parents) if one.exists()), folder)
    if (
        not there.is_dir()
        or not os.access(there, os.W_OK | os.X_OK)
        or (place.is_file() and not os.access(place, os.W_OK))
    ):
        raise BadInput(f"{option} {place} cannot be written: no right to write to {there}, or no folder")


def keep_all(found: TraceResults, summary: TraceSummary, folder: Path, gold: Path) -> None:
    """All reports into a folder, beside the rows."""
    from context_bench.traces.reports.trace_summary import NAME

    for format_, name in (("csv", NAME), ("json", "summary.json"), ("markdown", "summary.md"), ("html", "report.html")):
        with replacing(folder / name, "w", encoding="utf-8", newline="") as file:
            file.writelines(_parts(found, summary, format_, gold))
    say(f"rows and reports are in {folder}")


def write_report(found: TraceResults, summary: TraceSummary, format_: str, place: Path | None, gold: Path) -> None:
    """One report, to a file or standard output; rows are streamed."""
    with destination(place, what="report") as file:
        file.writelines(_parts(found, summary, format_, gold))


def _parts(found: TraceResults, summary: TraceSummary, format_: str, gold: Path) -> Iterator[str]:
    if format_ == "jsonl":
        with found.path.open(encoding="utf-8") as file:
            yield from file
    elif format_ == "csv":
        yield from _csv(found, gold)
    elif format_ == "json":
        yield json_text(summary.to_json())
    elif format_ == "html":
        from context_bench.traces.reports.trace_page import to_html

        yield to_html(found.rows(), summary)
    else:
        from context_bench.reports import render
        from context_bench.traces.reports.sections import page_of

        yield render(page_of(summary), format_, **on_terminal(format_))


def _csv(found: TraceResults, gold: Path) -> Iterator[str]:
    from context_bench.traces.reports.trace_summary import lines
    from context_bench.traces.score_one import golds_sha

    yield from lines(found.rows(), benchmark=gold.stem, version=golds_sha(found.golds))


def on_terminal(format_: str) -> dict[str, Any]:
    """Give the function that draws a report on standard output, if that is a terminal."""
    return terminal() if format_ == "table" else {}
