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
    from context_bench.compression.datasets import artifact_ledger as artifact_ledger
    from context_bench.compression.datasets import compression_points as compression_points
    from context_bench.compression.datasets import generate_probes as generate_probes
    from context_bench.compression.evaluate import evaluate_compression as evaluate_compression
    from context_bench.compression.evaluate import read_request as read_request
    from context_bench.compression.evaluate import rebuilt as rebuilt
    from context_bench.compression.evaluate import wire_violations as wire_violations
    from context_bench.compression.evaluators.probe_atoms import ProbeAtoms as ProbeAtoms
    from context_bench.compression.probe import CompressionPoint as CompressionPoint
    from context_bench.compression.probe import Probe as Probe
    from context_bench.compression.probe import ProbeAtom as ProbeAtom
    from context_bench.compression.session_rules.artifacts import resumed_at as resumed_at
    from context_bench.compression.strategies import PROFILES as PROFILES
    from context_bench.compression.strategies import StrategyRow as StrategyRow
    from context_bench.compression.strategies import simulate_strategies as simulate_strategies
    from context_bench.compression.systems.compressing import Compressing as Compressing
    from context_bench.compression.systems.sentence import SentenceReader as SentenceReader
    from context_bench.core.protocols import Compressed as Compressed
    from context_bench.core.protocols import Compressor as Compressor
    from context_bench.core.rubric import Aggregate as Aggregate
    from context_bench.core.rubric import Rubric as Rubric
    from context_bench.core.rubric import RubricReply as RubricReply
    from context_bench.core.rubric import aggregate_rubric as aggregate_rubric
    from context_bench.core.rubric import default_rubric as default_rubric
    from context_bench.core.rubric import parse_rubric_reply as parse_rubric_reply
    from context_bench.core.rubric import read_rubric as read_rubric
    from context_bench.datasets.sessions import load_session as load_session
    from context_bench.judge.rubric_judge import RubricJudge as RubricJudge
    from context_bench.stats.lift import Lift as Lift
    from context_bench.stats.lift import RetentionIndex as RetentionIndex
    from context_bench.stats.lift import lifts as lifts
    from context_bench.stats.lift import retention_index as retention_index
    from context_bench.transcripts import read_sessions as read_sessions
    from context_bench.transcripts.session import Session as Session
    from context_bench.wire.atoms import atoms as atoms
    from context_bench.wire.cache import CacheProfile as CacheProfile
    from context_bench.wire.cache import PrefixCache as PrefixCache
    from context_bench.wire.cache import break_even_turns as break_even_turns
    from context_bench.wire.cache import common_prefix as common_prefix
    from context_bench.wire.cache import prefix_cache as prefix_cache
    from context_bench.wire.cache import session_cache as session_cache
    from context_bench.wire.fidelity import Fidelity as Fidelity
    from context_bench.wire.fidelity import Fragments as Fragments
    from context_bench.wire.fidelity import Summary as Summary
    from context_bench.wire.fidelity import fidelity as fidelity
    from context_bench.wire.fidelity import fragments as fragments
    from context_bench.wire.fidelity import summarise as summarise
    from context_bench.wire.fidelity import word_damage as word_damage
    from context_bench.wire.violations import Violation as Violation
    from context_bench.wire.violations import compare_requests as compare_requests
    from context_bench.wire.violations import repeated_requests as repeated_requests
    from context_bench.wire.violations import silent_truncation as silent_truncation

_HOMES = [
    ".datasets:artifact_ledger",
    ".datasets:compression_points",
    ".datasets:generate_probes",
    ".evaluate:evaluate_compression",
    ".evaluate:read_request",
    ".evaluate:rebuilt",
    ".evaluate:wire_violations",
    ".evaluators.probe_atoms:ProbeAtoms",
    ".probe:CompressionPoint",
    ".probe:Probe",
    ".probe:ProbeAtom",
    ".session_rules.artifacts:resumed_at",
    ".strategies:PROFILES",
    ".strategies:StrategyRow",
    ".strategies:simulate_strategies",
    ".systems.compressing:Compressing",
    ".systems.sentence:SentenceReader",
    "context_bench.core.protocols:Compressed",
    "context_bench.core.protocols:Compressor",
    "context_bench.core.rubric:Aggregate",
    "context_bench.core.rubric:Rubric",
    "context_bench.core.rubric:RubricReply",
    "context_bench.core.rubric:aggregate_rubric",
    "context_bench.core.rubric:default_rubric",
    "context_bench.core.rubric:parse_rubric_reply",
    "context_bench.core.rubric:read_rubric",
    "context_bench.datasets.sessions:load_session",
    "context_bench.judge.rubric_judge:RubricJudge",
    "context_bench.stats.lift:Lift",
    "context_bench.stats.lift:RetentionIndex",
    "context_bench.stats.lift:lifts",
    "context_bench.stats.lift:retention_index",
    "context_bench.transcripts:read_sessions",
    "context_bench.transcripts.session:Session",
    "context_bench.wire.atoms:atoms",
    "context_bench.wire.cache:CacheProfile",
    "context_bench.wire.cache:PrefixCache",
    "context_bench.wire.cache:break_even_turns",
    "context_bench.wire.cache:common_prefix",
    "context_bench.wire.cache:prefix_cache",
    "context_bench.wire.cache:session_cache",
    "context_bench.wire.fidelity:Fidelity",
    "context_bench.wire.fidelity:Fragments",
    "context_bench.wire.fidelity:Summary",
    "context_bench.wire.fidelity:fidelity",
    "context_bench.wire.fidelity:fragments",
    "context_bench.wire.fidelity:summarise",
    "context_bench.wire.fidelity:word_damage",
    "context_bench.wire.violations:Violation",
    "context_bench.wire.violations:compare_requests",
    "context_bench.wire.violations:repeated_requests",
    "context_bench.wire.violations:silent_truncation",
]

__all__ = sorted(home.partition(":")[2] for home in _HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
