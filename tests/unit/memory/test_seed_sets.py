"""The three small sets: what has to hold of them so that a number measured on them means something."""

import tomllib
from collections import Counter
from importlib.resources import files

import pytest

from context_bench.core.errors import UnknownName
from context_bench.memory.cortex.containment import exact_match, token_f1, word_match
from context_bench.memory.cortex.harness import NAMES, seed_set

CATEGORIES = {
    "locomo": {"single-hop": 3, "multi-hop": 3, "temporal": 4},
    "longmemeval": {"temporal": 4, "multi-hop": 3, "knowledge-update": 3},
    "chain-hop": {"1-hop": 2, "2-hop": 2, "3-hop": 1, "4-hop": 1, "5-hop": 1},
}
SIZES = {"locomo": (2, 3), "longmemeval": (2, 3), "chain-hop": (2, 10)}
DATA = tomllib.loads((files("context_bench.memory.cortex") / "seed_sets.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_counts_and_sizes(name):
    pairs = seed_set(name)
    assert Counter(pair.category for pair in pairs) == CATEGORIES[name]
    assert len({pair.id for pair in pairs}) == len(pairs)
    sizes = [len(pair.items) for pair in pairs]
    assert (min(sizes), max(sizes)) == SIZES[name]
    assert all(pair.question and pair.answer and all(pair.items) for pair in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_stands_in_one_item_of_the_whole_set_and_not_in_the_question(name):
    pairs = seed_set(name)
    everything = {item for pair in pairs for item in pair.items}
    for pair in pairs:
        assert [item for item in everything if exact_match(item, pair.answer)] == [
            one for one in pair.items if word_match(one, pair.answer)
        ]
        assert sum(exact_match(item, pair.answer) for item in pair.items) == 1
        assert not exact_match(pair.question, pair.answer)


@pytest.mark.parametrize("name", NAMES)
def test_whoever_is_asked_about_is_named_where_the_answer_begins(name):
    """A capitalised word of the question, beyond its first, is in the pair's items and in no other haystack's."""
    pairs = seed_set(name)
    for pair in pairs:
        named = [word.strip("?,'").removesuffix("'s") for word in pair.question.split()[1:] if word[0].isupper()]
        others = [item for other in pairs if other.items != pair.items for item in other.items]
        assert any(
            any(word_match(i, word) for i in pair.items) and not any(word_match(i, word) for i in others)
            for word in named
        )


def test_conversations_are_shared_by_their_questions():
    pairs = seed_set("locomo")
    assert [pair.id for pair in pairs] == [
        f"locomo-{talk}{n}" for talk, n in zip("AAABBBCCCD", (1, 2, 3, 1, 2, 3, 1, 2, 3, 1), strict=True)
    ]
    assert len({(pair.conversation, pair.items) for pair in pairs}) == 4


def test_updates_ask_for_the_new_value_and_old_and_new_are_not_in_one_another():
    updates = [one for one in DATA["longmemeval"] if one["category"] == "knowledge-update"]
    assert len(updates) == 3
    for one in updates:
        old, new = one["facts"][:2]
        assert exact_match(old["text"], one["stale"])
        assert not exact_match(old["text"], one["answer"])
        assert exact_match(new["text"], one["answer"])
        assert not exact_match(new["text"], one["stale"])
        assert old["until"] < new["from"]


def test_every_fact_says_from_when_it_holds():
    for one in DATA["longmemeval"]:
        assert all("from" in fact and fact["from"] <= fact.get("until", fact["from"]) for fact in one["facts"])


def test_a_chain_has_as_many_turns_as_hops_at_least_and_ends_in_its_last():
    for pair in seed_set("chain-hop"):
        hops = int(pair.category[0])
        assert hops <= len(pair.items)
        if hops > 1:
            assert exact_match(pair.items[-1], pair.answer)


@pytest.mark.parametrize("name", NAMES)
def test_a_store_that_only_counts_words_is_neither_lost_nor_perfect(name):
    pairs = seed_set(name)
    everything = list(dict.fromkeys(item for pair in pairs for item in pair.items))
    found = sum(
        exact_match(max(everything, key=lambda item, asked=pair.question: token_f1(item, asked)), pair.answer)
        for pair in pairs
    )
    assert 0 < found < len(pairs)


def test_the_documented_name_of_the_chains_is_understood():
    assert seed_set("dmr") == seed_set("chain-hop")
    with pytest.raises(UnknownName, match="Did you mean locomo"):
        seed_set("locomoo")
