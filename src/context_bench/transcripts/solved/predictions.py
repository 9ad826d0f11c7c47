"""Predictions (`{instance_id, model_name_or_path, model_patch}` as a list, a map by id, or lines): patches without a
verdict.

An empty patch solves nothing; of any other the status is unknown until a harness has run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping

NAME = "predictions"


def sniff(peek: Peek) -> bool:
    """True if the file holds patches by id."""
    row = peek.first
    return _is_one(row) or (bool(row) and all(isinstance(one, dict) and "model_patch" in one for one in row.values()))


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """One outcome per patch."""
    for row in map(mapping, source.values()):
        if _is_one(row):
            yield _outcome(str(row["instance_id"]), row)
            continue
        for name, one in row.items():
            if isinstance(one, dict) and "model_patch" in one:
                yield _outcome(str(one.get("instance_id") or name), one)
            else:
                source.skip("not a prediction")


def _is_one(row: dict[str, Any]) -> bool:
    return isinstance(row.get("instance_id"), str) and "model_patch" in row


def _outcome(name: str, row: dict[str, Any]) -> PatchOutcome:
    patch = row.get("model_patch")
    if not isinstance(patch, str) or not patch.strip():
        return PatchOutcome(name, "unresolved", reason="empty_patch")
    return PatchOutcome(name, "unknown", reason="not run", patch=patch)


FORMAT = Format(NAME, 80, sniff, read)
