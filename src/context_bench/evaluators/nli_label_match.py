"""Whether a reply names the gold class of an inference."""

from __future__ import annotations

from context_bench.core.records import Example
from context_bench.evaluators._labels import is_label, label_of, read_label
from context_bench.evaluators.answer_quality import golds


class NLILabelMatch:
    """`nli_accuracy`: 1 if the class that the reply decides for is the class of a gold label, else 0.

    Labels of different schemes that mean the same are equal (SUPPORTS, Entailment, true, yes …); how a reply is read is told in `_labels`.
    Called directly, a missing gold label scores 1.0 and an empty response 0.0, as documented; in a run an example whose answer is no label
    of any known scheme is not scored.
    """

    name = "nli_label_match"
    version = "1"
    quick = True
    needs = ("answer",)
    fields = ("nli_accuracy",)

    def applies(self, example: Example, output: Example) -> bool:
        """The gold answer is a label, and an answer was given."""
        return any(map(is_label, golds(example))) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = {label_of(gold) for gold in golds(original)}
        if not wanted:
            return {"nli_accuracy": 1.0}
        response = processed.get("response")
        reply = "" if response is None else str(response)
        return {"nli_accuracy": float(bool(reply.strip()) and (read_label(reply) in wanted or label_of(reply) in wanted))}
