"""Questions about long conversations: published formats, files of one's own, and small sets of ours.

```python
load_memory("locomo", n=2, qa_types=["temporal"]).examples()
load_memory("./my_history.jsonl")
```
"""

from __future__ import annotations

from context_bench.memory.datasets.memory_data import (
    FILES,
    Mode,
    about_memory,
    conversations,
    in_mode,
    is_memory,
    load_memory,
    locomo,
    longmemeval,
    memory_examples,
    memory_names,
    sample_search_pool,
    split_conversations,
    summary_line,
)

__all__ = [
    "FILES",
    "Mode",
    "about_memory",
    "conversations",
    "in_mode",
    "is_memory",
    "load_memory",
    "locomo",
    "longmemeval",
    "memory_examples",
    "memory_names",
    "sample_search_pool",
    "split_conversations",
    "summary_line",
]
