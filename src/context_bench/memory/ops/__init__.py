"""The operational suites: does a memory keep users apart, forget what it must, hold what it acknowledged, and come back in time?

Every test that looks for something bad carries a positive control that shows that it could have seen it; without that it fails. What a
memory does not offer is "not applicable", never a pass.
"""

from __future__ import annotations

from context_bench.memory.ops.report import Finding, Probe, SuiteResult
from context_bench.memory.ops.run import DEFAULT, SUITES, run_suites

__all__ = ["DEFAULT", "SUITES", "Finding", "Probe", "SuiteResult", "run_suites"]
