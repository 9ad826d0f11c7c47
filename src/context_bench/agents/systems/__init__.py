"""Agents: programs that work on a task's repository. An arm is such a program with its own environment, or after its
own set-up script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.agents.systems.agent import Agent
    from context_bench.agents.systems.arm_specs import AbortRules, ArmSpec, parse_arm

__all__ = ["AbortRules", "Agent", "ArmSpec", "parse_arm"]

__getattr__, __dir__ = lazy(
    __name__, [".agent:Agent", ".arm_specs:ArmSpec", ".arm_specs:parse_arm", ".arm_specs:AbortRules"]
)
