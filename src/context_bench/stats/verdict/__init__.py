"""What may be said about a system against a baseline, and the sentence that says it.

The question is never "is there a significant difference?" but "is a loss of the margin or more ruled out, shown, or neither?", and
"would this run have shown such a loss?". One-sided tests at 5 % against the margin; "better" needs the 95 % interval above 0.
"""

from context_bench.stats.verdict.evidence import LEVEL, Evidence, default_margin, weigh
from context_bench.stats.verdict.judging import compare, judge
from context_bench.stats.verdict.questions import Assay, Question, shows_inferior
from context_bench.stats.verdict.sentences import noise_floor

__all__ = [
    "Assay",
    "Evidence",
    "LEVEL",
    "Question",
    "compare",
    "default_margin",
    "judge",
    "noise_floor",
    "shows_inferior",
    "weigh",
]
