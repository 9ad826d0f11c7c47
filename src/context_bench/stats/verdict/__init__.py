"""Verdicts on a system against a baseline, and their sentences.

The question is never "is there a significant difference?" but "is a loss of the margin or more ruled out, shown, or
neither?", and "would this run have shown such a loss?". One-sided tests at 5 % against the margin; "better" needs the
95 % interval above 0.
"""

from context_bench.stats.verdict.decisions import compare, judge, noise_floor
from context_bench.stats.verdict.evidence import (
    LEVEL,
    Assay,
    Evidence,
    VerdictQuestion,
    as_people_rate,
    default_margin,
    shows_inferior,
    weigh,
)

__all__ = [
    "Assay",
    "Evidence",
    "LEVEL",
    "VerdictQuestion",
    "as_people_rate",
    "compare",
    "default_margin",
    "judge",
    "noise_floor",
    "shows_inferior",
    "weigh",
]
