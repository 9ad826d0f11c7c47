"""Agents' runs against gold: did one read the right code, when, how often, and did it edit where it should?

```python
from context_bench.traces import load_gold, load_traces, open_repo, score_trace

gold = load_gold("gold.jsonl")
with open_repo("clones/demo.git", gold.golds[0].commit) as repo:
    for trace in load_traces("session.jsonl", repo=repo):
        row = score_trace(gold.golds[0], trace, repo)
        print(row.score.final["line"].coverage, row.missed)
```

`score_traces` does many, in processes, resumably; `compare_traces` two sets of runs; the command line is
`context-bench trace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.shell import read_shell as read_shell
    from context_bench.shell.repo import open_repo as open_repo
    from context_bench.traces.edits import edit_location as edit_location
    from context_bench.traces.figures import TraceComparison as TraceComparison, compare_traces as compare_traces
    from context_bench.traces.gold import (
        Gold as Gold,
        GoldSet as GoldSet,
        gold_of_row as gold_of_row,
        load_gold as load_gold,
    )
    from context_bench.traces.repositories import Repositories as Repositories, unified_prediction as unified_prediction
    from context_bench.traces.score_many import TraceResults as TraceResults, score_traces as score_traces
    from context_bench.traces.score_one import score_trace as score_trace
    from context_bench.traces.trace_rows import TraceRow as TraceRow
    from context_bench.transcripts.trace import Event as Event, Trace as Trace, dump_traces as dump_traces
    from context_bench.transcripts.traces import load_traces as load_traces

__all__ = [
    "Event",
    "Gold",
    "GoldSet",
    "Repositories",
    "Trace",
    "TraceComparison",
    "TraceResults",
    "TraceRow",
    "compare_traces",
    "dump_traces",
    "edit_location",
    "gold_of_row",
    "load_gold",
    "load_traces",
    "open_repo",
    "read_shell",
    "score_trace",
    "score_traces",
    "unified_prediction",
]

__getattr__, __dir__ = lazy(
    __name__,
    [
        "context_bench.traces.edits:edit_location",
        "context_bench.traces.gold:Gold",
        "context_bench.traces.gold:gold_of_row",
        "context_bench.transcripts.trace:Event",
        "context_bench.transcripts.trace:Trace",
        "context_bench.transcripts.trace:dump_traces",
        "context_bench.traces.trace_rows:TraceRow",
        "context_bench.traces.gold:GoldSet",
        "context_bench.traces.gold:load_gold",
        "context_bench.shell.repo:open_repo",
        "context_bench.shell:read_shell",
        "context_bench.transcripts.traces:load_traces",
        "context_bench.traces.figures:TraceComparison",
        "context_bench.traces.figures:compare_traces",
        "context_bench.traces.repositories:unified_prediction",
        "context_bench.traces.repositories:Repositories",
        "context_bench.traces.score_many:TraceResults",
        "context_bench.traces.score_many:score_traces",
        "context_bench.traces.score_one:score_trace",
    ],
)
