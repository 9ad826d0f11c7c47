"""Built-in memories and adapters.

Documented import path; the code is in `context_bench.memory.systems`.
"""

from context_bench.core.lazy import lazy

__all__ = ["BUILTINS", "SCHEMES", "Bridge", "as_memory", "make_memory"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.memory.systems:{name}" for name in __all__])
