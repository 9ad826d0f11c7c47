"""How odd input is scored: our way, and the original evaluator's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How odd input is scored. `profile`: what counts as a definition. `upstream`: like the original, faults included."""

    name: str
    profile: str
    upstream: bool = False

    @property
    def share_of_nothing(self) -> float | None:
        """Coverage, precision or usage drop where there is nothing to divide by."""
        return 1.0 if self.upstream else None

    @property
    def waste_of_nothing(self) -> float | None:
        """Redundancy where nothing was read."""
        return 0.0 if self.upstream else None


STRICT = Policy("strict", "definitions")
UPSTREAM = Policy("contextbench-v1", "contextbench-v1", upstream=True)
STRICT_FULL = Policy("strict-full", "full")  # strict, and enums, type aliases, named arrow functions … are definitions, too
POLICIES = {policy.name: policy for policy in (STRICT, STRICT_FULL, UPSTREAM)}
