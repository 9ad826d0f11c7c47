"""`report.json` of a SWE-bench instance: `{id: {resolved, patch_successfully_applied, tests_status, infra_failure
…}}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping

NAME = "SWE-bench instance report"
_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def sniff(peek: Peek) -> bool:
    """True if the file maps ids to verdicts on their patches."""
    row = peek.first
    return bool(row) and all(_is_report(report) for report in row.values())


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """The instances of the report: mostly one."""
    for row in map(mapping, source.values()):
        for name, report in row.items():
            if _is_report(report):
                yield _outcome(name, report)
            else:
                source.skip("not a report of an instance")


def _is_report(report: Any) -> bool:
    return (
        isinstance(report, dict)
        and "instance_id" not in report
        and (isinstance(report.get("resolved"), bool) or _tests(report) is not None)
    )


def _outcome(name: str, report: dict[str, Any]) -> PatchOutcome:
    infra = report.get("infra_failure") is True
    tests = _tests(report)
    resolved = tests if not isinstance(report.get("resolved"), bool) else report["resolved"] and tests is not False
    if resolved:
        return PatchOutcome(name, "resolved", infra)
    told = report.get("infra_failure_reason")
    why = str(told)[:200] if told else _why(report)
    return PatchOutcome(name, "unresolved", infra, why)


def _why(report: dict[str, Any]) -> str | None:
    if report.get("patch_is_None") is True or report.get("patch_exists") is False:
        return "empty_patch"
    if report.get("patch_successfully_applied") is False:
        return "patch does not apply"
    tests = mapping(report.get("tests_status"))
    failed = [
        f"{len(wrong)} of {kind}"
        for kind in _TESTS
        if (wrong := mapping(tests.get(kind)).get("failure")) and isinstance(wrong, list)
    ]
    return "failing: " + ", ".join(failed) if failed else None


def _tests(report: dict[str, Any]) -> bool | None:
    """True if all tests of both kinds pass; `None` if the report does not mention them."""
    tests = mapping(report.get("tests_status"))
    kinds = [mapping(tests.get(kind)) for kind in _TESTS]
    if not all(isinstance(kind.get("failure"), list) and isinstance(kind.get("success"), list) for kind in kinds):
        return None
    failed, passed = (any(kind[what] for kind in kinds) for what in ("failure", "success"))
    return not failed if failed or passed else None


FORMAT = Format(NAME, 60, sniff, read)
