# ruff: noqa: F822
"""Examples of a run over probes.

Documented import path; the code is in `context_bench.compression.probes`.
"""

from context_bench.core.lazy import lazy

__all__ = ["example_of", "packed", "messages_of", "session_tools", "rendered", "unrendered", "tokens_of"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.compression.probes:{name}" for name in __all__])
