"""A log of Inspect, `.json` or `.eval`: the scores of its samples.

With several scorers that differ none is taken for the verdict unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_bench.stats.solving import Status
from context_bench.transcripts.answers.inspect_logs import matches as matches
from context_bench.transcripts.answers.inspect_logs import samples_of
from context_bench.transcripts.solved.record import Outcome, mapping
from context_bench.transcripts.source import Source

NAME = "Inspect log"
_WORDS: dict[str, Status] = {
    **dict.fromkeys(("c", "yes", "true", "pass", "passed", "resolved", "1", "1.0"), "resolved"),
    **dict.fromkeys(("i", "n", "p", "no", "false", "fail", "failed", "unresolved", "0", "0.0"), "unresolved"),
}


def outcomes(source: Source, scorer: str | None = None) -> Iterator[Outcome]:
    """One outcome per sample and epoch. `scorer`: the score that is the verdict."""
    for sample in map(mapping, samples_of(source.path)):
        name = sample.get("id")
        if not isinstance(name, str | int):
            source.skip("a sample without an id")
            continue
        yield _outcome(str(name), sample, scorer)


def _outcome(name: str, sample: dict[str, Any], scorer: str | None) -> Outcome:
    found: dict[str, Status] = {}
    for key, score in mapping(sample.get("scores")).items():
        status = _status(mapping(score).get("value", score)) if scorer in (None, key) else None
        if status is not None:
            found[key] = status
    if len(set(found.values())) == 1:
        return Outcome(name, next(iter(found.values())))
    if found:
        return Outcome(name, "unknown", reason=f"scorers differ: {', '.join(sorted(found))}")
    fault = mapping(sample.get("error")).get("message")
    return Outcome(name, "error", reason=str(fault)[:200]) if fault else Outcome(name, "unknown", reason="no pass or fail among its scores")


def _status(value: Any) -> Status | None:
    """Pass or fail of a score's value; a share that is neither 0 nor 1 is not solved."""
    if isinstance(value, bool):
        return "resolved" if value else "unresolved"
    if isinstance(value, int | float):
        return "resolved" if value == 1 else "unresolved" if 0 <= value < 1 else None
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    return None
