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
"""  # noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.compression.cache_strategies import PROFILES, StrategyRow, simulate_strategies
    from context_bench.compression.datasets import artifact_ledger, compression_points, generate_probes
    from context_bench.compression.evaluate import evaluate_compression, read_request, rebuilt, wire_violations
    from context_bench.compression.evaluators.probe_atoms import ProbeAtoms
    from context_bench.compression.probes import CompressionPoint, Probe, ProbeAtom
    from context_bench.compression.session_rules.artifacts import resumed_at
    from context_bench.compression.systems.compressing import Compressing
    from context_bench.compression.systems.sentence import SentenceReader
    from context_bench.core.protocols import Compressed, Compressor
    from context_bench.core.rubric import (
        Aggregate,
        Rubric,
        RubricReply,
        aggregate_rubric,
        default_rubric,
        parse_rubric_reply,
        read_rubric,
    )
    from context_bench.datasets.sessions import load_session
    from context_bench.judge.rubric_judge import RubricJudge
    from context_bench.stats.lift import Lift, RetentionIndex, lifts, retention_index
    from context_bench.transcripts import read_sessions
    from context_bench.transcripts.session import Session
    from context_bench.wire.atoms import atoms
    from context_bench.wire.cache import (
        CacheProfile,
        PrefixCache,
        break_even_turns,
        common_prefix,
        prefix_cache,
        session_cache,
    )
    from context_bench.wire.fidelity import Fidelity, Fragments, Summary, fidelity, fragments, summarise, word_damage
    from context_bench.wire.violations import Violation, compare_requests, repeated_requests, silent_truncation

#: Module → public names that are found there.
_HOMES = {
    ".datasets": "artifact_ledger compression_points generate_probes",
    ".evaluate": "evaluate_compression read_request rebuilt wire_violations",
    ".evaluators.probe_atoms": "ProbeAtoms",
    ".probes": "CompressionPoint Probe ProbeAtom",
    ".session_rules.artifacts": "resumed_at",
    ".cache_strategies": "PROFILES StrategyRow simulate_strategies",
    ".systems.compressing": "Compressing",
    ".systems.sentence": "SentenceReader",
    "context_bench.core.protocols": "Compressed Compressor",
    "context_bench.core.rubric": (
        "Aggregate Rubric RubricReply aggregate_rubric default_rubric parse_rubric_reply read_rubric"
    ),
    "context_bench.datasets.sessions": "load_session",
    "context_bench.judge.rubric_judge": "RubricJudge",
    "context_bench.stats.lift": "Lift RetentionIndex lifts retention_index",
    "context_bench.transcripts": "read_sessions",
    "context_bench.transcripts.session": "Session",
    "context_bench.wire.atoms": "atoms",
    "context_bench.wire.cache": "CacheProfile PrefixCache break_even_turns common_prefix prefix_cache session_cache",
    "context_bench.wire.fidelity": "Fidelity Fragments Summary fidelity fragments summarise word_damage",
    "context_bench.wire.violations": "Violation compare_requests repeated_requests silent_truncation",
}

__all__ = [
    "Aggregate",
    "CacheProfile",
    "Compressed",
    "Compressing",
    "CompressionPoint",
    "Compressor",
    "Fidelity",
    "Fragments",
    "Lift",
    "PROFILES",
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

__getattr__, __dir__ = lazy(__name__, [f"{home}:{name}" for home, names in _HOMES.items() for name in names.split()])
