"""Normalisation and overlap: SQuAD's order, several scripts, whole words only."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from context_bench.core.text import best_match, contains, exact_match, f1_score, match, normalise, recall_score, tokens


def squad_normalise(text):
    """The order of the SQuAD script, written naively: lower, punctuation, articles, white space."""
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_f1(prediction, reference):
    found, wanted = squad_normalise(prediction).split(), squad_normalise(reference).split()
    shared = sum((Counter(found) & Counter(wanted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(found), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def test_documented_example():
    assert match("The capital is Paris.", "Paris") == (0.5, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("a", "b"),
    [("USA", "U.S.A."), ("AE", "A&E"), ("Beatles", "the  Beatles!"), ("caf\u0065\u0301", "café"), ("ＡＢＣ", "abc")],
)
def test_equal_after_normalisation(a, b):
    assert match(a, b) == (1.0, 1.0, 1.0, 1.0)


def test_hyphen_joins_as_in_squad():
    assert normalise("a-ha") == "aha"
    assert exact_match("a-ha", "ha") == 0.0


@given(st.text(alphabet=string.printable.replace("\x0b", "").replace("\x0c", ""), max_size=60))
def test_ascii_normalisation_is_squads(text):
    assert normalise(text) == squad_normalise(text)


@given(st.text(alphabet="abc the an. ,!", max_size=40), st.text(alphabet="abc the an. ,!", max_size=20))
def test_f1_is_squads_where_the_reference_is_not_only_articles(prediction, reference):
    if squad_normalise(reference):
        assert f1_score(prediction, reference) == pytest.approx(squad_f1(prediction, reference), abs=1e-12)


@pytest.mark.parametrize(
    ("prediction", "reference"), [("the", "a"), ("A", "The"), ("?", "!!!"), ("!!!", "a"), ("x", "the")]
)
def test_different_texts_that_normalise_to_nothing_do_not_match(prediction, reference):
    assert match(prediction, reference) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("text", ["A", "the", "!!!", "+", "the a"])
def test_a_gold_answer_of_articles_or_marks_still_matches_itself(text):
    assert match(text, text) == (1.0, 1.0, 1.0, 1.0)


def test_empty_sides():
    assert recall_score("anything", "") == 0.0
    assert f1_score("", "x") == 0.0
    assert exact_match("", "") == 1.0
    assert f1_score("", "") == 0.0


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("I do not know", "no"),
        ("In 2017", "1"),
        ("it is 3.5 %", "3"),
        ("about 13.5 m", "3.5"),
        ("1,000 items", "1"),
        ("badge", "bad"),
        ("", "x"),
        ("foo", " "),
    ],
)
def test_contains_wants_whole_words_and_numbers(response, gold):
    assert contains(response, gold) == 0.0


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("No, never.", "no"),
        ("chapter 1.", "1"),
        ("it is 3.5%", "3.5"),
        ("1,000 items", "1000"),
        ("Paris's streets", "Paris"),
        ("Paris—the capital", "paris"),
        ("in the U.S.A. today", "USA"),
        ("答案是北京。", "北京"),
        ("在２０１７年", "2017"),
        ("written in C++ mostly", "C++"),
        ("an a-ha moment", "ha"),
    ],
)
def test_contains_finds_what_stands_alone(response, gold):
    assert contains(response, gold) == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("答案是北京。", ["答", "案", "是", "北", "京"]),
        ("東京タワー2020", ["東", "京", "タ", "ワ", "ー", "2020"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("서울 특별시", ["서울", "특별시"]),
        ("Use GPT模型", ["use", "gpt", "模", "型"]),
        ("𠀀𠀁", ["𠀀", "𠀁"]),
        ("«Москва», “да”", ["москва", "да"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
    ],
)
def test_tokens_of_other_scripts(text, expected):
    assert tokens(text) == expected


def test_chinese_f1():
    assert f1_score("答案是北京", "北京") == pytest.approx(4 / 7)
    assert match("北京。", "北京") == (1.0, 1.0, 1.0, 1.0)


@given(st.text(max_size=40), st.text(max_size=20))
def test_measures_stay_in_range_and_agree(prediction, reference):
    found = match(prediction, reference)
    assert all(0.0 <= value <= 1.0 for value in found)
    if found.exact_match and reference.strip():
        assert found.contains == found.recall == found.f1 == 1.0
    assert found.recall >= found.f1 / 2


@given(st.text(max_size=30).filter(str.strip))
def test_every_text_matches_itself(text):
    assert match(text, text) == (1.0, 1.0, 1.0, 1.0)


@given(st.text(max_size=20), st.lists(st.text(max_size=10), min_size=1, max_size=4))
def test_best_match_is_the_best_of_each_measure(prediction, references):
    each = [match(prediction, reference) for reference in references]
    assert best_match(prediction, references) == tuple(max(values) for values in zip(*each, strict=True))
