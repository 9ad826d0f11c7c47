# ruff: noqa: F822
"""Figures of replayed sessions.

Documented import path; the code is in `context_bench.traffic.figures`.
"""

from context_bench.core.lazy import lazy

__all__ = ["add_replay"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.traffic.figures:{name}" for name in __all__])
