# ruff: noqa: F822
"""A model rates the response from 1 to 5.

Documented import path; the code is in `context_bench.judge.llm_judge`.
"""

from context_bench.core.lazy import lazy

__all__ = ["LLMJudge"]

__getattr__, __dir__ = lazy(__name__, [f"context_bench.judge.llm_judge:{name}" for name in __all__])
