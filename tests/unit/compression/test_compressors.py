"""The model-free controls: exact budgets, kept order, determinism, on any text."""

import functools
import math
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.compression.compressors import COMPRESSORS, compressor_of
from context_bench.compression.compressors.ranked_sentences import bm25_scores
from context_bench.compression.compressors.texts import LONGEST, Sentences, sentences
from context_bench.compression.compressors.trivial_baselines import MARKER
from context_bench.core import tokens
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.protocols import Compressor
from context_bench.core.tokens import counter_for, utf8_safe
from context_bench.systems.context import texts_of

COUNT = counter_for().count
STORY = (
    "The harbour opened in 1871. Ships brought tin and salt. A lighthouse keeper, Mr. Orn, kept a log.\n\n"
    "In 1902 the port burned down. It was rebuilt by Elsa Vik. The new pier is 412 metres long!\n"
    "Fishing ended in 1969. Today the hall is a museum. Entry is free on Mondays. Dogs must stay outside.\n"
) * 6
SHORTENERS = ("head_tail", "random_drop", "bm25")

words = st.sampled_from(
    [
        "tin",
        "Harbour",
        "1871",
        "e.g.",
        "naïve",
        "港は開いた。",
        "没有空格的句子",
        "👩‍👩‍👧",
        "e\u0301",
        "🇩🇪🇫🇷",
        "<|endoftext|>",
        '{"a":[1,2]}',
    ]
)
texts = st.one_of(
    st.text(max_size=400),
    st.lists(st.tuples(words, st.sampled_from([" ", ". ", "\n", "\n\n", "", "! ", ", "])), max_size=80).map(
        lambda items: "".join(word + gap for word, gap in items)
    ),
)


made = functools.cache(compressor_of)  # looking up entry points takes longer than all the rest


def shorten(spec, *contents, budget=None, query=None, state=None):
    messages = [{"role": "user", "content": content} for content in contents]
    result, _ = made(spec).compress(messages, [], state=state, budget=budget, query=query)
    return result, texts_of(result.messages)


@pytest.mark.parametrize("name", SHORTENERS)
@given(contents=st.lists(texts, min_size=1, max_size=4), budget=st.integers(0, 120), query=texts)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_never_more_tokens_than_the_budget_and_small_texts_stay(name, contents, budget, query):
    result, shown = shorten(name, *contents, budget=budget, query=query)
    total = sum(map(COUNT, contents))
    assert len(shown) == len(contents)
    assert sum(map(COUNT, shown)) == result.tokens_after <= max(budget, 0)
    assert result.tokens_before == total
    if total <= budget:
        assert shown == contents


@pytest.mark.parametrize("name", SHORTENERS)
@given(content=texts, budget=st.integers(0, 120))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_was_shortened_to_a_budget_stays_as_it_is_at_that_budget(name, content, budget):
    _, once = shorten(name, content, budget=budget, query="tin")
    assert shorten(name, *once, budget=budget, query="tin")[1] == once


@pytest.mark.parametrize("name", ["random_drop", "bm25"])
@given(content=texts, budget=st.integers(8, 120))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_selected_sentences_are_whole_and_in_order(name, content, budget):
    _, (shown,) = shorten(name, content, budget=budget, query="tin")
    pieces = ["".join(piece.split()) for piece in sentences(content)]
    if COUNT(min(sentences(content), key=COUNT, default="")) > budget:
        return  # not one sentence fits, so the best is cut short
    compact = "".join(shown.split())
    reached = {0}  # ends of what some choice of the sentences so far, in order, can spell
    for piece in pieces:
        reached |= {end + len(piece) for end in reached if compact.startswith(piece, end)}
    assert len(compact) in reached


@given(texts)
@settings(deadline=None, derandomize=True)
def test_sentences_join_to_the_text_again(text):
    pieces = sentences(text)
    assert "".join(pieces) == text
    assert all(len(piece) <= LONGEST for piece in pieces)


def test_sentences_end_where_a_reader_ends_them():
    assert sentences("Dr. Orn paid 3.5 kr. per kg, e.g. for tin. Then he left.") == [
        "Dr. Orn paid 3.5 kr. per kg, e.g. for tin.",
        " Then he left.",
    ]
    assert sentences("a line that goes on\nin small letters. End") == ["a line that goes on\nin small letters.", " End"]
    assert sentences("港は開いた。船が来た。") == ["港は開いた。", "船が来た。"]
    assert sentences("- one\n- two\n\nthird") == ["- one", "\n- two", "\n\nthird"]
    assert sentences("") == []


@pytest.mark.parametrize("name", SHORTENERS)
@pytest.mark.parametrize("budget", [40, 77, 150])
def test_the_budget_is_nearly_used_up(name, budget):
    result, _ = shorten(name, STORY, budget=budget, query="Who rebuilt the port?")
    assert budget - 6 <= result.tokens_after <= budget


