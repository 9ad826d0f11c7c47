"""Each system against truncation to its own size: which pairs there are, what is said of them, what they do to other
verdicts.
"""

import pytest

from context_bench.core.records import EvalRow
from context_bench.core.roles import CANDIDATE, control_role
from context_bench.engine.run_summary import summarise
from context_bench.metrics import CompressionRatio, MeanScore
from context_bench.reports.json_document import render
from context_bench.reports.page import build_page
from context_bench.results import EvalResult
from context_bench.systems.control import system_role


def rows(name, score, n=200, forwarded=300):
    return [
        EvalRow(
            name,
            i,
            {"f1": float(score(i) if callable(score) else score)},
            1000,
            forwarded,
            {"shape": "plain-user"},
            1.0,
            "d",
        )
        for i in range(n)
    ]


def role_of(name):
    kind, _, of = name.partition("@")
    return control_role(kind, of=of) if of else system_role(name) if name != "mine" else CANDIDATE


def found(systems, **settings):
    by = {name: rows(name, *(told if isinstance(told, tuple) else (told,))) for name, told in systems.items()}
    roles = {name: role_of(name) for name in by}
    told = summarise(
        by.__getitem__,
        list(by),
        [MeanScore("f1"), CompressionRatio()],
        **{"score_field": "f1", "roles": roles, **settings},
    )
    return told, [row for each in by.values() for row in each]


def most(i):
    return i % 4 != 0


def half(i):
    return i % 2 == 0


def test_a_system_is_held_against_truncation_of_its_size():
    told, _ = found(
        {"full": 1, "mine": most, "none": 0, "head_tail@mine": half, "random_drop@mine": lambda i: i % 8 == 1}
    )
    [lift] = told.lifts
    assert (lift.system, lift.baseline, lift.verdict) == ("mine", "head_tail@mine", "better")
    assert lift.difference == pytest.approx(0.25)
    assert lift.low < 0.25 < lift.high
    assert lift.sentence.startswith(
        "mine keeps 75 % of what the context is worth, truncation to the same size 50 %. mine with plain-user "
        "requests: better than "
        "truncation to the same size (head_tail@mine): f1 +25.0 points"
    )
    assert [each.system for each in told.comparisons] == ["mine", "none", "head_tail@mine", "random_drop@mine"]


@pytest.mark.parametrize(
    ("mine", "cut", "verdict"),
    [(half, most, "inferior"), (most, most, "non-inferior"), (0.5, lambda i: 0.5 + 0.49 * (-1) ** i, "undecided")],
)
def test_the_other_verdicts(mine, cut, verdict):
    told, _ = found({"full": 1, "mine": mine, "none": 0, "head_tail@mine": cut}, margin=0.02)
    assert [lift.verdict for lift in told.lifts] == [verdict]


def test_systems_of_ones_own_are_one_family_and_controls_none():
    names = ("a", "b", "c")
    told, _ = found({"full": 1, "none": 0} | dict.fromkeys(names, most) | {f"head_tail@{name}": half for name in names})
    assert [lift.system for lift in told.lifts] == list(names)
    assert all("Holm-corrected over 3 systems" in lift.sentence for lift in told.lifts)


def test_truncation_of_a_fixed_size_stands_in_where_it_is_as_large():
    same = {"full": 1, "none": 0, "mine": (most, 200, 300), "head_tail": (half, 200, 306)}
    assert [lift.baseline for lift in found(same)[0].lifts] == ["head_tail"]
    assert not found(same | {"head_tail": (half, 200, 400)})[0].lifts
    named = {"full": 1, "none": 0, "bm25:keep=0.3": most, "head_tail:keep=0.3": half}
    assert [(lift.system, lift.baseline) for lift in found(named)[0].lifts] == [("bm25:keep=0.3", "head_tail:keep=0.3")]


def test_nothing_is_said_of_what_the_context_is_worth_where_it_is_worth_nothing():
    told, _ = found({"full": 0.5, "mine": 0.5, "none": 0.5, "head_tail@mine": 0.5})
    assert not told.lifts[0].sentence.startswith("mine keeps")
    told, _ = found({"full": 1, "mine": most, "head_tail@mine": half}, baseline="full")
    assert told.lifts[0].sentence.startswith("mine with plain-user requests: better than truncation")


def test_the_card_says_it_first_and_json_keeps_it():
    told, all_rows = found({"full": 1, "mine": most, "none": 0, "head_tail@mine": half})
    result = EvalResult(
        rows=all_rows, summary=told.summary, estimates=told.estimates, comparisons=told.comparisons, lifts=told.lifts
    )
    page = build_page(result)
    assert [(each.system, each.verdict) for each in page.verdicts[:2]] == [
        ("mine", "better than truncation"),
        ("mine", "inferior"),
    ]
    assert page.verdicts[0].tone == "good"
    assert not page.verdicts[0].control
    assert [table.id for table in page.section("comparisons").tables] == ["comparisons", "truncation"]
    again = EvalResult.from_json(render(page))
    assert again.lifts == told.lifts
    assert not again.filter(system="mine").lifts


def priced(**systems):
    """The notes on a run whose systems have `(score, cost)`; of 200 examples, in one family."""
    by = {name: rows(name, score) for name, (score, _) in systems.items()}
    for name, (_, cost) in systems.items():
        for row in by[name]:
            row.usage = {} if cost is None else {"cost": cost}
    told = summarise(
        by.__getitem__,
        list(by),
        [MeanScore("f1")],
        score_field="f1",
        roles={name: role_of(name) if name in ("full", "none") else CANDIDATE for name in by},
    )
    return [note for note in told.notes if "doing nothing at its price" in note]


def test_a_system_is_held_against_what_its_price_buys_without_it():
    notes = priced(full=(1, 5.0), none=(0, 1.0), good=(most, 3.0), bad=(most, 4.8))
    assert len(notes) == 2
    assert notes[0].startswith(
        "good: better than doing nothing at its price (full for 50 % of the examples, none "
        "for the rest): f1 +25.0 points"
    )
    assert "Holm-corrected over 2 systems" in notes[0]
    assert notes[1].startswith("bad: ")
    assert "full for 95 % of the examples" in notes[1]
    assert "better than" not in notes[1]


@pytest.mark.parametrize("missing", ["full", "none", "good"])
def test_without_all_three_prices_nothing_is_said_of_doing_nothing(missing):
    costs = {"full": 5.0, "none": 1.0, "good": 3.0} | {missing: None}
    scores = {"full": 1, "none": 0, "good": most}
    assert not priced(**{name: (scores[name], cost) for name, cost in costs.items()})
