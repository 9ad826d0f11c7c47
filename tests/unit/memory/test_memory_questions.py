"""Which questions a small reader is asked, and what is said of values that do not fit."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.memory.command.app import MemoryOptions, _completed
from context_bench.memory.datasets.recall_lab import spread
from context_bench.memory.systems import make_memory
from context_bench.session.offers import Misfits


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 99))
def test_as_many_as_asked_for_and_in_order(n: int, most: int, start: int) -> None:
    chosen = spread(list(range(n)), most, start)
    assert len(chosen) == min(n, most)
    assert chosen == sorted(set(chosen))


def test_conversations_that_follow_one_another_ask_everything_between_them() -> None:
    assert Counter(one for start in range(42, 46) for one in spread(list(range(20)), 5, start)) == Counter(range(20))


def test_a_number_of_hits_is_not_an_option_of_a_memory() -> None:
    with pytest.raises(
        BadInput, match=r"^bm25 has no option k\. It has path, synchronous\. How many hits .* by --k\.$"
    ):
        make_memory("bm25:k=3")


@pytest.mark.parametrize("given_", [{"k": "abc"}, {"k": "0"}, {"questions": "x"}, {"questions": "0"}])
def test_what_is_no_number_is_refused(given_: dict[str, str]) -> None:
    with pytest.raises(Misfits, match="above 0"):
        MemoryOptions(**given_)


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({"dataset": ["bundled:recall-lab", "./mine.jsonl"]}, ["bundled:recall-lab:turns=40", "./mine.jsonl"]),
        ({"dataset": ["bundled:recall-lab:lang=ru"]}, ["bundled:recall-lab:turns=40,lang=ru"]),
        ({"dataset": ["bundled:recall-lab:turns=100"]}, ["bundled:recall-lab:turns=100"]),
        ({"dataset": ["bundled:recall-lab"], "questions": "all"}, ["bundled:recall-lab"]),
        ({"dataset": ["bundled:recall-lab"], "relay": "http://127.0.0.1:9"}, ["bundled:recall-lab"]),
    ],
)
def test_only_the_bundled_reader_gets_the_short_lab_and_only_if_nothing_else_is_said(
    given_: dict[str, object], wanted: list[str]
) -> None:
    assert _completed(MemoryOptions(system=["bm25"], **given_)).dataset == wanted  # type: ignore[arg-type]
