"""`report.json` of a SWE-bench instance: `{id: {resolved, patch_successfully_applied, tests_status, infra_failure
…}}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, mapping, report

_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def _by_id(row: Row) -> bool:
    return bool(row) and all(map(_is_report, row.values()))


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    for name, verdict in row.items():
        yield _outcome(name, verdict) if _is_report(verdict) else "not a report of an instance"


def _is_report(verdict: Any) -> bool:
    return (
        isinstance(verdict, dict)
        and "instance_id" not in verdict
        and (isinstance(verdict.get("resolved"), bool) or _tests(verdict) is not None)
    )


def _outcome(name: str, verdict: Row) -> PatchOutcome:
    infra = verdict.get("infra_failure") is True
    tests = _tests(verdict)
    resolved = tests if not isinstance(verdict.get("resolved"), bool) else verdict["resolved"] and tests is not False
    if resolved:
        return PatchOutcome(name, "resolved", infra)
    reason = verdict.get("infra_failure_reason")
    return PatchOutcome(name, "unresolved", infra, str(reason)[:200] if reason else _why(verdict))


def _why(verdict: Row) -> str | None:
    if verdict.get("patch_is_None") is True or verdict.get("patch_exists") is False:
        return "empty_patch"
    if verdict.get("patch_successfully_applied") is False:
        return "patch does not apply"
    tests = mapping(verdict.get("tests_status"))
    failed = [
        f"{len(wrong)} of {kind}"
        for kind in _TESTS
        if (wrong := mapping(tests.get(kind)).get("failure")) and isinstance(wrong, list)
    ]
    return "failing: " + ", ".join(failed) if failed else None


def _tests(verdict: Row) -> bool | None:
    """True if all tests of both kinds pass; `None` if the report does not mention them."""
    tests = mapping(verdict.get("tests_status"))
    kinds = [mapping(tests.get(kind)) for kind in _TESTS]
    if not all(isinstance(kind.get("failure"), list) and isinstance(kind.get("success"), list) for kind in kinds):
        return None
    failed, passed = (any(kind[what] for kind in kinds) for what in ("failure", "success"))
    return not failed if failed or passed else None


REPORT = report("SWE-bench instance report", 60, _by_id, _outcomes)
