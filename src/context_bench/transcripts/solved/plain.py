"""Lines, or a list, of `{instance_id, resolved}`: what anybody can write. `status` in words does as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.stats.solving import STATUSES, Status
from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping

NAME = "lines of {instance_id, resolved}"
_IDS = ("instance_id", "inst_id", "task_id", "id")
_WORDS: dict[str, Status] = {
    **{name: name for name in STATUSES},
    **dict.fromkeys(("true", "yes", "pass", "passed", "solved", "success", "1"), "resolved"),
    **dict.fromkeys(("false", "no", "fail", "failed", "unsolved", "failure", "empty_patch", "0"), "unresolved"),
    **dict.fromkeys(("infra", "infra_failure", "timeout", "crashed"), "error"),
}


def sniff(peek: Peek) -> bool:
    """True if the first object has an id and a verdict."""
    row = peek.first
    return _name(row) is not None and _status(row) is not None


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """One outcome per line."""
    for row in map(mapping, source.values()):
        name, status = _name(row), _status(row)
        if name is None or status is None:
            source.skip("no id" if name is None else "no verdict")
            continue
        told, why = row.get("status"), row.get("reason")
        infra = (
            row.get("infra") is True
            or row.get("infra_failure") is True
            or (isinstance(told, str) and told.lower().startswith("infra"))
        )
        yield PatchOutcome(name, status, infra, str(why)[:200] if why else None)


def _name(row: dict[str, Any]) -> str | None:
    return next((str(row[key]) for key in _IDS if isinstance(row.get(key), str | int) and row[key] != ""), None)


def _status(row: dict[str, Any]) -> Status | None:
    for key in ("resolved", "status"):
        value = row.get(key)
        if isinstance(value, bool):
            return "resolved" if value else "unresolved"
        if isinstance(value, int | float) and value in (0, 1):
            return "resolved" if value else "unresolved"
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
    return "unknown" if "resolved" in row and row["resolved"] is None else None


FORMAT = Format(NAME, 90, sniff, read)
