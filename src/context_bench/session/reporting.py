"""From a finished run to what the person sees: report, where it went, exit code; and, before a run, what it would take."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.families import families_of, named_controls
from context_bench.session import interrupts
from context_bench.session.files import harmless, replacing, say, write_out
from context_bench.session.gate import hold, limits


def write_report(result: Any, output: str, out: Path | None, **options: Any) -> None:
    """Render `result` in a format and put it where it belongs."""
    from context_bench.reports import write

    if out is None:
        if output == "table" and sys.stdout.isatty():
            options |= terminal()
        write(result, output, harmless(sys.stdout) if output in ("csv", "json", "html", "markdown") else sys.stdout, **options)
        own = families_of(result.manifest) if output == "table" else []
        sys.stdout.write("".join(family.sections.below(result) for family in own))
        return
    with replacing(out, "w", encoding="utf-8", newline="") as file:
        write(result, output, file, **options)
    say(f"report written to {out}")


def terminal() -> dict[str, Any]:
    """How wide stdout is and whether it may be coloured, for what is drawn there: 80 columns where it is no terminal, at most 120."""
    if not sys.stdout.isatty():
        return {"width": None, "color": False}
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return {"width": min(120, shutil.get_terminal_size().columns), "color": not plain}


def reused(counts: dict[str, Any]) -> str:
    """How many rows were taken from the store, and how old the oldest is."""
    age = counts.get("reused_age") or 0.0
    unit, size = next(
        ((unit, size) for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)) if age >= 2 * size), ("seconds", 1)
    )
    return f"{counts['reused']:,} rows were already in the store (the oldest made {age / size:.0f} {unit} ago) and were not run again"


def exit_code(result: Any, executed: Any, max_failures: float, store: object = None) -> int:
    """0, or what happened: the stop's own code, 130 if interrupted, 1 if a system (or its judge) failed too often.

    `store`: where the rows are, for the sentence about an interrupted run.
    """
    if executed.stopped is not None:
        say(f"{executed.stopped}")
        return int(executed.stopped.exit_code)
    if not executed.completed:
        known = result.manifest.get("run") or {}
        print(interrupts.kept(executed.name, store, known.get("rows"), known.get("owed") if executed.planned else None), file=sys.stderr)
        return interrupts.CODE
    return 1 if too_many_failures(result, max_failures) else 0


def too_many_failures(result: Any, max_failures: float) -> bool:
    """Say which systems failed on more than the allowed share of their examples; true if there is one.

    That a whole conversation does not fit the reader is no fault of a run of memories: as a floor or ceiling it may be too long.
    """
    if not any(result.failures.values()):
        return False  # no need to read all rows for it
    cells = (result.manifest.get("cells") or []) if named_controls(result.manifest) else []
    floors = {name for cell in cells for name in cell.get("controls") or []}
    rows: dict[str, int] = {}
    failed: dict[str, int] = {}
    for row in result.rows:
        rows[row.system] = rows.get(row.system, 0) + 1
        failed[row.system] = failed.get(row.system, 0) + (bool(row.errors) and not (row.system in floors and _too_long(row)))
    over = {name: count for name, count in failed.items() if count > max_failures * rows[name]}
    for name, count in over.items():
        say(f"{name} failed on {count} of {rows[name]} rows, more than --max-failures {max_failures:g}")
    return bool(over)


def _too_long(row: Any) -> bool:
    return str(row.errors.get("system", "")).startswith("ContextTooLong")


def publish(
    document: Mapping[str, Any], grids: Any, output: str, out: Path | None, minimum: list[str] | None, maximum: list[str] | None
) -> None:
    """Write the result, then hold it against the limits."""
    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output {output!r}: expected table, json or markdown")
    from context_bench.reports.table import as_markdown, as_table

    if output == "json":
        text = json_text(document)
    else:
        text = as_markdown(grids()) if output == "markdown" else as_table(grids(), width=_width(out))
    write_out(text, out)
    hold(limits(document, minimum or [], maximum or []))


def json_text(value: Any) -> str:
    """A document for other programs: indented, and JSON by the letter (what is no number is null)."""
    from context_bench.reports.text import json_ready

    return json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _width(out: Path | None) -> int:
    return max(80, shutil.get_terminal_size((120, 24)).columns) if out is None else 120
