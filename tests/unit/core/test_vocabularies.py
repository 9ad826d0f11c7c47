"""Counts of tokens against another implementation of the same vocabularies (`bpe-openai`), which was made from
tiktoken's files.
"""

from __future__ import annotations

import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import bpe_openai
import pytest
from hypothesis import given, strategies as st

from context_bench.core.tokens import VocabularyCounter, unload_vocabularies, utf8_safe

ENCODINGS = ("cl100k_base", "o200k_base")

# What splitting text into pieces is about: contractions, runs of blanks, digits, marks, joined emoji, what looks like a
# special token.
PIECES = [
    *("I'll", "CAN'T", "we’ve", "'s", "1234567", "3.14", "<|endoftext|>", "<|im_start|>", "<think>", "don't\r\n"),
    *("\r\n\r\n", " \t\n ", "\n \n", "a" * 70, "=" * 40, "    " * 9, "/*/", "://", '{"a": [1, 2]}'),
    *("👨‍👩‍👧", "🏳️‍🌈", "🇩🇪", "مرحبا", "ภาษาไทย", "日本語", "한국어", "हिन्दी", "ǅ", "İı", "e\u0301"),
    *("\u200d", "\ufeff", "\x00", "\x85", "\u2028", "\u3000", "\ud800", "\U000e0041", "\U0010ffff"),
]
# Only characters that this Python knows: which of the newer ones are letters depends on the version of Unicode.
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn"), exclude_characters="ſ")
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.text(CHARACTERS, max_size=8) | st.text("ab A9'\n ", max_size=12), max_size=12
).map("".join)


@pytest.fixture(scope="module", params=ENCODINGS)
def pair(request):
    return VocabularyCounter(request.param), bpe_openai.get_encoding(request.param)


@given(text=TEXTS)
def test_counts_are_those_of_another_implementation(pair, text):
    counter, other = pair
    assert counter.count(text) == len(other.encode_ordinary(utf8_safe(text)))


@given(text=TEXTS, tokens=st.integers(0, 30))
def test_what_is_kept_is_the_whole_characters_of_the_first_tokens(pair, text, tokens):
    counter, other = pair
    text = utf8_safe(text)
    first = other.decode_bytes(other.encode_ordinary(text)[:tokens])
    kept = counter.truncate(text, tokens)
    assert text.startswith(kept)
    assert first.startswith(kept.encode())
    assert len(first) - len(kept.encode()) < 4


@pytest.mark.parametrize("piece", ["a", " ", "\n", "7", "漢", "\u0301", "Aa", "'", "<|endoftext|>", " \n\t\r"])
def test_a_long_run_is_counted_as_many_short_ones_would_suggest(piece):
    """Up to two megabytes of one thing: in a time that grows with the length alone, or this test would not end."""
    short, long = (VocabularyCounter().count(piece * n) for n in (6_400, 160_000))
    estimated = VocabularyCounter.estimates([piece * 160_000])
    assert abs(long - 25 * short) <= (long // 100 if estimated else 25)


def test_encodings_that_differ_in_special_tokens_count_alike():
    text = "<|start|>assistant<|channel|>final<|message|>Ça va ?\n"
    assert VocabularyCounter("o200k_harmony").count(text) == VocabularyCounter("o200k_base").count(text)
    with pytest.raises(KeyError, match="o200k_base"):
        VocabularyCounter("r50k_base").count(text)


def test_all_code_points_that_have_a_letter_case_or_join_are_counted_alike(pair):
    """One text of each block of 64 characters, in which no hypothesis has to guess."""
    counter, other = pair
    for start in range(0, 0x3000, 64):
        known = [chr(code) for code in range(start, start + 64) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
        block = "".join(known).replace("ſ", "")
        assert counter.count(block) == len(other.encode_ordinary(block)), hex(start)


def test_a_vocabulary_that_was_unloaded_is_loaded_again():
    counter = VocabularyCounter("o200k_base")
    before = counter.count("The harbour bridge reopened.")
    unload_vocabularies()
    assert counter.count("The harbour bridge reopened.") == before


def test_counts_are_the_same_whether_remembered_or_forgotten():
    texts = [f"{'harbour ' * (n % 50)}{n}" for n in range(40)] * 3
    counter, bounded = VocabularyCounter(), VocabularyCounter(remembered=3)
    assert [counter.count(text) for text in texts] == [bounded.count(text) for text in texts]
    assert all(0 < len(held) <= 3 for held in (bounded._seen, bounded._short))
    assert counter.totals([texts, texts[:7]]) == bounded.totals([texts, texts[:7]])


def test_threads_that_share_a_full_memory_do_not_trip_over_what_another_has_forgotten():
    counter, words = VocabularyCounter(remembered=16), [f"word {number} " for number in range(4_000)]

    def counted(part):
        return [counter.count(text) for word in words[part::8] for text in (word, word * 40)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(counted, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert all(all(part) for part in found)
