# ruff: noqa: F822
"""Changes of a request on its way, other than shorter texts.

Documented import path; the code is in `context_bench.wire.violations`.
"""

from context_bench.core.lazy import lazy

__all__ = [
    "KINDS",
    "NOTES",
    "Violation",
    "by_kind",
    "closest",
    "compare_requests",
    "count_tools",
    "stream_past_end",
    "names_of",
    "phrase",
    "repeated_requests",
    "reserialised",
    "silent_truncation",
    "tools_of",
    "total",
    "wire_violations",
]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.wire.violations:{name}" for name in __all__])
