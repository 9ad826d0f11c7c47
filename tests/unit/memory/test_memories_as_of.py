"""A question is asked at a moment: what is dated later is not known then, by any memory of ours that looks at items."""

from __future__ import annotations

import pytest

from context_bench.memory.protocol import Item, date_limit, dated_within
from context_bench.memory.systems.baselines import FullContext, Oracle, RandomPick, Recency
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.memory.systems.built_memories import Embedding, Hybrid

TALK = [
    Item("old", "Mara lives in Oslo.", time="2023-05-08T09:00:00"),
    Item("same day", "Mara lives in Bergen.", time="2023-06-01T23:30:00"),
    Item("day only", "Mara lives by the sea.", time="2023-06-01"),
    Item("new", "Mara lives in Rome.", time="2023-07-01"),
    Item("undated", "Mara lives well."),
    Item("in words", "Mara lives happily.", time="some summer evening"),
]
EARLIER = {"old", "same day", "day only", "undated", "in words"}


class Letters:
    """An embedder of this test: counts of letters."""

    def embed(self, texts):
        return [[float(text.lower().count(chr(97 + n))) for n in range(26)] for text in texts]


def found(memory, **told):
    memory.add(TALK)
    return {source for hit in memory.search("Where does Mara live? lives", 6, **told) for source in hit.source_ids}


@pytest.mark.parametrize(
    "make",
    [BM25, FullContext, Recency, RandomPick, lambda: Embedding(embedder=Letters()), lambda: Hybrid(embedder=Letters())],
    ids=["bm25", "full_context", "recency", "random", "embedding", "hybrid"],
)
def test_later_items_are_left_out_and_the_others_take_their_places(make):
    assert found(make(), as_of="2023-06-01") == EARLIER
    assert found(make(), as_of="2023-06-01T10:00:00") == EARLIER - {"same day"}
    assert found(make(), as_of="2023-05-08T09:00") >= {"old"}
    assert found(make()) == found(make(), as_of="last summer") == EARLIER | {"new"}


def test_a_limit_of_hits_is_filled_with_what_was_known():
    memory = BM25()
    memory.add(
        [Item(f"n{i}", "red bike", time="2024-01-01") for i in range(20)]
        + [Item("then", "a red bike and a red car", time="2023-01-01")]
    )
    assert [hit.source_ids for hit in memory.search("red bike", 3, as_of="2023-12-31")] == [("then",)]


def test_the_oracle_gives_the_evidence_whatever_its_date():
    memory = Oracle()
    memory.add(TALK)
    assert [hit.source_ids for hit in memory.search("?", 5, as_of="2023-06-01", evidence=["new"])] == [("new",)]


@pytest.mark.parametrize(
    ("time", "as_of", "known"),
    [
        ("2023-06-01T10:00:00", "2023-06-01T10:00:00", True),
        ("2023-06-01T10:00:00", "2023-06-01T10:00", True),
        ("2023-06-01T10:01:00", "2023-06-01T10:00", False),
        ("2023-06-01", "2023-06-01T00:00:00", True),
        ("2023-06-02", "2023-06-01", False),
        ("0999-01-01", "2023-06-01", True),
        (None, "2023-06-01", True),
        ("2023-06-02", None, True),
        ("8 May, 2023", "2022-01-01", True),
        ("2023-06-02", "1:56 pm on 8 May, 2023", True),
    ],
)
def test_a_day_holds_all_its_hours_and_what_cannot_be_read_is_no_limit(time, as_of, known):
    assert dated_within(time, date_limit(as_of)) is known


async def test_the_update_suite_says_what_is_found_as_of_an_earlier_date():
    from context_bench.memory.ops import run_suites

    (suite,) = await run_suites("bm25", ["update"], scale=0.3)
    (probe,) = [probe for probe in suite.probes if probe.name == "by newer statements"]
    assert "asked as of the second date" in probe.sentence
    assert 0 <= probe.numbers["as_of@1"] <= 1
