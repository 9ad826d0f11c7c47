"""`context-bench memory doctor|ops|audit`: does a memory work at all, does it keep, separate and forget as it must,
what has it become?
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.llm.redact import key_in
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.options import MemoryChecks
from context_bench.session.output_files import replacing

if TYPE_CHECKING:
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
            (f"{f.n:,}", f"{f.share:.1%}", f.name, "\n".join([f.sentence, *(f"  e.g. {each}" for each in f.examples)]))
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
