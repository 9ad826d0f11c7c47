# ruff: noqa: F822
"""Verdicts on a system against a baseline.

Documented import path; the code is in `context_bench.stats.verdict`.
"""

from context_bench.core.lazy import lazy

__all__ = ["Assay", "Evidence", "LEVEL", "compare", "default_margin", "judge", "noise_floor", "shows_inferior", "weigh"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.stats.verdict:{name}" for name in __all__])
