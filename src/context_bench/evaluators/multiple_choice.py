"""Which of the offered options a reply chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.records import Example
from context_bench.evaluators._letters import LETTERS, chosen_letter


class MultipleChoiceAccuracy:
    """`mc_accuracy`: 1 if the reply chooses the option `correct_letter`, else 0.

    How a reply is read is told in `_letters`: the last statement wins; a reply that chooses two options, or a letter that no option has,
    is wrong. With `choices` (a list, letter → words, or `{"text": […]}`) the words of an option choose it too.
    Without `correct_letter` a direct call scores 0.0, as documented, and a run nothing.
    """

    name = "multiple_choice"
    version = "1"
    quick = True
    needs = ("correct_letter",)
    fields = ("mc_accuracy",)

    def applies(self, example: Example, output: Example) -> bool:
        """The right letter is known, and an answer was given."""
        return bool(_gold(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        gold, response = _gold(original), processed.get("response")
        if not gold or response is None:
            return {"mc_accuracy": 0.0}
        return {"mc_accuracy": float(chosen_letter(str(response), options(original.get("choices"))) == gold)}


def _gold(example: Example) -> str:
    letter = example.get("correct_letter")
    return "" if letter is None else str(letter).strip().upper()


def options(choices: Any) -> dict[str, str] | None:
    """Letter → words of each option, at most ten; `None` if `choices` is not understood."""
    if isinstance(choices, Mapping):
        if isinstance(choices.get("text"), list | tuple):
            return options(choices["text"])
        lettered = {str(letter).strip().upper(): str(words) for letter, words in choices.items()}
        return lettered if lettered and lettered.keys() <= set(LETTERS) else None
    if isinstance(choices, list | tuple) and choices:
        return {letter: str(words) for letter, words in zip(LETTERS, choices, strict=False)}
    return None
