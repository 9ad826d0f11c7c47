"""A log of Inspect, `.json` or `.eval`: the scores of its samples.

With several scorers that differ none is taken for the verdict unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.stats.solving import Status
from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.inspect_files import holds_samples, is_archive, is_document, log_of
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping

NAME = "Inspect log"
_WORDS: dict[str, Status] = {
    **dict.fromkeys(("c", "yes", "true", "pass", "passed", "resolved", "1", "1.0"), "resolved"),
    **dict.fromkeys(("i", "n", "p", "no", "false", "fail", "failed", "unresolved", "0", "0.0"), "unresolved"),
}


def sniff(peek: Peek) -> bool:
    """True if the file is a log of Inspect."""
    return is_archive(peek.start) or is_document(peek.first)


def read(source: LogSource, scorer: str | None = None) -> Iterator[PatchOutcome]:
    """One outcome per sample and epoch. `scorer`: the score that is the verdict."""
    _, samples = log_of(source)
    if holds_samples(source.path):
        source.skipped.clear()  # an archive is no JSON, and need not be
    for sample in map(mapping, samples):
        name = sample.get("id")
        if not isinstance(name, str | int):
            source.skip("a sample without an id")
            continue
        yield _outcome(str(name), sample, scorer)


def _outcome(name: str, sample: dict[str, Any], scorer: str | None) -> PatchOutcome:
    found: dict[str, Status] = {}
    for key, score in mapping(sample.get("scores")).items():
        status = _status(mapping(score).get("value", score)) if scorer in (None, key) else None
        if status is not None:
            found[key] = status
    if len(set(found.values())) == 1:
        return PatchOutcome(name, next(iter(found.values())))
    if found:
        return PatchOutcome(name, "unknown", reason=f"scorers differ: {', '.join(sorted(found))}")
    fault = mapping(sample.get("error")).get("message")
    return (
        PatchOutcome(name, "error", reason=str(fault)[:200])
        if fault
        else PatchOutcome(name, "unknown", reason="no pass or fail among its scores")
    )


def _status(value: Any) -> Status | None:
    """Pass or fail of a score's value; a share that is neither 0 nor 1 is not solved."""
    if isinstance(value, bool):
        return "resolved" if value else "unresolved"
    if isinstance(value, int | float):
        return "resolved" if value == 1 else "unresolved" if 0 <= value < 1 else None
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    return None


FORMAT = Format(NAME, 50, sniff, read)
