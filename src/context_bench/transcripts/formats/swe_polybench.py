"""SWE-PolyBench: `<id>_result.json` of an instance, or `result.json`, which lists ids."""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, names, report


def _is_report(row: Row) -> bool:
    return _is_instance(row) or _is_run(row)


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if _is_instance(row):
        yield _instance(row)
    elif _is_run(row):
        empty = set(names(row.get("no_generation")))
        yield from (PatchOutcome(name, "resolved") for name in names(row["resolved"]))
        for name in names(row["not_resolved"]):
            yield PatchOutcome(name, "unresolved", reason="empty_patch" if name in empty else None)
    else:
        yield "not a result"


def _is_instance(row: Row) -> bool:
    return (
        isinstance(row.get("instance_id"), str)
        and isinstance(row.get("all_f2p_passed"), bool)
        and isinstance(row.get("no_p2p_failed"), bool)
    )


def _is_run(row: Row) -> bool:
    return isinstance(row.get("resolved"), list) and isinstance(row.get("not_resolved"), list)


def _instance(row: Row) -> PatchOutcome:
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


REPORT = report("SWE-PolyBench result", 30, _is_report, _outcomes)
