"""The one sentence of a run in which nobody could have won: when it is said, and how many more examples it asks for."""

import random

import pytest

from context_bench.core.records import EvalRow
from context_bench.core.roles import roles_of_old_names
from context_bench.engine.run_summary import summarise
from context_bench.stats.verdict import weigh
from context_bench.stats.verdict.evidence import could_not_win, distinguishable, is_headline


def said(gaps, clusters, **options):
    ones = [1.0] * len(gaps)
    evidence = weigh(ones, [1.0 - gap for gap in gaps], clusters, margin=0.02)
    assert not distinguishable(evidence)
    options = {"what": "memory", "by_cluster": True, **options}
    return could_not_win("oracle", "bm25", evidence, gaps, clusters, **options)


def asked(sentence):
    return int(sentence.rpartition("-n ")[2].rstrip(".").replace(",", ""))


def test_what_it_asks_for_is_enough_for_the_test_that_decides():
    draw = random.Random(7)
    gaps = [float(number in (3, 17)) for number in range(30)]
    sentence = said(gaps, [number // 5 for number in range(30)])
    assert sentence.startswith(
        "This run could not tell the ceiling (oracle) from bm25: no memory could have won. Ask again with -n "
    )
    assert is_headline(sentence)
    told = 0
    for _ in range(60):
        more = [float(draw.random() < sum(gaps) / 30) for _ in range(5 * asked(sentence))]
        told += distinguishable(
            weigh([1.0] * len(more), [1.0 - gap for gap in more], [n // 5 for n in range(len(more))], margin=0.02)
        )
    assert told >= 0.7 * 60  # an 80 % chance; of 60 draws fewer than 42 would be far out
    examples = said(gaps, None, by_cluster=False, what="system")
    assert "no system could have won" in examples
    assert asked(examples) > 30


@pytest.mark.parametrize(
    ("gaps", "words"), [([0.0] * 8, "harder ones would"), ([0.0] * 7 + [-0.5], "leaves nothing to gain")]
)
def test_more_examples_are_not_asked_for_where_there_is_nothing_to_win(gaps, words):
    assert words in said(gaps, None)


def test_a_gap_that_no_number_in_reach_would_show():
    assert "more than 64 times" in said([0.001, *[0.0] * 11], None)


def rows(system, scores):
    return [
        EvalRow(system=system, example_id=n, scores=one, input_tokens=9, output_tokens=9, dataset="d")
        for n, one in enumerate(scores)
    ]


def summed(score, by_system, **options):
    found = {system: rows(system, scores) for system, scores in by_system.items()}
    return summarise(found.get, list(found), [], score_field=score, roles=roles_of_old_names(found), **options)


@pytest.mark.parametrize("ceiling", ["oracle", "full"])
def test_every_family_with_a_ceiling_says_it_once_and_first(ceiling):
    weak = [{"f1": 0.9 if n % 4 else 1.0} for n in range(12)]
    found = summed(
        "f1",
        {"cut": weak, "mine": weak[::-1], ceiling: [{"f1": 1.0}] * 12},
        baseline="cut",
        by_cluster=ceiling == "oracle",
    )
    assert found.notes[0].startswith(
        f"This run could not tell the ceiling ({ceiling}) from cut: no {'memory' if ceiling == 'oracle' else 's'}"
    )
    (mine,) = [each for each in found.comparisons if each.system == "mine"]
    assert mine.verdict == "undecided"
    assert "would decide" not in mine.sentence
    clear = summed("f1", {"cut": [{"f1": 0.0}] * 12, "mine": weak, ceiling: [{"f1": 1.0}] * 12}, baseline="cut")
    assert not any(is_headline(note) for note in clear.notes)
    base = summed("f1", {ceiling: [{"f1": 1.0}] * 12, "mine": weak}, baseline=ceiling)
    assert not any(is_headline(note) for note in base.notes)


def test_what_does_not_rank_has_no_figures_of_rank_and_no_verdict():
    every = {"recall_at_5": 0.2, "mrr": 0.1, "evidence_recall": 1.0, "f1": 0.5}
    given = {
        "bm25": [every] * 8,
        "mine": [every] * 8,
        "full_context": [every] * 8,
        "oracle": [every | {"recall_at_5": 1.0}] * 8,
    }
    found = summed("recall_at_5", given, baseline="bm25", unranked=("full_context", "oracle"))
    assert {each.system for each in found.comparisons} == {"mine"}
    assert {"evidence_recall", "f1"} <= set(found.estimates["oracle"])
    assert not {"recall_at_5", "mrr"} & (set(found.estimates["oracle"]) | set(found.estimates["full_context"]))
    assert {"recall_at_5", "mrr"} <= set(found.estimates["mine"])
    answers = summed("f1", given, baseline="full_context", unranked=("full_context", "oracle"))
    assert {each.system for each in answers.comparisons} == {"bm25", "mine", "oracle"}
    against = summed("recall_at_5", given, baseline="full_context", unranked=("full_context", "oracle"))
    assert against.comparisons == []
    assert "full_context does not rank" in against.notes[0]
