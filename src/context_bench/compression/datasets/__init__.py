"""Probes of compressed sessions: where a session is cut, and what can be asked about the part that was taken away.

```python
for point in compression_points(session, "fraction:0.75"):
    for probe in generate_probes(point):
        print(probe.type, probe.question, [atom.text for atom in probe.atoms])
```

Everything is found by rules, or quoted word for word by a model (`ModelProbes`), so that each answer can be checked and
its place be shown. What is not there is not asked.
"""

from __future__ import annotations

from context_bench.compression.datasets.generating import compression_points, generate_probes, visible_share
from context_bench.compression.datasets.probe_set import ModelProbes, ProbeSet
from context_bench.compression.session_rules.artifacts import ArtifactLedger, artifact_ledger

__all__ = [
    "ArtifactLedger",
    "ModelProbes",
    "ProbeSet",
    "artifact_ledger",
    "compression_points",
    "generate_probes",
    "visible_share",
]
