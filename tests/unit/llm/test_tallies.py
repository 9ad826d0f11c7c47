"""Requests counted together have the tokens that each has alone, on the loop and in a thread."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, strategies as st

from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.llm import spend
from context_bench.llm.spend import TokenCounts

TEXTS = ["", "a", "harbour bridge", "naïve ✓ 🦎 \ud800", "signal " * 100, "signal " * 101, "<|endoftext|>" * 40]


class Words:
    """A counter of one's own, which knows one text at a time."""

    name, exact = "words", False

    def count(self, text: str) -> int:
        if "poison" in text:
            raise ValueError("cannot count this")
        return len(text.split())


@given(
    groups=st.lists(st.lists(st.sampled_from(TEXTS), max_size=5), max_size=6), remembered=st.sampled_from([1, 3, 100])
)
def test_groups_have_the_sums_of_their_texts(groups: list[list[str]], remembered: int) -> None:
    alone = [sum(VocabularyCounter().count(text) for text in group) for group in groups]
    counter = VocabularyCounter(remembered=remembered)
    assert counter.totals(groups) == counter.totals(groups) == alone
    assert len(counter._seen) <= max(remembered, len({text for group in groups for text in group}))


def test_the_oldest_counts_are_forgotten_an_eighth_at_a_time() -> None:
    counter = VocabularyCounter(remembered=16)
    for number in range(100):
        counter.count(f"{number} " * 200)
        assert min(number + 1, 15) <= len(counter._seen) <= 16


@pytest.mark.parametrize("much", [1, 2**30])
@pytest.mark.parametrize("counter", [counter_for("gpt-4o"), Words()])
async def test_a_turn_of_the_loop_is_counted_together(
    monkeypatch: pytest.MonkeyPatch, much: int, counter: VocabularyCounter | Words
) -> None:
    monkeypatch.setattr(spend, "_MUCH", much)
    together, draw = TokenCounts(), random.Random(3)
    requests = [draw.choices(TEXTS, k=4) for _ in range(30)]
    alone = [sum(map(counter.count, texts)) for texts in requests]
    asked = [together.add(texts, counter) for texts in requests]
    assert asked[7].now() == alone[7]  # nobody needs to wait
    assert await asyncio.gather(*(tally.ready() for tally in asked)) == alone
    later = together.add(["one more"], counter)
    assert await later.ready() == counter.count("one more")


@pytest.mark.parametrize("much", [1, 2**30])
async def test_one_that_cannot_be_counted_fails_alone(monkeypatch: pytest.MonkeyPatch, much: int) -> None:
    monkeypatch.setattr(spend, "_MUCH", much)
    together = TokenCounts()
    same = Words()
    good, bad = together.add(["two words"], same), together.add(["poison"], same)
    await asyncio.sleep(0)
    assert await good.ready() == 2
    with pytest.raises(ValueError, match="cannot count"):
        await bad.ready()
