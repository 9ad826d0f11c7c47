# ruff: noqa: F822
"""Tasks for agents.

Documented import path; the code is in `context_bench.agents.datasets`.
"""

from context_bench.core.lazy import lazy

__all__ = ["BUNDLED", "SCRIPT", "Tasks", "load_tasks"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.agents.datasets:{name}" for name in __all__])
