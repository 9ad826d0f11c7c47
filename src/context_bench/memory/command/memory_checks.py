"""`context-bench memory doctor|ops|audit`: does a memory work at all, does it keep, separate and forget as it must,
what has it become? And `cortex-eval` and `cortex-compare`: the command lines of cortex's evaluation harness.

Of the latter JSON goes to standard output or a file, everything for people to standard error. Exit codes are the
original's: 2 for a command line that cannot be parsed, 1 for everything else that goes wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput, ContextBenchError
from context_bench.core.machine import file_bytes
from context_bench.core.measures import percent
from context_bench.core.tokens import utf8_safe
from context_bench.llm.redact import key_in
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import MemoryChecks
from context_bench.session.output_files import replacing

if TYPE_CHECKING:
    from context_bench.memory.cortex.containment import BenchmarkSummary, Client
    from context_bench.memory.cortex.harness import Pair
    from context_bench.memory.ops import SuiteResult

_MARKS = {
    **{
        "ok": "[green]ok[/]",
        "pass": "[green]pass[/]",
        "warn": "[yellow]warn[/]",
        "fail": "[red]FAIL[/]",
        "error": "[red]ERROR[/]",
    },
    **{"n/a": "n/a", "not applicable": "n/a", "measured": "·"},
}


@takes(
    MemoryChecks,
    system=own("The memory: bm25, mem0, py:pkg.mod:Class, cli:, http:, mcp: …", default=None),
    relay=own("OpenAI-compatible endpoint that it uses, if it needs one.", note=""),
    api_key_env=own("Variable with the relay's key.", rare=False),
    force=own("Also a memory that can neither be separated nor emptied."),
)
def doctor(system: str, relay: str | None, api_key_env: str, force: bool, seconds: float, json: bool) -> int:
    """Add, flush, search, update, delete and look again, on a canary in a fresh namespace. Exit code 1 if something
    does not work.
    """
    from context_bench.memory.doctor import examine
    from context_bench.memory.systems import make_memory

    async def examined() -> list[Any]:
        return await examine(
            make_memory(system, relay=relay, api_key=key_in(api_key_env)), force=force, seconds=seconds
        )

    findings = interrupts.run(examined())
    if json:
        _as_json(findings)
    else:
        _table(
            ("", "what", "found"),
            ((f.status, f.name, f.detail + (f" → {f.advice}" if f.advice else "")) for f in findings),
        )
    return 1 if any(finding.status == "fail" for finding in findings) else 0


@takes(
    MemoryChecks,
    system=own("The memory: bm25, mem0, py:pkg.mod:Class, cli:, http:, mcp: …", default=None),
    junit=own("Write the probes as JUnit XML to this file."),
)
def ops(
    system: str, suite: str, scale: float, deadline: float, many: int, seed: int, junit: Path | None, json: bool
) -> int:
    """Put a memory through the operational suites; each test has a control that shows that it could have failed.

    Exit code 1 if one fails, or if none could be tried.

    Only namespaces of its own are written to. `{dir}` in SPEC becomes a folder that is removed afterwards, as in
    `bm25:path={dir}/m.db`; only a memory that outlives its process can show what a crash loses. `{model}` becomes the
    address of a model of ours, as in `mem0:infer=true,relay={model},model=m`: what is sent to it after everything was
    deleted is looked at.
    """
    from context_bench.memory.ops import run_suites

    names = [name.strip() for name in suite.split(",") if name.strip()]
    results = interrupts.run(run_suites(system, names, seed=seed, scale=scale, deadline=deadline, many=many))
    if json:
        _as_json([result.as_dict() for result in results])
    else:
        rows = (
            (p.outcome, f"{r.suite}: {p.name}", _text(p))
            for r in results
            for p in r.probes
            if p.kind != "positive control"
        )
        _table(("", "probe", "found"), rows)
    if junit is not None:
        _junit(results, junit)
    if all(probe.outcome == "not applicable" for result in results for probe in result.probes):
        print(
            f"context-bench: nothing of {', '.join(names)} could be tried on {system}, so nothing is shown (exit code "
            "1)",
            file=sys.stderr,
        )
        return 1
    return 1 if any(result.failed for result in results) else 0


@takes(MemoryChecks)
def audit(
    export: Annotated[Path, typer.Argument(help="What a memory exported: JSON or JSON lines.", metavar="EXPORT")],
    examples: int,
    json: bool,
) -> int:
    """What one's own memory has become: duplicates, contradictions, outdated values, junk, secrets, planted orders.
    Nothing is sent.
    """
    from context_bench.memory.export_audit import audit as look_through

    found = look_through(export, examples=examples)
    if json:
        _as_json(found.as_dict())
        return 0
    span = f", {found.since[:10]} to {(found.until or '')[:10]}" if found.since else ""
    print(f"{found.items:,} memories ({found.shape}) of {found.owners:,} owner(s), {found.bytes:,} bytes{span}")
    _table(
        ("n", "share", "what", "found"),
        (
            (f"{f.n:,}", percent(f.share), f.name, "\n".join([f.sentence, *(f"  e.g. {each}" for each in f.examples)]))
            for f in found.findings
        ),
    )
    return 0


def _text(probe: Any) -> str:
    return "\n".join([probe.sentence, *(f"  {finding.what}" for finding in probe.findings)])


def _junit(results: Sequence[SuiteResult], path: Path) -> None:
    from context_bench.session.gate import Check, as_junit

    checks = [
        Check(
            f"{result.suite}: {probe.name}",
            probe.outcome not in ("fail", "error"),
            _text(probe),
            skipped=probe.outcome == "not applicable",
        )
        for result in results
        for probe in result.probes
        if probe.kind == "test"
    ]
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(as_junit(checks, "context-bench memory ops"))


def _as_json(found: Any) -> None:
    from json import dumps

    from context_bench.core.records import plain
    from context_bench.session.output_files import write_out

    told = [plain(each) for each in found] if isinstance(found, list) else plain(found)
    write_out(dumps(told, indent=2, ensure_ascii=False) + "\n", None)


def _table(columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from context_bench.reports.visible_text import visible

    table = Table(*columns, box=None, pad_edge=False)
    for first, *cells in rows:  # what a memory says is text, never markup
        table.add_row(_MARKS.get(first, first), *(Text(visible(cell, 1000, lines=True)) for cell in cells))
    Console().print(table)


# --- cortex
# ------------------------------------------------------------------------

BENCHMARKS = ("locomo", "longmemeval", "dmr")


def _exit_code(command: str) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """Make exit code 1, and a sentence, of what goes wrong in a command."""

    def decorated(act: Callable[..., None]) -> Callable[..., int]:
        @wraps(act)
        def run(*args: Any, **options: Any) -> int:
            try:
                act(*args, **options)
            except ContextBenchError as error:
                _say(f"{command}: {error}")
                return 1
            except OSError as error:
                _say(f"{command}: {error.filename or 'output'}: {error.strerror}")
                return 1
            return 0

        return run

    return decorated


@takes(
    MemoryChecks,
    k=own("How many memories are asked for.", default=5),
    output=own("Write the JSON to this file instead of standard output.", note=""),
    config=own("Handed to the program as --config.", unit=None, rare=False),
    timeout=own("Seconds for the whole run. A single call has 30.", rare=False, default=300),
)
@_exit_code("cortex-eval")
def cortex_eval(
    extra: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    *,
    benchmark: str,
    binary: str | None,
    k: int,
    output: Path | None,
    config: str | None,
    timeout: float,
    accumulate: bool,
    dataset_path: Path | None,
    k2: int,
    compat: str | None,
) -> None:
    """Store small texts in openclaw-cortex, ask for them again, and count what comes back.

    EMPTIES THE PROGRAM'S STORE before each question (with --accumulate: once per benchmark): use a --config of its own.
    """
    benchmark = benchmark.lower()
    if k <= 0:
        raise BadInput(f"--k must be > 0, got {k}")
    if not timeout > 0:
        raise BadInput(f"--timeout must be > 0, got {timeout:g}")
    if benchmark not in (*BENCHMARKS, "all"):
        raise BadInput(f"unknown benchmark {benchmark!r}: choose locomo, longmemeval, dmr, or all")
    _no_more(extra, "use --benchmark to select a benchmark")
    if dataset_path is not None and benchmark == "all":
        raise BadInput("--dataset-path needs one --benchmark: a file has the questions of one")
    from context_bench.core.machine import SYSTEM_CLOCK
    from context_bench.memory.cortex.containment import summaries_json
    from context_bench.memory.systems.command import CommandClient

    names = BENCHMARKS if benchmark == "all" else (benchmark,)
    sets = {name: _pairs(name, dataset_path) for name in names}
    client = CommandClient.preset("cortex", binary=binary, config=config, compat=compat)
    deadline = SYSTEM_CLOCK.monotonic() + timeout
    summaries = []
    for number, (name, pairs) in enumerate(sets.items()):
        if number:
            _between(client, name, deadline)
        summaries.append(_one(client, name, pairs, k, k2, accumulate, deadline, dataset_path is None))
    _publish(summaries_json(summaries), output)
    _tables(summaries, names, k)


@takes(
    MemoryChecks,
    baseline=own('JSON: {"systems": [{name, locomo_em, longmemeval_em, dmr_em}], "sources": {…}}.'),
    output=own("Write the Markdown to this file instead of standard output.", note=""),
    json=own("Also write the rows as JSON, for instance to comparison.json."),
    name=own("What this run's row is called."),
)
@_exit_code("cortex-compare")
def cortex_compare(
    extra: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    *,
    baseline: Path,
    current: Path,
    output: Path | None,
    json: Path | None,
    name: str | None,
) -> None:
    """A run of cortex-eval beside published numbers, as Markdown."""
    _no_more(extra, "files are named by --baseline and --current")
    from context_bench.memory.cortex.containment import THIS_RUN, compared

    found = compared(_json(baseline), _json(current), name or THIS_RUN)
    if found.unstated:
        _say(
            f"NOTE: {len(found.unstated)} of {len(found.rows) - 1} baselines do not say how they were measured "
            "(`protocol`);"
            " a judge's accuracy and a substring match are different numbers"
        )
    if json is not None:
        _write(dumps(found.as_dict(), indent=2, ensure_ascii=False), json)
    if output is not None:
        _write(found.markdown(), output)
    else:
        sys.stdout.write(utf8_safe(found.markdown()))


def _say(text: str) -> None:
    """To standard error; what steers a terminal (in a dataset's ids, in what a program said) is shown, not obeyed."""
    from context_bench.reports.visible_text import visible

    print(visible(text, 100_000, lines=True), file=sys.stderr)


def _no_more(extra: Sequence[str] | None, hint: str) -> None:
    if extra:
        raise BadInput(f"unexpected positional arguments: {' '.join(extra)} ({hint})")


# eval
# ------------------------------------------------------------------------


def _pairs(benchmark: str, path: Path | None) -> list[Pair]:
    if path is None:
        from context_bench.memory.cortex.harness import seed_set

        return seed_set(benchmark)
    from context_bench.memory.cortex.harness import read_pairs

    blank: list[str] = []
    try:
        pairs = read_pairs(_json(path), benchmark, blank.append)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if not pairs:
        _say(f"warning: {path} has no questions: nothing is measured")
    if blank:
        _say(
            f"{path}: {len(blank)} {'turn that says' if len(blank) == 1 else 'turns that say'} nothing left out, "
            f"first in {blank[0]}"
        )
    return pairs


def _between(client: Client, benchmark: str, deadline: float) -> None:
    """The reset between two benchmarks, so that the next begins with nothing of the last."""
    from context_bench.core.errors import Failed
    from context_bench.core.ledger import Ledger, open_ledger
    from context_bench.memory.cortex.harness import BenchmarkAborted

    try:
        with open_ledger(Ledger(deadline=deadline)):
            client.reset()
    except Failed as error:
        raise BenchmarkAborted(f"{benchmark}: the reset before it failed: {error}") from error


def _one(
    client: Client,
    benchmark: str,
    pairs: Sequence[Pair],
    k: int,
    k2: int,
    accumulate: bool,
    deadline: float,
    small: bool,
) -> BenchmarkSummary:
    from context_bench.memory.cortex.harness import run_harness

    what = (
        "the small synthetic set (chains of hops, not the published DMR)"
        if benchmark == "dmr"
        else "the small synthetic set"
    )
    _say(
        f"{benchmark}: {len(pairs)} questions{f' of {what}' if small else ''}, "
        f"{'accumulate' if accumulate else 'per-pair-reset'}, k={k}"
    )
    _floor(benchmark, pairs, k, accumulate)
    summary = run_harness(
        client, pairs, benchmark=benchmark, k=k, k2=k2, accumulate=accumulate, deadline=deadline, on_warning=_say
    )
    if summary.recall_failures:
        _say(
            f"WARNING: {benchmark}: {summary.recall_failures} of {summary.total_questions} recall calls failed and "
            "are scored as empty:"
            " the scores are lower than what was measured"
        )
    return summary


def _floor(benchmark: str, pairs: Sequence[Pair], k: int, accumulate: bool) -> None:
    from context_bench.memory.cortex.harness import random_floor

    floor = random_floor(pairs, k, accumulate)
    _say(f"{benchmark}: a store that gives {k} items back at random has recall@{k} of {percent(floor.recall)}")
    if floor.everything > 0:
        _say(
            f"WARNING: {benchmark}: for {percent(floor.everything)} of the questions no more than k={k} items are "
            "stored, so that whoever gives"
            " everything back is right: this is a check of the client and says nothing about how well it finds"
        )


def _tables(summaries: Sequence[BenchmarkSummary], names: Sequence[str], k: int) -> None:
    from context_bench.memory.cortex.containment import (
        format_category_table,
        format_markdown_table,
        format_other_categories,
        word_match,
    )

    _say("\n" + format_markdown_table(summaries, k))
    for name, summary in zip(names, summaries, strict=True):
        table, others = format_category_table(name, summary), format_other_categories(name, summary)
        if table:
            _say(f"{summary.name} by category\n\n{table}")
        if others:
            _say(f"{summary.name}, other categories\n\n{others}")
        inside = [one for one in summary.results if one.exact_match and not word_match(one.retrieved, one.ground_truth)]
        if inside:
            _say(
                f"{summary.name}: {len(inside)} exact matches are inside a longer word: "
                f"{', '.join(one.question_id for one in inside)}\n"
            )


# Files
# ------------------------------------------------------------------------


def _json(path: Path) -> Any:
    from context_bench.core.keys import load_json

    try:
        data = file_bytes(path)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if not data.strip():
        raise BadInput(f"{path} is empty; expected JSON")
    try:
        return load_json(data)
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from None


def _publish(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(utf8_safe(text) + "\n")
        sys.stdout.flush()
    else:
        _write(text, output)


def _write(text: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(utf8_safe(text), encoding="utf-8")
    _say(f"written to {path}")
