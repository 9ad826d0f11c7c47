"""Patches of a run by instance, as lines, a list, or a map by id: verdicts that anybody can write, and predictions.

`{instance_id, resolved}` is a verdict; `status` in words does as well. `{instance_id, model_name_or_path, model_patch}`
is a prediction, a patch without a verdict: an empty one solves nothing, of any other the status is unknown until a
harness has run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.stats.solving import STATUSES, Status
from context_bench.transcripts.harness_results import PatchOutcome, Row, report

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
}
