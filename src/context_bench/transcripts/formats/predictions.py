"""Predictions (`{instance_id, model_name_or_path, model_patch}` as a list, a map by id, or lines): patches without a
verdict.

An empty patch solves nothing; of any other the status is unknown until a harness has run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, report


def _is_one(row: Row) -> bool:
    return isinstance(row.get("instance_id"), str) and "model_patch" in row


def _has_patch(value: Any) -> bool:
    return isinstance(value, dict) and "model_patch" in value


def _is_report(row: Row) -> bool:
    return _is_one(row) or (bool(row) and all(map(_has_patch, row.values())))


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    if _is_one(row):
        yield _outcome(str(row["instance_id"]), row)
        return
    for name, prediction in row.items():
        if _has_patch(prediction):
            yield _outcome(str(prediction.get("instance_id") or name), prediction)
        else:
            yield "not a prediction"


def _outcome(name: str, row: Row) -> PatchOutcome:
    patch = row.get("model_patch")
    if not isinstance(patch, str) or not patch.strip():
        return PatchOutcome(name, "unresolved", reason="empty_patch")
    return PatchOutcome(name, "unknown", reason="not run", patch=patch)


REPORT = report("predictions", 80, _is_report, _outcomes)
