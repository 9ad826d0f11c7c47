"""Probes graded without a model: the facts that an answer names, and those it should not."""

from __future__ import annotations

from context_bench.compression.atom_grade import grade
from context_bench.compression.probes.probe import atom_from_json
from context_bench.core.records import Example


class ProbeAtoms:
    """`probe_score` in [0, 1] (see `core.atom_grade`), `probe_rating` the same from 0 to 5, `probe_recall` the share of the facts named,
    `probe_contradiction` 1 where a banned one is. An offline grader: it knows words, not meaning.
    """

    name = "probe_atoms"
    version = "1"
    needs = ("atoms",)
    fields = ("probe_score", "probe_rating", "probe_recall", "probe_contradiction")

    def applies(self, example: Example, output: Example) -> bool:
        """To probes that were answered."""
        return bool(example.get("atoms")) and isinstance(output.get("response"), str)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The answer's grade; `{}` for what is no answered probe."""
        if not self.applies(original, processed):
            return {}
        atoms = [atom_from_json(atom) for atom in original["atoms"]]
        truth, question = str(original.get("answer") or ""), str(original.get("question") or "")
        found = grade(str(processed["response"]), atoms, truth=truth, question=question)
        named = len(found.found) + len(found.missed)
        return {
            "probe_score": found.score,
            "probe_rating": found.rating,
            "probe_recall": len(found.found) / named if named else 0.0,
            "probe_contradiction": float(bool(found.banned)),
        }
