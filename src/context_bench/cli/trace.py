"""`context-bench trace`: agents' logs against gold, converted, and compared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.cli.trace_show import show
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.logs.solved import Solved
    from context_bench.reports.checks import Check
    from context_bench.reports.traces.summary import TraceSummary
    from context_bench.traces import TraceResults
    from context_bench.traces.keeping import StatusOf

OUTPUTS = ("table", "json", "csv", "markdown", "jsonl", "html")
#: The set of traces that were given no name.
UNNAMED = "traces"
_ENDINGS = {".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl", ".html": "html", ".htm": "html"}

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Did an agent read the right code? Its log against gold.")

GoldOption = Annotated[Path, typer.Option("--gold", help="Gold: parquet, JSONL, JSON, or a folder of annot.json.", metavar="PATH")]
TraceOption = Annotated[
    list[str],
    typer.Option(
        "--trace", help="Log or folder of logs, of any known agent; NAME=PATH puts it in a set; repeatable.", metavar="[NAME=]PATH"
    ),
]
RepoOption = Annotated[
    list[str] | None,
    typer.Option(help="Checkout, git clone (PATH@COMMIT), archive, JSON snapshot, or a folder of them; repeatable.", metavar="PATH"),
]
PolicyOption = Annotated[
    str, typer.Option(help="strict, strict-full (more kinds of definitions), or contextbench-v1: the original's figures, faults included.")
]
CountOption = Annotated[str | None, typer.Option(help="Also count as read: listed, claimed, edits, comma-separated.", metavar="A,B")]
ToolsOption = Annotated[Path | None, typer.Option(help="Further tools of agents, as TOML.", metavar="FILE")]
InstanceOption = Annotated[str | None, typer.Option(help="The task that all traces are about, where logs do not say.", metavar="ID")]


@app.command("score")
def score(
    gold: GoldOption,
    trace: TraceOption,
    repo: RepoOption = None,
    policy: PolicyOption = "strict",
    count: CountOption = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            help="A harness's report on the patches, or the patches (predictions); [NAME=]PATH; repeatable.", metavar="[NAME=]PATH"
        ),
    ] = None,
    join: Annotated[Path | None, typer.Option(help="CSV of the wanted instances.", metavar="FILE")] = None,
    instance: InstanceOption = None,
    report: Annotated[
        list[Path] | None, typer.Option(help="Also write a report here; its ending says which; repeatable.", metavar="FILE")
    ] = None,
    output: Annotated[str, typer.Option(help=f"On standard output: {', '.join(OUTPUTS)}.")] = "table",
    out_dir: Annotated[
        Path | None, typer.Option(help="Keep rows and all reports here; what is scored already is not scored again.", metavar="DIR")
    ] = None,
    min_coverage: Annotated[
        list[str] | None, typer.Option(help="Exit 4 if a set's mean coverage is below this; repeatable.", metavar="LEVEL=X")
    ] = None,
    by: Annotated[str, typer.Option(help="A step of the curve: call, or turn (all calls of one reply).")] = "call",
    longest: Annotated[int | None, typer.Option(help="A read of more lines at once counts as the file alone.", metavar="LINES")] = None,
    dilate: Annotated[int, typer.Option(help="Lines around a deletion that are the same place.", metavar="LINES")] = 0,
    threshold: Annotated[float, typer.Option(help="Line coverage from which on a task counts as read.")] = 0.5,
    exclude_infra: Annotated[bool, typer.Option("--exclude-infra", help="Failures of the machinery are no failures of the agent.")] = False,
    scorer: Annotated[str | None, typer.Option(help="The score of an Inspect log that is the verdict.")] = None,
    tools: ToolsOption = None,
    workers: Annotated[int | None, typer.Option(help="Processes. [default: as many as pay]")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Score again what --out-dir has.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
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
    _check_places(report or (), out_dir)
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
        status=_status(solved),
        patches=_patches(solved, golds),
        fresh=fresh,
        on_done=None if quiet or not sys.stderr.isatty() else _progress,
    )
    with found if out_dir is None else nullcontext():
        summary = _summary(found, gold, solved, threshold, exclude_infra)
        _reused(found)
        if out_dir is not None:
            _keep(found, summary, out_dir, gold)
        for place in report or ():
            _write(found, summary, _ENDINGS[place.suffix.lower()], place, gold)
        _write(found, summary, output, None, gold)
    _hold(summary, limits)
    return _unscored(summary, instance)


@app.command("convert")
def convert(
    trace: Annotated[list[Path], typer.Argument(help="Logs or folders of logs.", metavar="TRACE...")],
    to: Annotated[str, typer.Option(help="events (this program's JSONL) or contextbench (its unified predictions).")] = "events",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write here instead of standard output.", metavar="FILE")] = None,
    repo: RepoOption = None,
    gold: Annotated[Path | None, typer.Option(help="Gold, so that logs find their repository and task id.", metavar="PATH")] = None,
    instance: InstanceOption = None,
    tools: ToolsOption = None,
) -> int:
    """Any log as JSON lines: what each call read, or predictions for the original evaluator."""
    from context_bench.traces.converting import convert_traces

    if to not in ("events", "contextbench"):
        raise BadInput(f"--to is {to!r}, expected events or contextbench")
    for path in trace:
        if not path.exists():
            raise BadInput(f"{path}: no such trace (expected a file or a folder of logs)")
    told: list[str] = []
    lines = convert_traces(
        trace, to=to, repos=repo or (), gold=gold, instance=instance, tools=tools, on_skip=lambda why: told.append(str(why))
    )
    number = 0
    with nullcontext(sys.stdout.buffer) if out is None else _opened(out) as file:
        for line in lines:
            file.write(line)
            number += 1
        file.flush()
    for why in told[:5]:
        print(f"context-bench: passed over: {why.splitlines()[0]:.300}", file=sys.stderr)
    print(f"context-bench: {number:,} traces{f' written to {out}' if out else ''}, {len(told):,} files passed over", file=sys.stderr)
    return 0


@app.command("compare")
def compare(
    a: Annotated[str, typer.Argument(help="Rows of `trace score` (a JSONL file, or its --out-dir); FILE:SET for one set.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The same of the other.", metavar="B")],
    output: Annotated[str, typer.Option(help="table, json or markdown.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write here instead of standard output.", metavar="FILE")] = None,
) -> int:
    """B minus A on the instances both have: paired bootstrap over repositories, McNemar for solved."""
    from context_bench.traces import compare_traces

    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output is {output!r}, expected table, json or markdown")
    (first, run_a), (second, run_b) = _one_set(a), _one_set(b)
    found = compare_traces(first, second, run_a=run_a, run_b=run_b)
    _say(_compared(found, output), out)
    return 0


app.command("show")(show)


# score ----------------------------------------------------------------------------------------------------------------------------------


def labelled(texts: Sequence[str]) -> dict[str, list[Path]]:
    """`NAME=PATH` and paths without a name (the set ""), by name. A path that exists as it is written has no name."""
    out: dict[str, list[Path]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        named = bool(equals) and "/" not in name and not Path(text).exists()
        out.setdefault(name if named else "", []).append(Path(path if named else text))
    return out


def _check(output: str, reports: Sequence[Path], by: str, threshold: float) -> None:
    if output not in OUTPUTS:
        raise BadInput(f"--output is {output!r}, expected one of {', '.join(OUTPUTS)}")
    for place in reports:
        if place.suffix.lower() not in _ENDINGS:
            raise BadInput(f"--report {place}: the ending {place.suffix!r} names no report; known: {', '.join(_ENDINGS)}")
    if by not in ("call", "turn"):
        raise BadInput(f"--by is {by!r}, expected call or turn")
    if not 0 <= threshold <= 1:
        raise BadInput(f"--threshold is {threshold:g}, expected a coverage from 0 to 1")


def _check_places(reports: Sequence[Path], folder: Path | None) -> None:
    """What cannot be written is told before an hour of scoring, not after it."""
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
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK) or (place.is_file() and not os.access(place, os.W_OK)):
        raise BadInput(f"{option} {place} cannot be written: no right to write to {there}, or no folder")


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
        print(f"context-bench: {said}: {reason} ({count:,}×){hint}", file=sys.stderr)
    return code


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


def _status(solved: Mapping[str, Sequence[Solved]]) -> StatusOf | None:
    if not solved:
        return None

    def status(run: str, gold: Any) -> Any:
        found = _outcome(solved, run, gold)
        return "unknown" if found is None else found.status

    return status


def _outcome(solved: Mapping[str, Sequence[Solved]], run: str, gold: Any) -> Any:
    """What the reports of a set say of a task: the first that knows whether it was solved, else the first that knows the task."""
    found = [one.find(gold.instance_id, *gold.ids) for one in (*solved.get(run, ()), *(solved.get("", ()) if run else ()))]
    told = [one for one in found if one is not None]
    return next((one for one in told if one.status != "unknown"), told[0] if told else None)


def _patches(solved: Mapping[str, Sequence[Solved]], golds: Any) -> dict[str, dict[str, str]]:
    """The patches among the reports, by set and task: predictions say where a log without a patch has edited."""
    out: dict[str, dict[str, str]] = {}
    for run, reports in solved.items():
        for gold in golds:
            found = (one.find(gold.instance_id, *gold.ids) for one in reports)
            if patch := next((each.patch for each in found if each is not None and each.patch), None):
                out.setdefault(run, {})[gold.instance_id] = patch
    return out


def _summary(
    found: TraceResults, gold: Path, solved: Mapping[str, Sequence[Solved]], threshold: float, exclude_infra: bool
) -> TraceSummary:
    from context_bench.logs.symbols import grammar_versions
    from context_bench.reports.traces.summary import about, summarise
    from context_bench.traces.settings import golds_sha

    golds = found.golds
    told = {"name": gold.name, "sha": golds_sha(golds), "instances": len(golds), "skipped": dict(golds.skipped), "repeated": golds.repeated}
    judged, infra = _judged(found, solved)
    return summarise(
        found.rows(),
        about=about(found.policy, counted=found.counted, gold=told, grammars=grammar_versions(), repositories=found.repos),
        without_trace=found.without_trace,
        unread=found.unread,
        judged=judged,
        infra=infra,
        threshold=threshold,
        exclude_infra=exclude_infra,
    )


def _judged(found: TraceResults, solved: Mapping[str, Sequence[Solved]]) -> tuple[dict[str, list[Any]], dict[str, set[str]]]:
    """By set: tasks of the gold that the harness judged and no trace is about, and tasks whose machinery failed."""
    from context_bench.core.solving import Case

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


def _progress(done: int, of: int) -> None:
    print(f"\rcontext-bench: {done:,} of {of:,} files", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _reused(found: TraceResults) -> None:
    if found.reused:
        print(f"context-bench: {found.reused:,} rows were there already, {found.made:,} were scored now", file=sys.stderr)


def _keep(found: TraceResults, summary: TraceSummary, folder: Path, gold: Path) -> None:
    from context_bench.reports.traces.appendix import NAME

    for format_, name in (("csv", NAME), ("json", "summary.json"), ("markdown", "summary.md"), ("html", "report.html")):
        _write(found, summary, format_, folder / name, gold, quiet=True)
    print(f"context-bench: rows and reports are in {folder}", file=sys.stderr)


def _write(found: TraceResults, summary: TraceSummary, format_: str, place: Path | None, gold: Path, *, quiet: bool = False) -> None:
    """One report, to a file or standard output; rows are streamed."""
    if place is None:
        for part in _parts(found, summary, format_, gold):
            sys.stdout.write(part)
        sys.stdout.flush()
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", encoding="utf-8", newline="") as file:
        for part in _parts(found, summary, format_, gold):
            file.write(part)
    if not quiet:
        print(f"context-bench: report written to {place}", file=sys.stderr)


def _parts(found: TraceResults, summary: TraceSummary, format_: str, gold: Path) -> Iterator[str]:
    if format_ == "jsonl":
        with found.path.open(encoding="utf-8") as file:
            yield from file
    elif format_ == "csv":
        yield from _csv(found, gold)
    elif format_ == "json":
        yield _json(summary.to_json())
    elif format_ == "html":
        from context_bench.reports.traces.page import to_html

        yield to_html(found.rows(), summary)
    else:
        from context_bench.reports import render
        from context_bench.reports.traces.sections import page_of

        yield render(page_of(summary), format_, **_terminal(format_))


def _csv(found: TraceResults, gold: Path) -> Iterator[str]:
    from context_bench.reports.traces.appendix import lines
    from context_bench.traces.settings import golds_sha

    yield from lines(found.rows(), benchmark=gold.stem, version=golds_sha(found.golds))


def _json(value: Any) -> str:
    import json

    from context_bench.reports.text import json_ready

    return json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _terminal(format_: str) -> dict[str, Any]:
    if format_ != "table" or not sys.stdout.isatty():
        return {}
    import shutil

    return {"color": True, "width": min(120, shutil.get_terminal_size().columns)}


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


# compare, convert -----------------------------------------------------------------------------------------------------------------------


def _one_set(text: str) -> tuple[str, str | None]:
    """`FILE` or `FILE:SET`."""
    if Path(text).exists() or ":" not in text:
        return text, None
    path, _, run = text.rpartition(":")
    return path, run


def _compared(found: Any, output: str) -> str:
    if output == "json":
        return _json(found.to_json())
    from context_bench.reports import render
    from context_bench.reports.traces.sections import comparison_page

    return render(comparison_page(found), output, **_terminal(output))


def _say(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f"context-bench: report written to {out}", file=sys.stderr)


def _opened(path: Path) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")
