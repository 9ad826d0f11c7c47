"""The share of the evidence that arrived: of the pieces of a context that hold the answer. No model is asked."""

from __future__ import annotations

from context_bench.core.records import Example
from context_bench.wire.fidelity import evidence_of, in_words

EVALUATORS = {"evidence": "EvidenceArrived"}
MEASURES = {
    "evidence_all": {"title": "all evidence arrived", "unit": "score", "better": "higher", "place": "quality"},
    "evidence_share": {"title": "evidence arrived", "unit": "score", "better": "higher", "place": "quality"},
}


class EvidenceArrived:
    """`evidence_all`: 1 if all pieces of evidence arrived, else 0; `evidence_share`: the share that did.

    A piece arrived if its words stand in one text that went on to the model, one after the other; case, punctuation and
    line breaks are left out, and a paraphrase counts as lost. What arrived is what the tap saw, else the context that
    the system gave back; where neither is known there is no score.
    """

    name = "evidence"
    version = "1"
    quick = True
    fields = ("evidence_all", "evidence_share")
    reads_arrived = True

    def applies(self, example: Example, output: Example) -> bool:
        """The example carries evidence, and what arrived of its context is known."""
        return isinstance(output.get("arrived"), list) and bool(evidence_of(example))

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        texts = [in_words(text) for text in processed["arrived"]]
        found = [any(in_words(piece) in text for text in texts) for piece in evidence_of(original)]
        return {"evidence_all": float(all(found)), "evidence_share": sum(found) / len(found)}
