"""Coverage and precision of an agent's reads against gold, over the run, at the levels of files, symbols, bytes and
lines.

```
coverage   = |gold ∩ read| / |gold|          precision = |gold ∩ read| / |read|
AUC        = mean over steps of the coverage reached by then
redundancy = 1 − |everything read| / Σ over steps |what the step read|
```

Two ways to score. `strict` is ours: nothing to compare is `None`, never 1; ranges end where files end; paths that leave
the repository are nobody's; an agent that read nothing is scored. `contextbench-v1` gives the figures of the original
evaluator, faults included. The policy's profile of symbols defines a definition (`traces.symbols`): `strict-full` is
`strict` with the kinds that the original leaves out.

What the original's documents call a block is a **symbol** in its paper and tables, and a span (bytes) in its tool; both
are here under their own names. A symbol is a definition of the syntax tree; every enclosing definition counts too.

`selection` holds the places that a run looked at and the records of the figures. `covers` makes sets of them, as we or
the original do. `coverage_score` compares them with the gold and follows them through the run.
"""

from context_bench.traces.coverage.coverage_score import score
from context_bench.traces.coverage.selection import (
    LEVELS,
    POLICIES,
    RETRIEVAL,
    STRICT,
    UPSTREAM,
    Definition,
    Definitions,
    Level,
    Policy,
    RepositoryFiles,
    Resolver,
    Score,
    Selection,
    Symbol,
    harmonic,
    prediction,
    selections,
    step_statistics,
)

__all__ = [
    "LEVELS",
    "POLICIES",
    "RETRIEVAL",
    "STRICT",
    "UPSTREAM",
    "Definition",
    "Definitions",
    "RepositoryFiles",
    "Level",
    "Policy",
    "Resolver",
    "Score",
    "Selection",
    "Symbol",
    "harmonic",
    "prediction",
    "score",
    "selections",
    "step_statistics",
]
