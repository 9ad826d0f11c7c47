# ruff: noqa: F822
"""A model looks for claims that the conversation does not hold.

Documented import path; the code is in `context_bench.memory.evaluators.published_scores`.
"""

from context_bench.core.lazy import lazy

__all__ = ["FalseMemoryRate"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.memory.evaluators.published_scores:{name}" for name in __all__])
