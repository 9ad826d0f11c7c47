"""The cost of a compressor: questions about the part that it took away, and measures that need no model.

```python
from context_bench.compression import evaluate_compression

result = evaluate_compression(["mask_observations", mine], ["bundled:sessions"])    # mine: compress(prefix, tail, state=, budget=, query=)
```

What it kept, what it broke on the wire, what it does to the prompt cache and the bill:

```python
from context_bench.compression import break_even_turns, fidelity, fragments, prefix_cache, wire_violations

fidelity(original, compressed).lost                     # atoms that are gone: kind, text, who said it, where
fragments(original, compressed).density
wire_violations(sent, received)                         # message lists, or whole bodies of the three wires
prefix_cache(prompts, output_tokens, profile)           # token id lists
break_even_turns(100_000, 10_000, 45_000, 0.1, 1.25)    # 10.5
simulate_strategies()                                   # six strategies on a session of 40 turns
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.compression.evaluate import PROFILES as PROFILES
    from context_bench.compression.evaluate import Aggregate as Aggregate
    from context_bench.compression.evaluate import CacheProfile as CacheProfile
    from context_bench.compression.evaluate import Compressed as Compressed
    from context_bench.compression.evaluate import Compressing as Compressing
    from context_bench.compression.evaluate import CompressionPoint as CompressionPoint
    from context_bench.compression.evaluate import Compressor as Compressor
    from context_bench.compression.evaluate import Fidelity as Fidelity
    from context_bench.compression.evaluate import Fragments as Fragments
    from context_bench.compression.evaluate import Lift as Lift
    from context_bench.compression.evaluate import PrefixCache as PrefixCache
    from context_bench.compression.evaluate import Probe as Probe
    from context_bench.compression.evaluate import ProbeAtom as ProbeAtom
    from context_bench.compression.evaluate import ProbeAtoms as ProbeAtoms
    from context_bench.compression.evaluate import RetentionIndex as RetentionIndex
    from context_bench.compression.evaluate import Rubric as Rubric
    from context_bench.compression.evaluate import RubricJudge as RubricJudge
    from context_bench.compression.evaluate import RubricReply as RubricReply
    from context_bench.compression.evaluate import SentenceReader as SentenceReader
    from context_bench.compression.evaluate import Session as Session
    from context_bench.compression.evaluate import StrategyRow as StrategyRow
    from context_bench.compression.evaluate import Summary as Summary
    from context_bench.compression.evaluate import Violation as Violation
    from context_bench.compression.evaluate import aggregate_rubric as aggregate_rubric
    from context_bench.compression.evaluate import artifact_ledger as artifact_ledger
    from context_bench.compression.evaluate import atoms as atoms
    from context_bench.compression.evaluate import break_even_turns as break_even_turns
    from context_bench.compression.evaluate import common_prefix as common_prefix
    from context_bench.compression.evaluate import compare_requests as compare_requests
    from context_bench.compression.evaluate import compression_points as compression_points
    from context_bench.compression.evaluate import default_rubric as default_rubric
    from context_bench.compression.evaluate import evaluate_compression as evaluate_compression
    from context_bench.compression.evaluate import fidelity as fidelity
    from context_bench.compression.evaluate import fragments as fragments
    from context_bench.compression.evaluate import generate_probes as generate_probes
    from context_bench.compression.evaluate import lifts as lifts
    from context_bench.compression.evaluate import load_session as load_session
    from context_bench.compression.evaluate import parse_rubric_reply as parse_rubric_reply
    from context_bench.compression.evaluate import prefix_cache as prefix_cache
    from context_bench.compression.evaluate import read_request as read_request
    from context_bench.compression.evaluate import read_rubric as read_rubric
    from context_bench.compression.evaluate import read_sessions as read_sessions
    from context_bench.compression.evaluate import rebuilt as rebuilt
    from context_bench.compression.evaluate import repeated_requests as repeated_requests
    from context_bench.compression.evaluate import resumed_at as resumed_at
    from context_bench.compression.evaluate import retention_index as retention_index
    from context_bench.compression.evaluate import session_cache as session_cache
    from context_bench.compression.evaluate import silent_truncation as silent_truncation
    from context_bench.compression.evaluate import simulate_strategies as simulate_strategies
    from context_bench.compression.evaluate import summarise as summarise
    from context_bench.compression.evaluate import wire_violations as wire_violations
    from context_bench.compression.evaluate import word_damage as word_damage

__all__ = [
    "PROFILES",
    "Aggregate",
    "CacheProfile",
    "Compressed",
    "Compressing",
    "CompressionPoint",
    "Compressor",
    "Fidelity",
    "Fragments",
    "Lift",
    "PrefixCache",
    "Probe",
    "ProbeAtom",
    "ProbeAtoms",
    "RetentionIndex",
    "Rubric",
    "RubricJudge",
    "RubricReply",
    "SentenceReader",
    "Session",
    "StrategyRow",
    "Summary",
    "Violation",
    "aggregate_rubric",
    "artifact_ledger",
    "atoms",
    "break_even_turns",
    "common_prefix",
    "compare_requests",
    "compression_points",
    "default_rubric",
    "evaluate_compression",
    "fidelity",
    "fragments",
    "generate_probes",
    "lifts",
    "load_session",
    "parse_rubric_reply",
    "prefix_cache",
    "read_request",
    "read_rubric",
    "read_sessions",
    "rebuilt",
    "repeated_requests",
    "resumed_at",
    "retention_index",
    "session_cache",
    "silent_truncation",
    "simulate_strategies",
    "summarise",
    "wire_violations",
    "word_damage",
]

__getattr__, __dir__ = lazy(__name__, [f".evaluate:{name}" for name in __all__])