@pytest.mark.parametrize("name", SHORTENERS)
def test_keep_is_a_share_of_the_tokens(name):
    result, _ = shorten(f"{name}:keep=0.25", STORY)
    allowed = math.floor(COUNT(STORY) * 0.25)
    assert allowed - 6 <= result.tokens_after <= allowed


def test_head_tail_shows_the_cut_and_keeps_both_ends_at_word_edges():
    _, (shown,) = shorten("head_tail", STORY, budget=60)
    head, marker, tail = shown.partition(MARKER)
    assert marker
    assert STORY.startswith(head)
    assert STORY.rstrip().endswith(tail.rstrip())
    assert STORY[len(head)].isspace()
    assert abs(COUNT(head) - COUNT(tail)) <= 12


def test_head_tail_over_several_texts_empties_the_middle():
    _, shown = shorten("head_tail", "first " * 40, "second " * 40, "third " * 40, budget=50)
    assert shown[0].startswith("first")
    assert shown[0].endswith(MARKER.rstrip())
    assert shown[1] == ""
    assert set(shown[2].split()) == {"third"}


@pytest.mark.parametrize("budget", range(1, 40))
def test_no_visible_character_is_torn(budget):
    family, accent, flags = "👩‍👩‍👧‍👦", "e\u0301", "🇩🇪🇫🇷"
    for symbol in (family, accent, flags):
        _, (shown,) = shorten("head_tail", symbol * 60, budget=budget)
        whole = shown.replace(MARKER.strip(), "").replace("\n", "")
        assert whole == symbol * (len(whole) // len(symbol)) or (
            symbol == flags and whole.replace("🇩🇪", "").replace("🇫🇷", "") == ""
        )


def test_lone_surrogates_are_survived():
    result, shown = shorten("head_tail", "a\ud800b " * 200, budget=50)
    assert result.tokens_after <= 50
    utf8_safe(shown[0]).encode()


def test_random_drop_repeats_by_seed_text_and_example_and_differs_between_them():
    def drawn(seed=0, state=None):
        return shorten(f"random_drop:seed={seed}", STORY, budget=100, state=state)[1]

    assert drawn() == drawn()
    assert drawn(seed=0) != drawn(seed=1)
    assert drawn(state="q1") != drawn(state="q2")


def test_bm25_keeps_what_answers_the_question():
    filler = " ".join(f"Warehouse {i} stored grain of sort {i}." for i in range(80))
    text = f"{filler} The lighthouse was painted red by Elsa Vik. {filler}"
    _, (shown,) = shorten("bm25", text, budget=30, query="Who painted the lighthouse?")
    assert "Elsa Vik" in shown
    assert compressor_of("bm25").needs_query


def test_bm25_takes_the_last_user_text_when_no_query_is_given():
    tail = [
        {"role": "user", "content": "an old one"},
        {"role": "user", "content": [{"type": "text", "text": "zebra?"}]},
    ]
    text = "Cats sleep. Dogs bark. " * 30 + "A zebra has stripes. " + "Fish swim. " * 30
    result, _ = compressor_of("bm25").compress([{"role": "user", "content": text}], tail, state=None, budget=8)
    assert "zebra" in texts_of(result.messages)[0]


def test_bm25_scores_agree_with_the_formula_done_by_hand():
    scores = bm25_scores(["red fox", "red red dog", "blue"], "Red?")
    idf = math.log(1 + (3 - 2 + 0.5) / 2.5)
    expected = [idf * tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * length / 2)) for tf, length in ((1, 2), (2, 3))]
    assert scores == pytest.approx([*expected, 0.0])
    assert bm25_scores([], "x") == []


def test_bm25_counts_each_word_of_the_question_where_it_is_and_nowhere_else():
    documents = ["", "fox fox dog", "cat", "dog", "The fox. The dog. The fox."] * 3
    scores = bm25_scores(documents, "dog fox unicorn")
    assert scores == scores[:5] * 3
    assert scores[0] == scores[2] == 0 < scores[3] < scores[4] < scores[1]


@pytest.mark.parametrize("odd", ["k1=-1", "k1=nan", "k1=inf", "k1=one", "b=-0.1", "b=1.1", "b=nan", "b=x"])
def test_bm25_refuses_parameters_that_the_formula_has_no_use_for(odd):
    with pytest.raises(BadInput, match=odd.split("=")[0]):
        compressor_of(f"bm25:{odd}")


@given(st.lists(texts, max_size=4))
def test_sentences_of_several_texts_are_those_of_each(several):
    found = Sentences(several)
    assert list(found) == [found[at] for at in range(len(found))] == [s for text in several for s in sentences(text)]
    assert found.only(range(len(found))) == [text.strip() for text in several]
    assert found.only(range(0, len(found), 2)) == [
        "".join(s for s, at in pieces if at % 2 == 0).strip() for pieces in _numbered(several)
    ]
    assert all(piece and len(piece) <= LONGEST for piece in found)


def _numbered(several):
    at = 0
    for text in several:
        pieces = sentences(text)
        yield [(piece, at + number) for number, piece in enumerate(pieces)]
        at += len(pieces)


