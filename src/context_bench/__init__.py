"""context-bench: what the thing in front of your LLM does to its context, and what that costs you.

Public names load when they are first used; importing this package does no work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import lazy

__version__ = "0.1.0"

__all__ = [
    "ClaudeCLI",
    "EvalResult",
    "EvalRow",
    "Evaluator",
    "MemorySystem",
    "Metric",
    "OpenAIProxy",
    "Registry",
    "System",
    "Tap",
    "__version__",
    "count_tokens",
    "evaluate",
    "evaluate_memory",
    "load_dataset",
    "register_dataset",
    "register_evaluator",
    "register_metric",
    "register_reporter",
    "register_system",
]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from context_bench.core.tokens import count_tokens
    from context_bench.registry import (
        Registry,
        load_dataset,
        register_dataset,
        register_evaluator,
        register_metric,
        register_reporter,
        register_system,
    )
    from context_bench.results import EvalResult, EvalRow
    from context_bench.runner import evaluate
    from context_bench.systems import ClaudeCLI, OpenAIProxy
    from context_bench.tap import Tap
    from context_bench.types import Evaluator, MemorySystem, Metric, System

    def evaluate_memory(
        systems: Sequence[Any] | Any,
        dataset: Iterable[Mapping[str, Any]],
        evaluators: Sequence[Any] | Any,
        metrics: Sequence[Any] | None = None,
        max_examples: int | None = None,
        progress: bool = True,
        **more: Any,
    ) -> EvalResult:
        """Declared again for type checkers, for the root imports no family; a test compares it with
        `context_bench.memory`'s.
        """


__getattr__, __dir__ = lazy(
    __name__,
    [
        ".runner:evaluate",
        ".memory:evaluate_memory",
        ".results:EvalResult",
        ".results:EvalRow",
        ".systems:OpenAIProxy",
        ".systems:ClaudeCLI",
        ".types:MemorySystem",
        ".types:System",
        ".types:Evaluator",
        ".types:Metric",
        ".registry:Registry",
        ".registry:register_dataset",
        ".registry:register_metric",
        ".registry:register_system",
        ".registry:register_evaluator",
        ".registry:register_reporter",
        ".registry:load_dataset",
        ".core.tokens:count_tokens",
        ".tap:Tap",
    ],
)
