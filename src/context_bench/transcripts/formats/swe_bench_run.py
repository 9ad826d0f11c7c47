"""The report of a SWE-bench run (`<model>.<run>.json`), schema 2 and those before it.

Older ones have no failures of the machinery; the oldest (`results.json` of a submission) list `resolved` beside
`applied` and `no_generation`.
"""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, is_listing, listed, names, report

_OLD = (
    "generated",
    "with_logs",
    "applied",
    "no_generation",
    "no_logs",
    "no_apply",
    "install_fail",
    "reset_failed",
    "test_errored",
)


def _is_report(row: Row) -> bool:
    return is_listing(row) or _is_old(row)


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if is_listing(row):
        yield from listed(row)
    elif _is_old(row):
        yield from _old(row)
    else:
        yield "not a run report"


def _is_old(row: Row) -> bool:
    return (
        isinstance(row.get("resolved"), list)
        and any(isinstance(row.get(key), list) for key in _OLD)
        and "not_resolved" not in row
    )


def _old(row: Row) -> Iterator[PatchOutcome]:
    resolved, empty = names(row.get("resolved")), set(names(row.get("no_generation")))
    yield from (PatchOutcome(name, "resolved") for name in dict.fromkeys(resolved))
    solved = set(resolved)
    for name in dict.fromkeys(name for key in _OLD for name in names(row.get(key))):
        if name not in solved:
            yield PatchOutcome(name, "unresolved", reason="empty_patch" if name in empty else None)


REPORT = report("SWE-bench run report", 20, _is_report, _outcomes)
