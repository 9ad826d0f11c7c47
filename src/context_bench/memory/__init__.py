"""Memories: does one find what it was told, does the answer hold, and what does it cost?

```python
from context_bench.evaluators import AnswerQuality
from context_bench.memory import evaluate_memory

result = evaluate_memory([mine], conversations, [AnswerQuality()])   # mine: reset(), ingest(turns), query(question)
```

The command line is `context-bench memory`; both run on the ordinary engine, so runs resume, are judged again and
compared like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.core.protocols import MemorySystem
    from context_bench.memory.cortex.containment import (
        BenchmarkResult,
        BenchmarkSummary,
        Client,
        best_candidate,
        exact_match,
        format_markdown_table,
        recall_at_k,
        score_question,
        summarize,
        token_f1,
        tokenize,
    )
    from context_bench.memory.cortex.harness import run_harness
    from context_bench.memory.datasets.memory_data import load_memory
    from context_bench.memory.evaluation import evaluate_memory, examples_of
    from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt
    from context_bench.memory.systems.adapting import as_memory, make_memory
    from context_bench.memory.systems.bridge import Bridge
    from context_bench.memory.systems.command import CommandClient, CortexClient

__all__ = [
    "BenchmarkResult",
    "BenchmarkSummary",
    "Bridge",
    "Client",
    "CommandClient",
    "CortexClient",
    "Hit",
    "Item",
    "Memory",
    "MemorySystem",
    "NotSupported",
    "Receipt",
    "as_memory",
    "best_candidate",
    "evaluate_memory",
    "exact_match",
    "examples_of",
    "format_markdown_table",
    "load_memory",
    "make_memory",
    "recall_at_k",
    "run_harness",
    "score_question",
    "summarize",
    "token_f1",
    "tokenize",
]

__getattr__, __dir__ = lazy(
    __name__,
    [
        ".cortex.containment:BenchmarkResult",
        ".cortex.containment:BenchmarkSummary",
        ".cortex.containment:best_candidate",
        ".cortex.containment:exact_match",
        ".cortex.containment:recall_at_k",
        ".cortex.containment:score_question",
        ".cortex.containment:summarize",
        ".cortex.containment:token_f1",
        ".cortex.containment:tokenize",
        ".cortex.containment:format_markdown_table",
        ".cortex.containment:Client",
        ".systems.adapting:as_memory",
        ".systems.bridge:Bridge",
        ".systems.command:CommandClient",
        ".systems.command:CortexClient",
        ".cortex.harness:run_harness",
        ".systems.adapting:make_memory",
        ".datasets:load_memory",
        ".evaluation:evaluate_memory",
        ".evaluation:examples_of",
        "context_bench.core.protocols:MemorySystem",
        ".protocol:Hit",
        ".protocol:Item",
        ".protocol:Memory",
        ".protocol:NotSupported",
        ".protocol:Receipt",
    ],
)