@pytest.mark.parametrize("line", ["Word and more.\n", "{0}.\n", "\n\t", "A. "])
@pytest.mark.parametrize("spec", ["bm25:budget=300", "bm25:keep=0.5", "random_drop:budget=300"])
def test_a_text_of_very_many_lines_takes_little_more_memory_than_it_has_itself(spec, line):
    lines = 60_000
    text = "".join(line.format(number) for number in range(lines)) + "The end."
    shorten(spec, "The end. Or not. " * 400, query="How much more?")  # vocabularies
    tracemalloc.start()
    shorten(spec, text, query="How much more?")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 130 * lines + 2_000_000  # an object for each line took 220 bytes and more


def test_content_parts_that_are_not_text_and_other_fields_survive():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    prefix = [
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "text", "text": STORY, "cache_control": {"type": "ephemeral"}}, image],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "tool_call_id": "c1", "content": STORY},
    ]
    result, _ = compressor_of("head_tail").compress(prefix, [], state=None, budget=100)
    first, second, third = result.messages
    assert first["name"] == "ann"
    assert first["content"][1] == image
    assert first["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert second == prefix[1]
    assert third["tool_call_id"] == "c1"
    assert prefix[0]["content"][0]["text"] == STORY  # the caller's messages are not changed
    assert result.tokens_after <= 100


def test_full_and_none_are_the_two_ends():
    messages = [{"role": "user", "content": STORY}]
    assert compressor_of("passthrough").compress(messages, [], state=7, budget=3) == (
        compressor_of("full").compress(messages, [], state=7, budget=3)
    )
    assert compressor_of("full").compress(messages, [], state=7, budget=3)[0].messages == messages
    result, state = compressor_of("none").compress(messages, [], state=7, budget=3)
    assert (result.messages, result.tokens_after, state) == ([], 0, 7)


@pytest.mark.parametrize("name", sorted(COMPRESSORS))
def test_each_is_a_compressor_declared_under_its_own_name(name):
    compressor = compressor_of(name)
    assert isinstance(compressor, Compressor)
    assert COMPRESSORS[compressor.name] == COMPRESSORS[name]


@pytest.mark.parametrize(
    "spec", ["head_tail:keep=2", "bm25:budget=-1", "random_drop:keep=half", "head_tail:budget=true", "head_tail:size=3"]
)
def test_impossible_options_are_refused_with_the_value(spec):
    with pytest.raises(BadInput, match=spec.split(":")[0]):
        compressor_of(spec)


def test_an_unknown_name_gets_a_hint():
    with pytest.raises(UnknownName, match="head_tail"):
        compressor_of("head_tial")


def test_options_can_be_added_to_a_spec():
    assert compressor_of("random_drop", seed=7).seed == 7
    both = compressor_of("random_drop:keep=0.25", seed=7)
    assert (both.keep, both.seed) == (0.25, 7)
    assert compressor_of(both) is both


LINES = "".join(f"Line {number * 7919 % 100_003} says {number % 97} of {number % 13}.\n" for number in range(60_000))
KINDS = {  # of text: one all through, one whose ends are denser than its middle, one whose words never end
    "lines": LINES,
    "dense ends": "1 2 3 4 5 6 7 8 9\n" * 20_000 + LINES[:1_000_000] + "1 2 3 4 5 6 7 8 9\n" * 20_000,
    "one word": "a" * 3_000_000,
}


@pytest.fixture
def tokenized(monkeypatch):
    """Characters that the tokenizer was given."""
    total = [0]
    vocabulary_of = tokens._vocabulary

    class Noted:
        def __init__(self, vocabulary):
            self._vocabulary = vocabulary

        def __getattr__(self, name):
            return getattr(self._vocabulary, name)

        def encode_ordinary(self, text):
            total[0] += len(text)
            return self._vocabulary.encode_ordinary(text)

        def encode_flat(self, text):
            total[0] += len(text)
            return self._vocabulary.encode_flat(text)

    def noted(encoding):
        vocabulary, special = vocabulary_of(encoding)
        return Noted(vocabulary), special

    monkeypatch.setattr(tokens, "_vocabulary", noted)
    return total


@pytest.mark.parametrize("name", SHORTENERS)
@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_text_too_long_to_be_counted_is_kept_by_few_samples_of_it(tokenized, name, kind):
    text = KINDS[kind]
    before = COUNT(text)
    _, (kept,) = shorten(f"{name}:keep=0.5", text, query="Line 5 says?")
    size = COUNT(kept)
    assert size <= before // 2
    assert size >= 0.4 * before
    assert tokenized[0] <= 16 * tokens.MOST_COUNTED  # and not as often as the text is long


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_budget_of_a_text_too_long_to_be_counted_is_kept_to_exactly(tokenized, kind):
    text = KINDS[kind]
    _, (kept,) = shorten("head_tail", text, budget=300)
    assert 250 <= COUNT(kept) <= 300
    assert tokenized[0] <= len(text)
    if kind != "one word":
        assert kept == shorten("head_tail", text[:100_000] + text[-100_000:], budget=300)[1][0]
