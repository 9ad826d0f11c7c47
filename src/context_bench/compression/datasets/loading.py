"""From recorded sessions, as they are named on a command line, to the probes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.compression.datasets.generating import generate_probes, visible_share
from context_bench.compression.datasets.points import compression_points
from context_bench.compression.datasets.written import ModelProbes
from context_bench.compression.probes.example import DATASET, example_of, packed
from context_bench.compression.probes.probe import CompressionPoint, Probe, ProbeType
from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text
from context_bench.core.records import Example
from context_bench.datasets.recorded import RecordedSessions
from context_bench.transcripts.session import Session

#: A probe of whose facts more than this share is still to be seen without the prefix shows nothing.
KNOWN = 0.4


@dataclass(slots=True)
class ProbeSet:
    """Probes of sessions, ready to be run: has what `LoadedDataset` has. Made at once, so that nothing to ask is said at once.

    `drift`: the points of a session are compressed one after the other, and the probes of the first are asked after each. `replicates`:
    so many compressions of each point. `only`: keep probes with these ids (those a first pass found answerable). `writer`: a model that
    writes probes besides those of the rules, or (`structured` false) in their place.
    """

    sources: RecordedSessions
    points: str = "fraction:0.75"
    window: int | None = None
    most: Mapping[ProbeType, int] | None = None
    types: Sequence[str] = ()
    drift: bool = False
    replicates: int = 1
    only: frozenset[str] | None = None
    structured: bool = True
    writer: ModelProbes | None = None
    evaluators: list[str] = field(default_factory=lambda: ["probe_atoms"])
    has_context: bool = True
    _examples: list[Example] = field(init=False, default_factory=list)
    _counts: Counter[str] = field(init=False, default_factory=Counter)
    _types: Counter[str] = field(init=False, default_factory=Counter)
    _hashes: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, session in self.sources.sessions():
            self._add(name, session)
        if not self._examples:
            raise BadInput(
                f"no probes in {self.sources.name} at {self.points}: {self._counts['sessions']} sessions, {self._counts['points']} "
                "compression points; try other --points, or sessions in which files, errors or decisions occur"
            )

    @property
    def name(self) -> str:
        """The sessions as they were named."""
        return self.sources.name

    base = name

    def examples(self) -> Iterator[Example]:
        """One example per probe, compression and cycle; all of a group stand together."""
        yield from self._examples

    def manifest(self) -> dict[str, Any]:
        """What was asked about what, and what was left out, by reason."""
        return {
            "name": self.name,
            "dataset": DATASET,
            "evaluators": self.evaluators,
            "has_context": True,
            "points": self.points,
            "window": self.window,
            "drift": self.drift,
            "replicates": self.replicates,
            "made_by": [*(["structured"] if self.structured else []), *([self.writer.fingerprint()] if self.writer else [])],
            "written": dict(self.writer.counts) if self.writer else {},
            "counts": dict(self._counts),
            "types": dict(self._types),
            "sessions": self._hashes,
        }

    def _add(self, name: str, session: Session) -> None:
        self._counts["sessions"] += 1
        text = packed(session.messages)
        self._hashes[name] = hash_text(text, 12)
        found = compression_points(session, self.points, window=self.window)
        self._counts["points"] += len(found)
        cwd = session.meta.get("cwd")
        if self.drift and found:
            probes = self._probes(name, found[0], cwd)
            for last in range(1, len(found) + 1):
                self._put(name, text, probes, [point.index for point in found[:last]])
            return
        for point in found:
            self._put(name, text, self._probes(name, point, cwd), [point.index])

    def _probes(self, name: str, point: CompressionPoint, cwd: str | None) -> list[Probe]:
        made = generate_probes(point, cwd=cwd, most=dict(self.most) if self.most else None) if self.structured else []
        made += self.writer(point) if self.writer else []
        wanted = [probe for probe in made if not self.types or probe.type in self.types]
        kept = [probe for probe, share in zip(wanted, visible_share(wanted, point), strict=True) if share <= KNOWN]
        self._counts["still visible, left out"] += len(wanted) - len(kept)
        self._counts["points without a probe"] += not kept
        named = [
            Probe(f"{name}@{point.index}#{p.id.rsplit('#', 1)[-1]}", p.type, p.question, p.ground_truth, p.atoms, p.made_by) for p in kept
        ]
        chosen = [probe for probe in named if self.only is None or probe.id in self.only]
        self._counts["not answerable, left out"] += len(named) - len(chosen)
        return chosen

    def _put(self, name: str, text: str, probes: Sequence[Probe], points: list[int]) -> None:
        place = "+".join(map(str, points))
        for replicate in range(1, self.replicates + 1):
            group = f"{name}@{place}" + (f"/{replicate}" if self.replicates > 1 else "")
            for probe in probes:
                example = example_of(probe, session=text, group=group, cluster=name, points=points)
                self._examples.append(example if replicate == 1 else {**example, "id": f"{example['id']}/{replicate}"})
                self._types[probe.type] += 1
        self._counts["probes"] = len(self._examples)
