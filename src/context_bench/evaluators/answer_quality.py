"""The answer against the gold answers, and the share of the evidence that arrived: of the pieces of a context that hold
the answer.
"""

from __future__ import annotations

from typing import Any

from context_bench.core.records import Example
from context_bench.core.text import best_match
from context_bench.wire.words import evidence_of, in_words

EVALUATORS = {"answer": "AnswerQuality", "evidence": "EvidenceArrived"}
MEASURES = {
    "f1 exact_match recall contains": {"unit": "score", "better": "higher", "place": "quality"},
    "evidence_all": {"title": "all evidence arrived", "unit": "score", "better": "higher", "place": "quality"},
    "evidence_share": {"title": "evidence arrived", "unit": "score", "better": "higher", "place": "quality"},
}


class AnswerQuality:
    """`f1`, `exact_match`, `recall`, `contains` of the response against the gold answer, each in [0, 1], by SQuAD's
    rules (`core.text`).

    Gold is `answer` (a text or a list) together with `answers`; with several the best match counts. Called directly, a
    missing gold answer scores 1.0 everywhere and an empty response 0.0, as documented; in a run an example without gold
    is not scored at all.
    """

    name = "answer_quality"
    version = "1"
    quick = True
    needs = ("answer",)
    fields = ("f1", "exact_match", "recall", "contains")

    def applies(self, example: Example, output: Example) -> bool:
        """There is a gold answer, and an answer was given (a system may have returned only a context)."""
        return bool(golds(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = golds(original)
        if not wanted:
            return dict.fromkeys(("f1", "exact_match", "recall", "contains"), 1.0)
        response = processed.get("response")
        return best_match("" if response is None else str(response), wanted)._asdict()


def golds(example: Example) -> list[str]:
    """All non-empty gold answers of an example, each once. Understands texts, numbers, lists of them, and SQuAD's
    `{"text": […]}`.
    """
    return list(
        dict.fromkeys(text for key in ("answer", "answers") for text in _texts(example.get(key)) if text.strip())
    )


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return _texts(value.get("text"))
    return [str(value)]


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
