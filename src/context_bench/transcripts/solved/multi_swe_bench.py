"""Multi-SWE-bench: `final_report.json` (ids `org/repo:pr-N`), and the `report.json` of one instance (`org`, `repo`,
`number`, `valid`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, is_listing, listed, mapping

NAME = "Multi-SWE-bench report"


def sniff(peek: Peek) -> bool:
    """True if the file is a report of this harness, of a run or of an instance."""
    row = peek.first
    return (is_listing(row) and "incomplete_instances" in row) or _is_instance(row)


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """Every id that the report names."""
    for row in map(mapping, source.values()):
        if is_listing(row):
            yield from listed(row)
        elif _is_instance(row):
            why = row.get("error_msg")
            status = {True: "resolved", False: "unresolved"}.get(row["valid"], "unknown")
            yield PatchOutcome(
                f"{row['org']}/{row['repo']}:pr-{row['number']}", status, reason=str(why)[:200] if why else None
            )  # type: ignore[arg-type]
        else:
            source.skip("neither a final report nor one of an instance")


def _is_instance(row: dict[str, Any]) -> bool:
    named = (
        isinstance(row.get("org"), str)
        and isinstance(row.get("repo"), str)
        and isinstance(row.get("number"), int | str)
    )
    return named and "valid" in row and (row["valid"] is None or isinstance(row["valid"], bool))


FORMAT = Format(NAME, 10, sniff, read)
