"""ROUGE-L: documented values, the published tokenisation, an independent computation.

`recorded_rouge.json`: texts made at random, scored by the PyPI package rouge-score 0.1.2 (rougeL, no stemmer).
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.evaluators import SummarizationQuality
from context_bench.evaluators.rouge import rouge_l, tokens

QUALITY = SummarizationQuality()
KEYS = ("rouge_l_precision", "rouge_l_recall", "rouge_l_f1")
RECORDED = json.loads(Path(__file__).with_name("recorded_rouge.json").read_text(encoding="utf-8"))
TEXTS = st.lists(
    st.sampled_from(["the", "The", "cat", "sat.", "on", "mat,", "—", "É", "é", "中文", "x-y", "3.14"]), max_size=30
).map(" ".join)


def triple(precision, recall, f1):
    return dict(zip(KEYS, (precision, recall, f1), strict=True))


def longest(one, other):
    """The textbook recurrence."""
    row = [0] * (len(other) + 1)
    for a in one:
        above = 0
        for j, b in enumerate(other, 1):
            above, row[j] = row[j], above + 1 if a == b else max(row[j], row[j - 1])
    return row[-1]


def test_documented_values():
    assert rouge_l("the cat sat on the mat", "the cat sat on the mat") == triple(1.0, 1.0, 1.0)
    assert rouge_l("hello world", "foo bar baz") == triple(0.0, 0.0, 0.0)
    assert rouge_l("the cat sat on the mat", "the cat on the mat") == pytest.approx(triple(5 / 6, 1.0, 10 / 11))
    assert rouge_l("HELLO World", "hello world")["rouge_l_f1"] == 1.0
    for pair in (("", "a"), ("a", ""), ("", ""), ("...", "a"), ("a", "—")):
        assert rouge_l(*pair) == triple(0.0, 0.0, 0.0)


def test_order_counts():
    assert rouge_l("b a", "a b") == triple(0.5, 0.5, 0.5)


def test_punctuation_does_not_cost_a_word():
    assert rouge_l("the cat.", "the cat")["rouge_l_f1"] == 1.0


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_agrees_with_the_published_scorer_to_the_last_bit(case):
    assert rouge_l(case["prediction"], case["reference"]) == triple(case["precision"], case["recall"], case["f1"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state-of-the-art a_b 3.14", ["state", "of", "the", "art", "a", "b", "3", "14"]),
        ("“Don’t” — naïve…", ["don", "t", "naïve"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("北京,上海 ok", ["北", "京", "上", "海", "ok"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("ＡＢＣ１２", ["abc12"]),
        ("".join(map(chr, range(0x2190, 0x2200))) + "é a", ["é", "a"]),
        ("\ud800x", ["x"]),
    ],
)
def test_letters_of_any_script_are_tokens_and_nothing_else_is(text, expected):
    assert tokens(text) == expected


@given(TEXTS | st.text(max_size=60), TEXTS | st.text(max_size=60))
def test_equals_the_textbook_recurrence(prediction, reference):
    found, wanted = tokens(prediction), tokens(reference)
    common = longest(found, wanted)
    expected = triple(0.0, 0.0, 0.0)
    if common:
        precision, recall = common / len(found), common / len(wanted)
        expected = triple(precision, recall, 2 * precision * recall / (precision + recall))
    assert rouge_l(prediction, reference) == pytest.approx(expected, abs=1e-12)


def test_long_texts_are_quick():
    words = [str(number) for number in range(20_000)]
    assert rouge_l(" ".join(words), " ".join(words[::2]))["rouge_l_recall"] == 1.0


@pytest.mark.parametrize("original", [{}, {"answer": ""}, {"answer": None}])
def test_without_a_reference_a_direct_call_gives_ones_but_a_run_gives_nothing(original):
    assert QUALITY.score(original, {"response": "x"}) == triple(1.0, 1.0, 1.0)
    assert not QUALITY.applies(original, {"response": "x"})


@pytest.mark.parametrize("processed", [{"response": ""}, {"response": None}, {}])
def test_no_answer_scores_zero(processed):
    assert QUALITY.score({"answer": "none given"}, processed) == triple(0.0, 0.0, 0.0)


def test_the_reference_with_the_best_f1_gives_all_three():
    found = QUALITY.score({"answer": "a b c d", "answers": ["a b"]}, {"response": "a b x"})
    assert found == pytest.approx(triple(2 / 3, 1.0, 0.8))


def test_applies_where_there_is_a_reference_and_an_answer():
    assert QUALITY.applies({"answer": "x"}, {"response": None})
    assert not QUALITY.applies({"answer": "x"}, {"context": "shorter"})
    assert (QUALITY.name, QUALITY.fields) == ("summarization_quality", KEYS)
