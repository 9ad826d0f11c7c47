"""Reports that list ids by what became of them, as outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.stats.solving import Status
from context_bench.transcripts.solved.record import Outcome, mapping, names

#: Which list says what, the one that decides first. Ids that are only in a later list of the report (`submitted_ids` …) have no verdict.
_VERDICTS: tuple[tuple[str, Status, str | None], ...] = (
    ("resolved_ids", "resolved", None),
    ("error_ids", "error", None),
    ("empty_patch_ids", "unresolved", "empty_patch"),
    ("unresolved_ids", "unresolved", None),
    ("infra_failure_ids", "error", "infra"),
    ("ambiguous_failure_ids", "unresolved", "ambiguous"),
    ("incomplete_ids", "unresolved", "missing"),
    ("submitted_ids", "error", "no verdict"),
    ("completed_ids", "error", "no verdict"),
)


def is_listing(row: Mapping[str, Any]) -> bool:
    """Whether a report lists ids by verdict."""
    return isinstance(row.get("resolved_ids"), list) and any(isinstance(row.get(key), list) for key, _, _ in _VERDICTS[1:])


def listed(row: Mapping[str, Any]) -> Iterator[Outcome]:
    """Every id of a report, once.

    Failures of the machinery are marked and keep the verdict that the harness counts them as.
    """
    infra = set(names(row.get("infra_failure_ids")))
    reasons = mapping(row.get("failure_reasons"))
    done: set[str] = set()
    for key, status, why in _VERDICTS:
        for name in names(row.get(key)):
            if name not in done:
                done.add(name)
                told = reasons.get(name)
                yield Outcome(name, status, name in infra, str(told)[:200] if told else why)
