"""Word-level diffs: exact whatever the texts are, and what a reader would say of them."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.wire import words as wordiff
from context_bench.wire.words import count_words, diff_texts

#: Few letters, so that much is alike; what other programs stumble over; lone surrogates.
ODD = st.text(st.sampled_from("ab \n\t\r.é中文ก\u202e\u200b\x1b\ud800😀0"), max_size=60)
SENTENCES = st.lists(
    st.sampled_from(["the cat sat", "on the mat", "\n\n", "  ", "a dog", "x", "…", "</script>"]), max_size=30
).map(" ".join)


def exact(sent, forwarded):
    spans = diff_texts(sent, forwarded)
    assert "".join(text for kind, text in spans if kind != "added") == sent
    assert "".join(text for kind, text in spans if kind != "dropped") == forwarded
    assert all(text for _, text in spans)
    kinds = [kind for kind, _ in spans]
    assert all(a != b for a, b in pairwise(kinds))
    assert ("added", "dropped") not in list(pairwise(kinds))
    return spans


def kept(spans):
    return sum(len(text) for kind, text in spans if kind == "kept")


@given(ODD, ODD)
def test_exact_for_any_texts(sent, forwarded):
    exact(sent, forwarded)


@given(SENTENCES, SENTENCES)
def test_exact_for_sentences(sent, forwarded):
    exact(sent, forwarded)


@settings(max_examples=60)
@given(SENTENCES, SENTENCES, st.sampled_from([1, 30, 200]))
def test_exact_on_the_ways_for_large_texts(sent, forwarded, directly):
    """With a small limit every way of comparing is gone: anchors, lines, whole blocks."""
    before, wordiff.DIRECTLY = wordiff.DIRECTLY, directly
    try:
        exact(sent, forwarded)
    finally:
        wordiff.DIRECTLY = before


@given(st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), max_size=20), st.data())
def test_dropped_words_are_all_that_is_missing(words, data):
    """Where words were only left out, nothing is told as added."""
    left = [word for word in words if data.draw(st.booleans())]
    spans = exact("\n".join(words), "\n".join(left))
    assert sum(count_words(text) for kind, text in spans if kind == "kept") == len(left)


def test_equal_and_empty_texts():
    assert diff_texts("", "") == []
    assert diff_texts("same", "same") == [("kept", "same")]
    assert diff_texts("gone", "") == [("dropped", "gone")]
    assert diff_texts("", "new") == [("added", "new")]


def test_words_that_stay_between_changed_ones_are_kept():
    assert exact("The red house is big", "The blue house is small") == [
        ("kept", "The "),
        ("dropped", "red"),
        ("added", "blue"),
        ("kept", " house is "),
        ("dropped", "big"),
        ("added", "small"),
    ]


def test_a_paragraph_that_is_gone_is_cut_out_as_one():
    first, second, third = "The fox jumps.\n\n", "The dog sleeps.\n\n", "The cat looks on."
    assert exact(first + second + third, first + third) == [("kept", first), ("dropped", second), ("kept", third)]


def test_a_word_in_common_by_chance_is_not_told_as_kept():
    spans = exact(
        "The meeting was moved since the room was taken.", "In short: a new date was found, and the team likes it."
    )
    assert [kind for kind, _ in spans][:2] == ["dropped", "added"]
    assert kept(spans) <= 1


def test_chinese_is_compared_by_character():
    assert exact("我喜欢红色的房子", "我喜欢蓝色的房子") == [
        ("kept", "我喜欢"),
        ("dropped", "红"),
        ("added", "蓝"),
        ("kept", "色的房子"),
    ]
    assert count_words("我喜欢 red") == 4


def _large(rng, words):
    return "".join(
        rng.choice(["valve", "lane", "mill", "dyer", "stone"]) + str(rng.randrange(3000)) + rng.choice("  \n")
        for _ in range(words)
    )


@pytest.mark.parametrize("how", ["words", "lines", "half", "turned"])
def test_a_large_text_is_compared_by_words_too(how):
    """Too large to be compared as a whole: all that was forwarded is found again."""
    rng = random.Random(7)
    text = _large(rng, 30_000)
    assert len(text) ** 2 > wordiff.DIRECTLY
    forwarded = {
        "words": lambda: "".join(word for word in text.splitlines(keepends=True) if rng.random() < 0.5),
        "lines": lambda: "".join(line if i % 3 else "" for i, line in enumerate(text.splitlines(keepends=True))),
        "half": lambda: text[: len(text) // 2],
        "turned": lambda: text[len(text) // 2 :] + text[: len(text) // 2],
    }[how]()
    spans = exact(text, forwarded)
    if how == "turned":
        assert kept(spans) >= 0.49 * len(text)
    else:
        assert kept(spans) >= 0.98 * len(forwarded)


def test_a_megabyte_in_which_nothing_is_unique():
    """Equal ends, then lines; what is left of it counts as dropped and added as a whole."""
    spans = exact("ok\n" * 200_000, "ok\n" * 90_000 + "no\n" + "ok\n" * 40_000)
    assert kept(spans) in (390_000, 390_001)  # the line end after the new word may be the one that was there
    exact("中" * 300_000, "文中" * 90_000)
    assert exact("a" * 1_000_000, "a" * 999_999 + "b") == [("dropped", "a" * 1_000_000), ("added", "a" * 999_999 + "b")]
