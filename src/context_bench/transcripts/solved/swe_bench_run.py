"""The report of a SWE-bench run (`<model>.<run>.json`), schema 2 and those before it.

Older ones have no failures of the machinery; the oldest (`results.json` of a submission) list `resolved` beside
`applied` and `no_generation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, is_listing, listed, mapping, names

NAME = "SWE-bench run report"
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


def sniff(peek: Peek) -> bool:
    """True if the file is a run report."""
    row = peek.first
    return is_listing(row) or _is_old(row)


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """Every id that the report names."""
    for row in map(mapping, source.values()):
        if is_listing(row):
            yield from listed(row)
        elif _is_old(row):
            yield from _old(row)
        else:
            source.skip("not a run report")


def _is_old(row: dict[str, Any]) -> bool:
    return (
        isinstance(row.get("resolved"), list)
        and any(isinstance(row.get(key), list) for key in _OLD)
        and "not_resolved" not in row
    )


def _old(row: dict[str, Any]) -> Iterator[PatchOutcome]:
    resolved, empty = names(row.get("resolved")), set(names(row.get("no_generation")))
    yield from (PatchOutcome(name, "resolved") for name in dict.fromkeys(resolved))
    known = set(resolved)
    for key in _OLD:
        for name in names(row.get(key)):
            if name not in known:
                known.add(name)
                yield PatchOutcome(name, "unresolved", reason="empty_patch" if name in empty else None)


FORMAT = Format(NAME, 20, sniff, read)
