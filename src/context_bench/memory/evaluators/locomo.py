"""LoCoMo's official score of an answer."""

from __future__ import annotations

from context_bench.core.records import Example
from context_bench.evaluators.answer_quality import golds
from context_bench.memory.locomo import answer_score, category_of


class LocomoOfficial:
    """`locomo_f1` in [0, 1], as LoCoMo's published scorer gives it for the example's `category` (1 to 5, or by its name in `qa_type`):
    definitions in `core.locomo`. With several gold answers the first counts, as there. An adversarial question needs no gold.

    It says which answers match in words after stemming, and takes "not mentioned" anywhere in a reply for a refusal; its numbers compare
    with published ones, `f1` of `answer` is the stricter one. Not applicable without a category of LoCoMo's.
    """

    name = "locomo"
    version = "1"
    needs = ("category",)
    fields = ("locomo_f1",)

    def applies(self, example: Example, output: Example) -> bool:
        """The category is known, an answer was given, and there is a gold answer unless the question is adversarial."""
        category = _category(example)
        return category is not None and "response" in output and (category == 5 or bool(golds(example)))

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        category, wanted = _category(original), golds(original)
        if category is None or not (wanted or category == 5):
            return {}
        response = processed.get("response")
        return {"locomo_f1": answer_score(category, "" if response is None else str(response), wanted[0] if wanted else "")}


def _category(example: Example) -> int | None:
    told = category_of(example.get("category"))
    return told if told is not None else category_of(example.get("qa_type"))
