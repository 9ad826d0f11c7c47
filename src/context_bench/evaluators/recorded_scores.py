"""Scores that another harness gave an answer, carried over unchanged."""

from __future__ import annotations

from typing import Any

from context_bench.core.records import Example


class RecordedScores:
    """The numbers under `recorded_scores` of an imported answer, each named `SOURCE.NAME`, so that they never stand for
    scores of ours.
    """

    version = "1"

    def __init__(self, source: str) -> None:
        self.name = source

    def applies(self, example: Example, output: Example) -> bool:
        """The source gave this answer a score."""
        return bool(output.get("recorded_scores"))

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The recorded scores."""
        return {f"{self.name}.{name}": value for name, value in (processed.get("recorded_scores") or {}).items()}

    def fingerprint(self) -> dict[str, Any]:
        """The source."""
        return {"class": "RecordedScores", "source": self.name}
