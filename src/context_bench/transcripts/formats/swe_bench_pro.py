"""`eval_results.json` of SWE-bench Pro (`{id: true}`), with `infra_errors.json` (`{id: why}`) beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_bench.core.jsontext import load_json
from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.patch_verdicts import PatchOutcome, mapping

_BESIDE = "infra_errors.json"


def sniff(peek: Peek) -> bool:
    """True if the file maps ids to true or false."""
    row = peek.first
    return len(peek.sample) == 1 and bool(row) and all(isinstance(value, bool) for value in row.values())


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """Outcomes of scored tasks, then of those that could not be run."""
    scored: set[str] = set()
    for row in map(mapping, source.values()):
        for name, value in row.items():
            if isinstance(value, bool):
                scored.add(name)
                yield PatchOutcome(name, "resolved" if value else "unresolved")
            else:
                source.skip("neither true nor false")
    for name, why in _infra(source.path.parent / _BESIDE).items():
        if name not in scored:
            yield PatchOutcome(name, "error", True, str(why)[:200])


def _infra(path: Path) -> dict[str, Any]:
    try:
        return mapping(load_json(path.read_bytes()))
    except (OSError, ValueError):
        return {}


REPORT = Format("SWE-bench Pro results", 70, sniff, read)
