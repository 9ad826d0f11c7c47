"""The figures of one run, and the row they are written as."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

LEVELS = ("file", "symbol", "span", "line")
Symbol = tuple[str, str, int, int]  # file, kind of node, first byte, byte after the last


def harmonic(a: float | None, b: float | None) -> float | None:
    """2ab / (a + b); 0 where both are."""
    if a is None or b is None:
        return None
    return 2 * a * b / (a + b) if a + b else 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """The figures of one level. `None`: there is nothing to divide by."""

    coverage: float | None
    precision: float | None
    intersection: int
    gold_size: int
    pred_size: int

    @property
    def f1(self) -> float | None:
        """Harmonic mean of coverage and precision; 0 where one of them is, `None` where one is unknown."""
        return harmonic(self.coverage, self.precision)

    def to_json(self) -> dict[str, Any]:
        """The original's five keys, and `f1`."""
        return {
            "coverage": self.coverage,
            "precision": self.precision,
            "intersection": self.intersection,
            "gold_size": self.gold_size,
            "pred_size": self.pred_size,
            "f1": self.f1,
        }


@dataclass(slots=True)
class Score:
    """One task's figures. `error` (policy `contextbench-v1` only): why there are none; such rows leave the original's averages."""

    instance_id: str
    policy: str
    num_steps: int = 0
    final: dict[str, Level] = field(default_factory=dict)
    regions: dict[str, dict[str, Level]] = field(default_factory=dict)  # the same against `init` and `add` alone
    steps: list[dict[str, float | None]] = field(default_factory=list)
    auc: dict[str, float | None] = field(default_factory=dict)
    auc_tokens: dict[str, float | None] | None = None
    auc_seconds: dict[str, float | None] | None = None
    redundancy: dict[str, float | None] = field(default_factory=dict)
    redundancy_excluding_after_edit: dict[str, float | None] = field(default_factory=dict)
    num_turns: int | None = None  # replies of the model that looked at anything; `None`: the log does not tell them
    auc_turns: dict[str, float | None] | None = None  # the same with all calls of one reply as one step: batching calls changes nothing
    redundancy_turns: dict[str, float | None] | None = None
    nonblank: Level | None = None  # lines, without those that hold nothing but white space
    lines_per_step: float | None = None  # over the steps that read lines
    first_gold: dict[str, float | None] = field(default_factory=dict)  # step, tokens and seconds at the first gold file
    usage_drop: dict[str, dict[str, float | None]] | None = None
    editloc: dict[str, Any] | None = None
    gold_symbols: list[Symbol] = field(default_factory=list)
    pred_symbols: list[Symbol] = field(default_factory=list)
    gold_missing_files: list[str] = field(default_factory=list)
    unresolved: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def to_row(self) -> dict[str, Any]:
        """A row in the original's shape (`final`, `trajectory`, `editloc`), with what we add to it beside."""
        if self.error:
            return {"instance_id": self.instance_id, "error": self.error, "policy": self.policy}
        trajectory: dict[str, Any] = {
            "steps": [{"step": n, "coverage": coverage} for n, coverage in enumerate(self.steps, 1)],
            "auc_coverage": self.auc,
            "redundancy": self.redundancy,
            "redundancy_excluding_after_edit": self.redundancy_excluding_after_edit,
            "lines_per_step": self.lines_per_step,
            "first_gold": self.first_gold,
        }
        if self.auc_tokens:
            trajectory["auc_coverage_tokens"] = self.auc_tokens
        if self.auc_seconds:
            trajectory["auc_coverage_seconds"] = self.auc_seconds
        if self.auc_turns:
            trajectory |= {"num_turns": self.num_turns, "auc_coverage_turns": self.auc_turns, "redundancy_turns": self.redundancy_turns}
        row: dict[str, Any] = {
            "instance_id": self.instance_id,
            "policy": self.policy,
            "num_steps": self.num_steps,
            "final": {name: level.to_json() for name, level in self.final.items()},
            "regions": {region: {name: level.to_json() for name, level in levels.items()} for region, levels in self.regions.items()},
            "trajectory": trajectory,
            "editloc": self.editloc,
        }
        if self.nonblank is not None:
            row["final_line_nonblank"] = self.nonblank.to_json()
        for name in ("usage_drop", "gold_missing_files", "notes"):
            if value := getattr(self, name):
                row[name] = value
        if self.unresolved:
            row["unresolved_paths"] = dict(self.unresolved)
        return row
