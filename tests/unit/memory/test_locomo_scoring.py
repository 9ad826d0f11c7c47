"""LoCoMo's scoring of answers against what its own code gave, and stems against NLTK's."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.text import stem
from context_bench.memory.evaluators import published_scores as locomo

_VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))[
    "official_locomo_scoring"
]
_STEMS = json.loads((Path(__file__).parent / "recorded_stems.json").read_text("utf-8"))["stems"]


@pytest.mark.parametrize("case", _VECTORS["pairs"], ids=lambda case: case["prediction"])
def test_pairs(case: dict) -> None:
    prediction, gold = case["prediction"], case["ground_truth"]
    assert locomo.f1_single(prediction, gold) == pytest.approx(case["f1_single"], abs=1e-12)
    assert locomo.f1_multi(prediction, gold) == pytest.approx(case["f1_multi"], abs=1e-12)
    assert locomo.exact_match(prediction, gold) is case["exact_match"]
    assert locomo.normalise(prediction) == case["normalized_prediction"]
    assert locomo.normalise(gold) == case["normalized_ground_truth"]


@pytest.mark.parametrize(
    ("question", "expected"), list(zip(_VECTORS["file"]["qa"], _VECTORS["file"]["scores"], strict=True))
)
def test_by_category(question: dict, expected: float) -> None:
    assert locomo.answer_score(question["category"], question["p"], str(question["answer"])) == pytest.approx(
        expected, abs=1e-12
    )


def test_categories() -> None:
    assert [locomo.category_of(value) for value in (1, "3", "Temporal", " adversarial ")] == [1, 3, 2, 5]
    assert [locomo.category_of(value) for value in (0, 6, None, "1.0", True, ["1"])] == [None] * 6
    with pytest.raises(BadInput):
        locomo.answer_score(6, "a", "a")


@pytest.mark.parametrize(("word", "expected"), _STEMS.items())
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(st.text(alphabet=string.ascii_lowercase + "é'", max_size=12))
def test_a_stem_is_never_longer_but_by_the_e_it_gets_back(word: str) -> None:
    assert len(stem(word)) <= len(word)
    assert stem(word.upper()) == stem(word)


@given(st.text(max_size=30), st.text(max_size=30))
def test_scores_are_shares(prediction: str, gold: str) -> None:
    for category in locomo.CATEGORIES:
        assert 0 <= locomo.answer_score(category, prediction, gold) <= 1
