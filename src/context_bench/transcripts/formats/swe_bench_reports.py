"""Verdicts of SWE-bench and of benchmarks after its model.

SWE-bench: the report of a run (`<model>.<run>.json`), schema 2 and those before it, which have no failures of the
machinery (the oldest, `results.json` of a submission, list `resolved` beside `applied` and `no_generation`); and
`report.json` of an instance (`{id: {resolved, patch_successfully_applied, tests_status, infra_failure …}}`).
SWE-bench Pro: `eval_results.json` (`{id: true}`), with `infra_errors.json` (`{id: why}`) beside it. Multi-SWE-bench:
`final_report.json` (ids `org/repo:pr-N`), and `report.json` of one instance (`org`, `repo`, `number`, `valid`).
SWE-PolyBench: `<id>_result.json` of an instance, or `result.json`, which lists ids.

Beside them verdicts that anybody can write: `{instance_id, resolved}` by instance, as lines, a list, or a map by id;
`status` in words does as well. `{instance_id, model_name_or_path, model_patch}` is a prediction, a patch without a
verdict: an empty one solves nothing, of any other the status is unknown until a harness has run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from context_bench.core.keys import load_json
from context_bench.core.machine import file_bytes
from context_bench.stats.solving import STATUSES, Status
from context_bench.transcripts.format import Format, LogSource, Peek, mapping
from context_bench.transcripts.harness_results import (
    PatchOutcome,
    Row,
    is_listing,
    listed,
    names,
    report,
)

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


def _is_run_report(row: Row) -> bool:
    return is_listing(row) or _is_old(row)


def _run_outcomes(row: Row) -> Iterator[PatchOutcome | str]:
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


_TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def _by_id(row: Row) -> bool:
    return bool(row) and all(map(_is_instance_report, row.values()))


def _instance_outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    for name, verdict in row.items():
        yield _outcome(name, verdict) if _is_instance_report(verdict) else "not a report of an instance"


def _is_instance_report(verdict: Any) -> bool:
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


_PRO_INFRA = "infra_errors.json"


def _is_pro(peek: Peek) -> bool:
    row = peek.first
    return len(peek.sample) == 1 and bool(row) and all(isinstance(value, bool) for value in row.values())


def _pro_outcomes(source: LogSource) -> Iterator[PatchOutcome]:
    """Outcomes of scored tasks, then of those that could not be run."""
    scored: set[str] = set()
    for row in map(mapping, source.values()):
        for name, value in row.items():
            if isinstance(value, bool):
                scored.add(name)
                yield PatchOutcome(name, "resolved" if value else "unresolved")
            else:
                source.skip("neither true nor false")
    infra: Row = {}
    with suppress(OSError, ValueError):
        infra = mapping(load_json(file_bytes(source.path.parent / _PRO_INFRA)))
    for name, why in infra.items():
        if name not in scored:
            yield PatchOutcome(name, "error", True, str(why)[:200])


def _is_multi_report(row: Row) -> bool:
    return (is_listing(row) and "incomplete_instances" in row) or _is_multi_instance(row)


def _multi_outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if is_listing(row):
        yield from listed(row)
    elif _is_multi_instance(row):
        name, why = f"{row['org']}/{row['repo']}:pr-{row['number']}", row.get("error_msg")
        status = {True: "resolved", False: "unresolved"}.get(row["valid"], "unknown")
        yield PatchOutcome(name, status, reason=str(why)[:200] if why else None)  # type: ignore[arg-type]
    else:
        yield "neither a final report nor one of an instance"


def _is_multi_instance(row: Row) -> bool:
    named = (
        isinstance(row.get("org"), str)
        and isinstance(row.get("repo"), str)
        and isinstance(row.get("number"), int | str)
    )
    return named and "valid" in row and (row["valid"] is None or isinstance(row["valid"], bool))


def _is_poly_report(row: Row) -> bool:
    return _is_poly_instance(row) or _is_poly_run(row)


def _poly_outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if _is_poly_instance(row):
        yield _poly_outcome(row)
    elif _is_poly_run(row):
        empty = set(names(row.get("no_generation")))
        yield from (PatchOutcome(name, "resolved") for name in names(row["resolved"]))
        for name in names(row["not_resolved"]):
            yield PatchOutcome(name, "unresolved", reason="empty_patch" if name in empty else None)
    else:
        yield "not a result"


def _is_poly_instance(row: Row) -> bool:
    return (
        isinstance(row.get("instance_id"), str)
        and isinstance(row.get("all_f2p_passed"), bool)
        and isinstance(row.get("no_p2p_failed"), bool)
    )


def _is_poly_run(row: Row) -> bool:
    return isinstance(row.get("resolved"), list) and isinstance(row.get("not_resolved"), list)


def _poly_outcome(row: Row) -> PatchOutcome:
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


_IDS = ("instance_id", "inst_id", "task_id", "id")
_WORDS: dict[str, Status] = {
    **{name: name for name in STATUSES},
    **dict.fromkeys(("true", "yes", "pass", "passed", "solved", "success", "1"), "resolved"),
    **dict.fromkeys(("false", "no", "fail", "failed", "unsolved", "failure", "empty_patch", "0"), "unresolved"),
    **dict.fromkeys(("infra", "infra_failure", "timeout", "crashed"), "error"),
}


def _is_verdict(row: Row) -> bool:
    return _name(row) is not None and _status(row) is not None


def _verdicts(row: Row) -> Iterator[PatchOutcome | str]:
    name, status = _name(row), _status(row)
    if name is None or status is None:
        yield "no id" if name is None else "no verdict"
        return
    stated, why = row.get("status"), row.get("reason")
    infra = any(row.get(key) is True for key in ("infra", "infra_failure")) or (
        isinstance(stated, str) and stated.lower().startswith("infra")
    )
    yield PatchOutcome(name, status, infra, str(why)[:200] if why else None)


def _name(row: Row) -> str | None:
    return next((str(row[key]) for key in _IDS if isinstance(row.get(key), str | int) and row[key] != ""), None)


def _status(row: Row) -> Status | None:
    for key in ("resolved", "status"):
        value = row.get(key)
        if isinstance(value, bool):
            return "resolved" if value else "unresolved"
        if isinstance(value, int | float) and value in (0, 1):
            return "resolved" if value else "unresolved"
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
    return "unknown" if "resolved" in row and row["resolved"] is None else None


def _is_prediction(row: Row) -> bool:
    return isinstance(row.get("instance_id"), str) and "model_patch" in row


def _has_patch(value: Any) -> bool:
    return isinstance(value, dict) and "model_patch" in value


def _are_predictions(row: Row) -> bool:
    return _is_prediction(row) or (bool(row) and all(map(_has_patch, row.values())))


def _predictions(row: Row) -> Iterator[PatchOutcome | str]:
    if _is_prediction(row):
        yield _prediction(str(row["instance_id"]), row)
        return
    for name, prediction in row.items():
        if _has_patch(prediction):
            yield _prediction(str(prediction.get("instance_id") or name), prediction)
        else:
            yield "not a prediction"


def _prediction(name: str, row: Row) -> PatchOutcome:
    patch = row.get("model_patch")
    if not isinstance(patch, str) or not patch.strip():
        return PatchOutcome(name, "unresolved", reason="empty_patch")
    return PatchOutcome(name, "unknown", reason="not run", patch=patch)


REPORT = {
    "plain": report(
        "lines of {instance_id, resolved}",
        90,
        _is_verdict,
        _verdicts,
        "Lines, or a list, of `{instance_id, resolved}`.",
    ),
    "predictions": report(
        "predictions", 80, _are_predictions, _predictions, "Patches without a verdict: a list, a map by id, or lines."
    ),
    "swe_bench_run": report(
        "SWE-bench run report",
        20,
        _is_run_report,
        _run_outcomes,
        "SWE-bench: the report of a run (`<model>.<run>.json`).",
    ),
    "swe_bench_instance": report(
        "SWE-bench instance report", 60, _by_id, _instance_outcomes, "SWE-bench: `report.json` of an instance."
    ),
    "swe_bench_pro": Format(
        "SWE-bench Pro results", 70, _is_pro, _pro_outcomes, about="SWE-bench Pro: `eval_results.json`."
    ),
    "multi_swe_bench": report(
        "Multi-SWE-bench report",
        10,
        _is_multi_report,
        _multi_outcomes,
        "Multi-SWE-bench: `final_report.json`, or of an instance `report.json`.",
    ),
    "swe_polybench": report(
        "SWE-PolyBench result",
        30,
        _is_poly_report,
        _poly_outcomes,
        "SWE-PolyBench: `<id>_result.json`, or `result.json`.",
    ),
}
