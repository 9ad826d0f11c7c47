"""Reports of scored traces: which there are, whether they can be written, and writing them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.session.files import destination, replacing, say
from context_bench.session.publishing import json_text
from context_bench.session.reporting import terminal

if TYPE_CHECKING:
    from context_bench.traces import TraceResults
    from context_bench.traces.reports.summary import TraceSummary


OUTPUTS = ("table", "json", "csv", "markdown", "jsonl", "html")
ENDINGS = {".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl", ".html": "html", ".htm": "html"}


def check_places(reports: Sequence[Path], folder: Path | None) -> None:
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


def keep_all(found: TraceResults, summary: TraceSummary, folder: Path, gold: Path) -> None:
    """All reports into a folder, beside the rows."""
    from context_bench.traces.reports.appendix import NAME

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
        from context_bench.traces.reports.page import to_html

        yield to_html(found.rows(), summary)
    else:
        from context_bench.reports import render
        from context_bench.traces.reports.sections import page_of

        yield render(page_of(summary), format_, **on_terminal(format_))


def _csv(found: TraceResults, gold: Path) -> Iterator[str]:
    from context_bench.traces.reports.appendix import lines
    from context_bench.traces.settings import golds_sha

    yield from lines(found.rows(), benchmark=gold.stem, version=golds_sha(found.golds))


def on_terminal(format_: str) -> dict[str, Any]:
    """How a report is drawn on standard output, where that is a terminal."""
    return terminal() if format_ == "table" else {}
