"""What arrived of the evidence: the pieces of the context that hold the answer, word for word. No model is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.records import Example
from context_bench.wire.fidelity import words

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


def evidence_of(example: Mapping[str, Any]) -> list[str]:
    """The pieces of an example's context that hold its answer: `evidence`, as a text, a list of texts, or of places
    `[from, to]` in the context. Pieces that the context does not hold (ids, notes) are no evidence of it.
    """
    context, given = example.get("context"), example.get("evidence")
    if not isinstance(context, str) or not given:
        return []
    pieces = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    held = in_words(context)
    texts = [_piece(piece, context) for piece in pieces]
    return [text for text in texts if (own := in_words(text)).strip() and own in held]


def _piece(piece: Any, context: str) -> str:
    if isinstance(piece, str):
        return piece
    numbers = isinstance(piece, list | tuple) and len(piece) == 2 and all(type(number) is int for number in piece)
    return context[piece[0] : piece[1]] if numbers and 0 <= piece[0] <= piece[1] else ""


def in_words(text: str) -> str:
    """The words of a text in lower case, with a blank before and after each."""
    return f" {' '.join(word for _, word in words(text))} "
