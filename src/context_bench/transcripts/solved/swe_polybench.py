"""SWE-PolyBench: `<id>_result.json` of an instance, or `result.json`, which lists ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping, names

NAME = "SWE-PolyBench result"


def sniff(peek: Peek) -> bool:
    """True if the file is a result of an instance or of a run."""
    row = peek.first
    return _is_instance(row) or _is_run(row)


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """Every id that the file names."""
    for row in map(mapping, source.values()):
        if _is_instance(row):
            yield _instance(row)
        elif _is_run(row):
            empty = set(names(row.get("no_generation")))
            yield from (PatchOutcome(name, "resolved") for name in names(row["resolved"]))
            for name in names(row["not_resolved"]):
                yield PatchOutcome(name, "unresolved", reason="empty_patch" if name in empty else None)
        else:
            source.skip("not a result")


def _is_instance(row: dict[str, Any]) -> bool:
    return (
        isinstance(row.get("instance_id"), str)
        and isinstance(row.get("all_f2p_passed"), bool)
        and isinstance(row.get("no_p2p_failed"), bool)
    )


def _is_run(row: dict[str, Any]) -> bool:
    return isinstance(row.get("resolved"), list) and isinstance(row.get("not_resolved"), list)


def _instance(row: dict[str, Any]) -> PatchOutcome:
    name = row["instance_id"]
    if row["all_f2p_passed"] and row["no_p2p_failed"] and row.get("resolved") is not False:
        return PatchOutcome(name, "resolved")
    if row.get("generation") is False:
        return PatchOutcome(name, "unresolved", reason="empty_patch")
    if row.get("patch_applied") is False:
        return PatchOutcome(name, "unresolved", reason="patch does not apply")
    if row.get("with_logs") is False:
        return PatchOutcome(name, "error", reason="no log of the tests")
    failed = [
        what
        for what, bad in (("fail-to-pass", not row["all_f2p_passed"]), ("pass-to-pass", not row["no_p2p_failed"]))
        if bad
    ]
    return PatchOutcome(name, "unresolved", reason="failing: " + ", ".join(failed) if failed else None)


FORMAT = Format(NAME, 30, sniff, read)
