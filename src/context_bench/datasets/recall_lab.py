# ruff: noqa: F822
"""`bundled:recall-lab`.

Documented import path; the code is in `context_bench.memory.datasets.recall_lab`.
"""

from context_bench.core.lazy import lazy

__all__ = ["LANGUAGES", "NAME", "TYPES", "VERSION", "Lab", "about", "lab", "load_lab", "open_lab", "spread"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.memory.datasets.recall_lab:{name}" for name in __all__])
