"""How much of the gold an agent read, how much of what it read was gold, when, and how often again: at files, symbols, bytes and lines.

```
coverage   = |gold ∩ read| / |gold|          precision = |gold ∩ read| / |read|
AUC        = mean over steps of the coverage reached by then
redundancy = 1 − |everything read| / Σ over steps |what the step read|
```

Two ways to score. `strict` is ours: nothing to compare is `None`, never 1; ranges end where files end; paths that leave the repository are
nobody's; an agent that read nothing is scored. `contextbench-v1` gives the figures of the original evaluator, faults included. What a
definition is, is the policy's profile of symbols (`logs.symbols`): `strict-full` is `strict` with the kinds that the original leaves out.

What the original's documents call a block is a **symbol** in its paper and tables, and a span (bytes) in its tool; both are here under
their own names. A symbol is a definition of the syntax tree; every enclosing definition counts too.

`selecting` says what a run looked at, `covers` makes sets of it (`upstream`: as the original does), `curves` follows them through the run,
`scoring` compares them with the gold.
"""

from context_bench.traces.coverage.scoring import score
from context_bench.traces.coverage.selecting import (
    LEVELS,
    POLICIES,
    RETRIEVAL,
    STRICT,
    UPSTREAM,
    Definition,
    Definitions,
    Files,
    Level,
    Policy,
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
    "Files",
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
