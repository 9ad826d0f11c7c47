"""Memory datasets as conversations, split and drawn; and what `evaluate_memory` makes of them."""

import pytest

from context_bench import evaluate_memory
from context_bench.core.errors import BadInput
from context_bench.evaluators import AnswerQuality
from context_bench.memory.datasets import conversations, load_memory, sample_search_pool, split_conversations
from context_bench.testing.lab_reader import read


def test_a_dataset_is_the_same_as_examples_and_as_conversations():
    found = conversations("bundled:recall-lab", 2)
    examples = list(load_memory("bundled:recall-lab", n=2).examples())
    assert [pair["question"] for one in found for pair in one["qa_pairs"]] == [
        example["question"] for example in examples
    ]
    assert [len(one["turns"]) for one in found] == [100, 100]
    assert all({"role", "content", "id", "timestamp"} <= turn.keys() for turn in found[0]["turns"])
    assert {pair["type"] for pair in found[0]["qa_pairs"]} >= {"single", "update-latest"}


def test_a_memory_that_keeps_everything_answers_them_and_is_reset_for_each():
    class Whole:
        name, resets = "whole", 0

        def reset(self):
            self.turns, Whole.resets = [], Whole.resets + 1

        def ingest(self, turns):
            self.turns += turns

        def query(self, question):
            return read("\n\n".join(f"[{turn['timestamp']}] {turn['content']}" for turn in self.turns), question)

    result = evaluate_memory(
        [Whole()], conversations("bundled:recall-lab", 2, ["single", "preference"]), [AnswerQuality()], progress=False
    )
    assert len(result.rows) >= 4
    assert {row.scores["f1"] for row in result.rows} == {1.0}
    assert Whole.resets == 2


def test_splits_are_whole_drawn_by_seed_and_lose_nothing():
    known = list(range(10))
    train, test = split_conversations(known, 0.8, seed=3)
    assert (len(train), len(test), sorted(train + test)) == (8, 2, known)
    assert split_conversations(known, 0.8, seed=3) == (train, test)
    assert split_conversations(range(50), seed=1) != split_conversations(range(50), seed=2)
    assert split_conversations([]) == ([], [])
    with pytest.raises(BadInput, match=r"1\.5"):
        split_conversations(known, 1.5)


def test_a_pool_is_drawn_without_replacement():
    assert sorted(sample_search_pool(range(5))) == list(range(5))
    drawn = sample_search_pool(range(100), 10, seed=4)
    assert len(set(drawn)) == 10
    assert drawn == sample_search_pool(range(100), 10, seed=4)
    assert len({tuple(sample_search_pool(range(1000), 10)) for _ in range(5)}) > 1
