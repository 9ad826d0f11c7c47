"""Whether it was right to answer at all."""

from __future__ import annotations

from context_bench.core.records import Example
from context_bench.memory.abstention import declines


class Abstention:
    """Of examples that say whether they are `answerable`: `abstained` (1.0 or 0.0) for all, `abstention_recall` the same for unanswerable
    questions only (their mean is the share rightly declined), `needless_abstention` for answerable ones only (1 − coverage).

    An answer declines if the system says so (`abstained`) or its words do (`core.declining`). The metric `abstention` makes precision, F1,
    coverage and the accuracy of what was answered of these, so that neither never nor always declining looks good.
    """

    name = "abstention"
    version = "1"
    needs = ("answerable",)
    fields = ("abstained", "abstention_recall", "needless_abstention")

    def applies(self, example: Example, output: Example) -> bool:
        """It is known whether the question can be answered, and a reply was given."""
        return isinstance(example.get("answerable"), bool) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        if not self.applies(original, processed):
            return {}
        abstained = float(processed.get("abstained") is True or declines(str(processed.get("response") or "")))
        return {"abstained": abstained, "needless_abstention" if original["answerable"] else "abstention_recall": abstained}
