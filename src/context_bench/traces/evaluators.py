"""Evaluators of recorded runs: coverage, trajectory and edit location against gold, and the harness's verdict.

Scoring needs the repository and the events at once, so the process that read a log works out all figures; an evaluator
gives those of its kind. Their rules are a part of its fingerprint: runs scored by other rules are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.keys import stable_hash
from context_bench.core.records import Example
from context_bench.stats.solving import Status
from context_bench.traces.coverage import LEVELS


class TraceFigures:
    """Figures of one kind, each in [0, 1]; one that is not known is left out. `rules`: by which they were worked
    out.
    """

    name = ""
    version = "1"
    quick = True
    kinds: tuple[str, ...] = ()

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self.rules = dict(rules)
        self.fields = tuple(f"{kind}.{level}" for kind in self.kinds for level in LEVELS)

    def fingerprint(self) -> dict[str, Any]:
        """The rules."""
        return {"class": type(self).__name__, **self.rules}

    def applies(self, example: Example, output: Example) -> bool:
        """One of its figures is known of the recorded run."""
        return not self.figures_in(output).keys().isdisjoint(self.fields)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The figures that are known."""
        known = self.figures_in(processed)
        return {name: known[name] for name in self.fields if name in known}

    @staticmethod
    def figures_in(output: Example) -> Mapping[str, float]:
        """The figures of an output; none of one that is no recorded run."""
        figures: Mapping[str, float] = output.get("figures") or {}
        return figures


class GoldCoverage(TraceFigures):
    """Final coverage, precision and F1 of what was read, by level."""

    name = "coverage"
    kinds = ("coverage", "precision", "f1")


class Trajectory(TraceFigures):
    """The pace at which the gold was read (`auc`), and the share read again (`redundancy`), by level."""

    name = "trajectory"
    kinds = ("auc", "redundancy")


class EditPlace(TraceFigures):
    """Does the patch edit where the gold does (`traces.edits`)?"""

    name = "edit_location"

    def __init__(self, rules: Mapping[str, Any]) -> None:
        super().__init__(rules)
        self.fields = ("editloc.precision", "editloc.recall", "editloc.anchored_precision")


class Resolved:
    """`resolved`: 1 if the harness says that the patch solved the task, 0 if it says anything else; nothing for a task
    of which it says nothing. `statuses`: by task.
    """

    name = "resolved"
    quick = True
    fields = ("resolved",)

    def __init__(self, statuses: Mapping[str, Status]) -> None:
        self._statuses = {task: status for task, status in statuses.items() if status != "unknown"}
        self.version = stable_hash(self._statuses)

    def fingerprint(self) -> dict[str, Any]:
        """Nothing: sets with reports of their own can be compared. Other verdicts are another version."""
        return {"class": "Resolved"}

    def applies(self, example: Example, output: Example) -> bool:
        """The harness judged the task."""
        return example.get("task") in self._statuses

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """1.0 or 0.0."""
        return {"resolved": float(self._statuses[original["task"]] == "resolved")}
