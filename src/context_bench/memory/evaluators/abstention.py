"""Score abstention: a question that the conversation cannot answer should be declined, and no other.

`declines` recognises an answer that says that the information is missing.
"""

from __future__ import annotations

import re

from context_bench.core.records import Example
from context_bench.core.text import normalise

EVALUATORS = {"abstention": "Abstention"}
MEASURES = {
    "abstained": {"unit": "share", "place": "memory"},
    "abstention_recall": {"unit": "share", "better": "higher", "place": "memory"},
    "needless_abstention": {"unit": "share", "better": "lower", "place": "memory"},
}

_OPENING = re.compile(
    r"(?:(?:im |i am )?sorry(?: but)? |unfortunately |answer (?:is )?|based on [\w ]{0,60}? )?"
    r"(?:not (?:mentioned|specified|stated|provided|known|available|answerable|enough information|in "
    r"memories|sure)|unknown|unanswerable|"
    r"no (?:information|answer|mention|memory|memories|record)|insufficient information|there (?:is|was) (?:no|not "
    r"enough) "
    r"(?:information|mention|record|memory)|i (?:do not|dont|did not|didnt) (?:know|have|see|find|recall|remember)|i "
    r"?a?m not sure|"
    r"(?:it )?(?:cannot|can not|cant|could not|couldnt) (?:be )?(?:determined?|answer(?:ed)?|known|found?|say|tell))\b"
)
_ANYWHERE = re.compile(
    r"\b(?:no information available|not mentioned in|cannot be (?:determined|answered|known)|not enough information|"
    r"(?:memories|conversations?|context|information|user|history|provided text) (?:do|does|did)(?: not|nt) "
    r"(?:mention|say|contain|hold|specify|state|provide|include|indicate|tell|have))\b"
)


def declines(answer: str) -> bool:
    """True if the answer opens by saying that it is not known, or says in its first sentence that what was given does
    not tell.

    English phrases; an empty answer is no refusal but a failure. A refusal after which an answer is given all the same
    counts as one.
    """
    if _OPENING.match(normalise(answer)):
        return True
    return bool(_ANYWHERE.search(normalise(re.split(r"(?<=[.!?])\s", answer.strip(), maxsplit=1)[0])))


class Abstention:
    """Of examples that say whether they are `answerable`: `abstained` (1.0 or 0.0) for all, `abstention_recall` the
    same for unanswerable questions only (their mean is the share rightly declined), `needless_abstention` for
    answerable ones only (1 − coverage).

    An answer declines if the system says so (`abstained`) or its words do (`declines`). The metric `abstention` makes
    precision, F1, coverage and the accuracy of what was answered of these, so that neither never nor always declining
    looks good.
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
        return {
            "abstained": abstained,
            "needless_abstention" if original["answerable"] else "abstention_recall": abstained,
        }
