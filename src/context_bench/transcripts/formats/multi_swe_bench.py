"""Multi-SWE-bench: `final_report.json` (ids `org/repo:pr-N`), and the `report.json` of one instance (`org`, `repo`,
`number`, `valid`).
"""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, is_listing, listed, report


def _is_report(row: Row) -> bool:
    return (is_listing(row) and "incomplete_instances" in row) or _is_instance(row)


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if is_listing(row):
        yield from listed(row)
    elif _is_instance(row):
        name, why = f"{row['org']}/{row['repo']}:pr-{row['number']}", row.get("error_msg")
        status = {True: "resolved", False: "unresolved"}.get(row["valid"], "unknown")
        yield PatchOutcome(name, status, reason=str(why)[:200] if why else None)  # type: ignore[arg-type]
    else:
        yield "neither a final report nor one of an instance"


def _is_instance(row: Row) -> bool:
    named = (
        isinstance(row.get("org"), str)
        and isinstance(row.get("repo"), str)
        and isinstance(row.get("number"), int | str)
    )
    return named and "valid" in row and (row["valid"] is None or isinstance(row["valid"], bool))


REPORT = report("Multi-SWE-bench report", 10, _is_report, _outcomes)
