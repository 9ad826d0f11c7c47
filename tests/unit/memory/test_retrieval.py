"""Retrieval measures by evidence: by hand, against trec_eval where definitions agree, against the official scorers, and
for any input.
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.memory import ranking as r

_VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))
_LME, _LOCOMO = _VECTORS["official_longmemeval_retrieval"], _VECTORS["official_locomo_scoring"]
_TREC = json.loads((Path(__file__).parent / "recorded_trec.json").read_text("utf-8"))["cases"]


def sets(*hits: str) -> list[frozenset[str]]:
    return [frozenset(hit.split()) for hit in hits]


@pytest.mark.parametrize("case", _TREC)
def test_single_ids_are_scored_as_trec_eval_does(case: dict) -> None:
    gold, hits, k = frozenset(case["gold"]), sets(*case["ranked"]), case["k"]
    found = {
        "hit": r.hit_at(gold, hits, k),
        "recall": r.recall_at(gold, hits, k),
        "precision": r.precision_at(gold, hits, k),
        "ndcg": r.ndcg_at(gold, hits, k),
        "rr": r.reciprocal_rank(gold, hits),
        "ap": r.average_precision(gold, hits),
    }
    assert found == pytest.approx({name: case[name] for name in found}, abs=1e-9)


def test_hits_with_several_ids_and_repeats() -> None:
    gold = frozenset("abc")
    hits = sets("x", "a b", "", "a", "b c", "y")
    assert [r.recall_at(gold, hits, k) for k in (1, 2, 4, 5, 99)] == pytest.approx([0, 2 / 3, 2 / 3, 1, 1])
    assert [r.all_at(gold, hits, k) for k in (4, 5)] == [0, 1]
    assert r.precision_at(gold, hits, 4) == 2 / 4  # a hit that repeats evidence still touches it
    assert r.precision_at(gold, hits, 10) == 3 / 10
    assert r.precision_at(gold, hits, 10, of_returned=True) == 3 / 6
    assert r.reciprocal_rank(gold, hits) == 1 / 2
    assert r.average_precision(gold, hits) == pytest.approx((1 / 2 + 1 / 2 + 2 / 5) / 3)
    assert r.ndcg_at(gold, hits, 5) == pytest.approx(
        (2 / math.log2(3) + 1 / math.log2(6)) / (1 + 1 / math.log2(3) + 1 / 2)
    )
    assert r.duplicate_share(hits) == pytest.approx(1 / 6)
    assert r.ndcg_at(gold, sets("a b c"), 1) == 1.0


def test_no_hits_is_zero_and_no_evidence_is_an_error() -> None:
    gold = frozenset("a")
    assert r.precision_at(gold, [], 5) == r.precision_at(gold, [], 5, of_returned=True) == r.recall_at(gold, [], 5) == 0
    assert (
        r.reciprocal_rank(gold, [])
        == r.average_precision(gold, [])
        == r.ndcg_at(gold, [], 5)
        == r.duplicate_share([])
        == 0
    )
    for measure in (r.hit_at, r.recall_at, r.all_at, r.precision_at, r.ndcg_at):
        with pytest.raises(BadInput):
            measure(frozenset(), sets("a"), 1)
        with pytest.raises(BadInput):
            measure(gold, sets("a"), 0)
    for ranked in (r.reciprocal_rank, r.average_precision):
        with pytest.raises(BadInput):
            ranked(frozenset(), sets("a"))


def test_a_budget_takes_the_longest_prefix() -> None:
    assert [r.within([3, 4, 1, 0], budget) for budget in (0, 2, 3, 7, 8, 100)] == [0, 0, 1, 2, 4, 4]
    assert r.within([], 10) == 0


_ids = st.sampled_from("abcdefgh")
_hits = st.lists(st.frozensets(_ids, max_size=3), max_size=12)
_gold = st.frozensets(_ids, min_size=1, max_size=5)


@given(_gold, _hits, st.integers(1, 15))
def test_every_measure_is_a_share_and_they_agree(gold: frozenset[str], hits: list[frozenset[str]], k: int) -> None:
    hit, recall, every = r.hit_at(gold, hits, k), r.recall_at(gold, hits, k), r.all_at(gold, hits, k)
    others = [
        r.precision_at(gold, hits, k),
        r.ndcg_at(gold, hits, k),
        r.reciprocal_rank(gold, hits),
        r.average_precision(gold, hits),
    ]
    assert all(0 <= value <= 1 for value in (hit, recall, every, *others))
    assert every <= recall <= hit
    assert (others[0] > 0) == (others[1] > 0) == (hit > 0)
    assert r.precision_at(gold, hits, k, of_returned=True) >= others[0]
    assert (r.reciprocal_rank(gold, hits[:k]) >= 1 / k) == (hit == 1)


@given(_gold, _hits)
def test_more_hits_never_take_evidence_away(gold: frozenset[str], hits: list[frozenset[str]]) -> None:
    values = [r.recall_at(gold, hits, k) for k in range(1, 14)]
    assert all(a <= b for a, b in pairwise(values))


@given(_gold, _hits, st.randoms(use_true_random=False))
def test_one_id_a_hit_moved_up_never_ranks_lower(gold: frozenset[str], hits: list[frozenset[str]], rng) -> None:
    single = [frozenset([one]) for one in dict.fromkeys(min(hit) for hit in hits if hit)]
    at = next((i for i, hit in enumerate(single) if i and hit <= gold), None)
    if at is None:
        return
    up = single.copy()
    up.insert(rng.randrange(at), up.pop(at))
    for measure in (r.average_precision, r.reciprocal_rank):
        assert measure(gold, up) >= measure(gold, single) - 1e-12
    assert r.ndcg_at(gold, up, 99) >= r.ndcg_at(gold, single, 99) - 1e-12


@pytest.mark.parametrize("case", _LME["cases"])
def test_longmemeval_as_its_own_scorer(case: dict) -> None:
    found = r.official_longmemeval(
        [_LME["corpus"][at] for at in case["ranking"]], case["correct"], _LME["corpus"], case["k"]
    )
    assert found._asdict() == pytest.approx({name: case[name] for name in found._fields}, abs=1e-9)


@pytest.mark.parametrize("case", _LME["turn_to_session"])
def test_longmemeval_turns_as_sessions(case: dict) -> None:
    ranked = [case["corpus"][at] for at in case["ranking"]]
    found = r.official_longmemeval_sessions(ranked, case["correct_turns"], case["corpus"], case["k"])
    assert found._asdict() == pytest.approx({name: case[name] for name in found._fields}, abs=1e-9)


def test_longmemeval_counts_a_session_once_for_each_of_its_turns() -> None:
    corpus = ["s1_1", "s1_2", "s1_3", "s2_1"]
    found = r.official_longmemeval_sessions(["s2_1", "s1_1", "s1_2", "s1_3"], ["s1_3"], corpus, 2)
    assert found == (1.0, 1.0, pytest.approx(1 / (1 + 1)))  # two turns deep: relevance 0, 1 of an ideal 1, 1


@pytest.mark.parametrize(
    ("question", "expected"), list(zip(_LOCOMO["file"]["qa"], _LOCOMO["file"]["recall"], strict=True))
)
def test_locomo_recall_as_its_own_scorer(question: dict, expected: float) -> None:
    assert r.official_locomo_recall(question["evidence"], question["p_context"]) == expected


def test_locomo_recall_of_nothing_found() -> None:
    assert r.official_locomo_recall([], []) == 1.0
    with pytest.raises(BadInput):
        r.official_locomo_recall(["D1:1"], [])
