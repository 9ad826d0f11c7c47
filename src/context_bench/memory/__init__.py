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
    from context_bench.core.protocols import MemorySystem as MemorySystem
    from context_bench.memory.cortex.containment import BenchmarkResult as BenchmarkResult
    from context_bench.memory.cortex.containment import BenchmarkSummary as BenchmarkSummary
    from context_bench.memory.cortex.containment import Client as Client
    from context_bench.memory.cortex.containment import best_candidate as best_candidate
    from context_bench.memory.cortex.containment import exact_match as exact_match
    from context_bench.memory.cortex.containment import format_markdown_table as format_markdown_table
    from context_bench.memory.cortex.containment import recall_at_k as recall_at_k
    from context_bench.memory.cortex.containment import score_question as score_question
    from context_bench.memory.cortex.containment import summarize as summarize
    from context_bench.memory.cortex.containment import token_f1 as token_f1
    from context_bench.memory.cortex.containment import tokenize as tokenize
    from context_bench.memory.cortex.harness import run_harness as run_harness
    from context_bench.memory.evaluation import evaluate_memory as evaluate_memory
    from context_bench.memory.evaluation import examples_of as examples_of
    from context_bench.memory.protocol import Hit as Hit
    from context_bench.memory.protocol import Item as Item
    from context_bench.memory.protocol import Memory as Memory
    from context_bench.memory.protocol import NotSupported as NotSupported
    from context_bench.memory.protocol import Receipt as Receipt
    from context_bench.memory.systems.adapting import as_memory as as_memory
    from context_bench.memory.systems.bridge import Bridge as Bridge
    from context_bench.memory.systems.command import CommandClient as CommandClient
    from context_bench.memory.systems.command import CortexClient as CortexClient
    from context_bench.memory.systems.memory_specs import make_memory as make_memory

__all__ = [
    *(
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
    ),
    *(
        "NotSupported",
        "Receipt",
        "as_memory",
        "best_candidate",
        "evaluate_memory",
        "exact_match",
        "examples_of",
        "format_markdown_table",
    ),
    *(
        "load_memory",
        "make_memory",
        "recall_at_k",
        "run_harness",
        "score_question",
        "summarize",
        "token_f1",
        "tokenize",
    ),
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
        ".systems.memory_specs:make_memory",
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
