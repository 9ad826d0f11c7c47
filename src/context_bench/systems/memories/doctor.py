# ruff: noqa: F822
"""A check of what a memory can do.

Documented import path; the code is in `context_bench.memory.doctor`.
"""

from context_bench.core.lazy import lazy

__all__ = ["Finding", "examine"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.memory.doctor:{name}" for name in __all__])
