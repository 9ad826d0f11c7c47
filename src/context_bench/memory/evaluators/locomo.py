"""LoCoMo's official score of an answer, number for number.

F1 of Porter stems after LoCoMo's normalisation, which also drops commas and the word "and". The rule depends on the
category of the question (numbers of the published file). Source: `task_eval/evaluation.py` of snap-research/locomo.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.core.text import stem
from context_bench.evaluators.answer_quality import golds

EVALUATORS = {"locomo": "LocomoOfficial"}
MEASURES = {"locomo_f1": {"unit": "score", "better": "higher", "place": "quality"}}

#: Category numbers of the published file and what they mean, by the paper's counts and the scorer's comments; many
#: harnesses differ.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_REFUSALS = ("no information available", "not mentioned")
_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def category_of(value: Any) -> int | None:
    """A category's number from the number, its digits or its name; `None` for anything else."""
    text = str(value).strip().lower()
    names = {name: number for number, name in CATEGORIES.items()} | {str(number): number for number in CATEGORIES}
    return names.get(text)


def normalise(text: str) -> str:
    """Lower case; punctuation of ASCII, articles and "and" dropped; single spaces."""
    return " ".join(_DROPPED.sub(" ", text.lower().translate(_MARKS)).split())


def exact_match(prediction: str, gold: str) -> bool:
    """The same set of words."""
    return set(normalise(prediction).split()) == set(normalise(gold).split())


def f1_single(prediction: str, gold: str) -> float:
    """F1 of the stems of both, each as often as it occurs; 0 if either has none."""
    found, wanted = _stems(prediction), _stems(gold)
    shared = (found & wanted).total()
    return 2 * shared / (found.total() + wanted.total()) if shared else 0.0


def f1_multi(prediction: str, gold: str) -> float:
    """Gold and prediction are lists with commas: for every gold part the best F1 of any predicted part, averaged."""
    parts = prediction.split(",")
    best = [max(f1_single(part, wanted) for part in parts) for wanted in gold.split(",")]
    return sum(best) / len(best)


def answer_score(category: int, prediction: str, gold: str) -> float:
    """The official scorer's value for an answer: category 1 `f1_multi`; 2 and 4 `f1_single`; 3 `f1_single` with what
    stands before the gold's first semicolon; 5 one point for the words "no information available" or "not mentioned",
    whatever else is said.
    """
    if category not in CATEGORIES:
        raise BadInput(f"LoCoMo's categories are 1 to 5, not {category!r}")
    if category == 5:
        return float(any(words in prediction.lower() for words in _REFUSALS))
    if category == 1:
        return f1_multi(prediction, gold)
    return f1_single(prediction, gold.partition(";")[0].strip() if category == 3 else gold)


def _stems(text: str) -> Counter[str]:
    return Counter(map(stem, normalise(text).split()))


class LocomoOfficial:
    """`locomo_f1` in [0, 1], as LoCoMo's published scorer gives it for the example's `category` (1 to 5, or by its name
    in `qa_type`): definitions in this module. With several gold answers the first counts, as there. An adversarial
    question needs no gold.

    It says which answers match in words after stemming, and takes "not mentioned" anywhere in a reply for a refusal;
    its numbers compare with published ones, `f1` of `answer` is the stricter one. Not applicable without a category of
    LoCoMo's.
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
        return {
            "locomo_f1": answer_score(category, "" if response is None else str(response), wanted[0] if wanted else "")
        }


def _category(example: Example) -> int | None:
    told = category_of(example.get("category"))
    return told if told is not None else category_of(example.get("qa_type"))
