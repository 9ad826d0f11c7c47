"""Other tools' F1 and exact match, under names that say whose."""

from __future__ import annotations

from context_bench.core.records import Example
from context_bench.evaluators.answer_quality import golds
from context_bench.memory.cortex import containment as cortex

EVALUATORS = {"answer_variants": "AnswerVariants"}
MEASURES = {"f1_cortex f1_mem0_set contains_text": {"unit": "score", "better": "higher", "place": "quality"}}

_MEM0_MARKS = str.maketrans(dict.fromkeys(".,!?", " "))


class AnswerVariants:
    """One answer by three rules, each in [0, 1], to compare with numbers that others published; the best gold counts.

    `f1_cortex`: tokens are runs of a–z, 0–9 and apostrophes, as often as they occur (cortex's harness). `f1_mem0_set`:
    words between spaces after . , ! ? are taken out, each once (mem0's evaluation). `contains_text`: the gold occurs in
    the response as characters, even inside a word (cortex's "exact match"). Beside them `answer` gives `f1` (SQuAD's
    rules) and `contains` (whole words), and `locomo` gives `locomo_f1`.
    """

    name = "answer_variants"
    version = "1"
    needs = ("answer",)
    fields = ("f1_cortex", "f1_mem0_set", "contains_text")

    def applies(self, example: Example, output: Example) -> bool:
        """There is a gold answer, and an answer was given."""
        return bool(golds(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = golds(original)
        if not wanted:
            return {}
        response = processed.get("response")
        said = "" if response is None else str(response)
        return {
            "f1_cortex": max(cortex.token_f1(said, gold) for gold in wanted),
            "f1_mem0_set": max(mem0_set_f1(said, gold) for gold in wanted),
            "contains_text": float(any(cortex.exact_match(said, gold) for gold in wanted)),
        }


def mem0_set_f1(prediction: str, gold: str) -> float:
    """F1 of two sets of words; 0 if either is empty. Source: `evaluation/metrics/utils.py` of mem0ai/mem0."""
    found, wanted = (set(text.lower().translate(_MEM0_MARKS).split()) for text in (prediction, gold))
    shared = len(found & wanted)
    return 2 * shared / (len(found) + len(wanted)) if shared else 0.0
