"""Rows of which the same requests arrived count as difference 0, whatever was answered; a noise floor does not."""

import random

import pytest

from context_bench.core.records import EvalRow
from context_bench.core.roles import ArmRole
from context_bench.engine.run_summary import summarise

ROLES = {
    "full": ArmRole("baseline", "full", added=True),
    "full#2": ArmRole("noise_floor", "full", "full"),
    "none": ArmRole("known_bad", "none"),
    "mine": ArmRole(),
}


def digits(number):
    return f"{number:013x}"


def row(system, number, score, arrived=None, **wire):
    told = {"source": "tap", **({} if arrived is None else {"arrived_as": arrived}), **wire}
    return EvalRow(system, number, {} if score is None else {"f1": score}, dataset="d", wire=told)


def made(n, untouched, *, seed=0, second=None):
    """`n` examples with a fifth of answers that fall anew; `mine` got the same requests for a share of them."""
    rng = random.Random(seed)
    fresh = lambda: float(rng.random() < 0.8)  # noqa: E731
    rows = {"full": [], "full#2": [], "none": [], "mine": []}
    for number in range(n):
        same = number < untouched * n
        rows["full"].append(row("full", number, fresh(), digits(number)))
        rows["full#2"].append(row("full#2", number, fresh(), digits(number)))
        rows["none"].append(row("none", number, 0.0, digits(n + number)))
        rows["mine"].append(row("mine", number, fresh(), digits(number if same else 2 * n + number)))
    return rows


def said(rows, **more):
    return summarise(rows.__getitem__, list(rows), [], score_field="f1", margin=0.05, roles=ROLES, **more)


def of(found, system):
    return next(one for one in found.comparisons if one.system == system)


def test_untouched_rows_are_no_difference_and_the_noise_floor_still_is():
    found = said(made(200, 1.0))
    assert (of(found, "mine").difference, of(found, "mine").verdict) == (0, "non-inferior")
    assert of(found, "full#2").difference != 0
    assert "mine: 200 of 200 rows arrived as full's had" in " ".join(found.notes)
    assert not any(note.startswith("full#2: ") for note in found.notes)


@pytest.mark.parametrize("arrived", [None, "", "xyz", 7, "00000000000zz"])
def test_without_a_digest_of_both_nothing_is_known(arrived):
    rows = made(200, 1.0)
    for each in rows["mine"]:
        each.wire["arrived_as"] = arrived
    assert of(said(rows), "mine").difference == pytest.approx(
        sum(a.scores["f1"] - b.scores["f1"] for a, b in zip(rows["mine"], rows["full"], strict=True)) / 200
    )


def test_a_row_that_could_not_be_scored_is_left_out_all_the_same():
    rows = made(200, 1.0)
    rows["mine"][3].scores, rows["mine"][3].errors = {}, {"answer_quality": "Broken: no"}
    found = of(said(rows), "mine")
    assert (found.n, found.excluded) == (199, 1)


def test_less_noise_is_left_by_the_share_that_is_untouched():
    widths = []
    for share in (0.0, 0.5, 0.8, 1.0):
        found = of(said(made(400, share)), "mine")
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[2] < 0.6 * widths[0]
    assert widths[1] < 0.85 * widths[0]


def test_beside_a_baseline_that_gave_two_answers_untouched_rows_are_still_zero():
    found = said(made(200, 1.0), planned={"design": {"second_baseline": {"full": "full#2"}}})
    assert of(found, "mine").difference == 0


def test_verdicts_say_what_rests_on_an_assumption():
    rows = made(200, 0.5)
    for each in rows["mine"][:40]:
        each.wire |= {"copied": 1, "assumed": 1}
    found = said(rows)
    assert "This takes 40 rows of mine for unchanged, unasked" in of(found, "mine").sentence
    assert "mine: 60 of 200 rows arrived as full's had" in " ".join(found.notes)
    assert "assum" not in of(found, "none").sentence
