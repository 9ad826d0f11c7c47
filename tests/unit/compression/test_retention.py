"""Retention index, lift, rubric level, drift, curves, resumption: worked by hand, and by simulation where only that can
tell.
"""

import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.compression.drift import DriftProbe, drift
from context_bench.compression.session_rules.artifacts import ResumedCall, resumed
from context_bench.stats.lift import Lift, Sized, bd_rates, family_of, lifts, rate_curves, retention_index, rubric_level

SESSIONS = [f"s{number // 4}" for number in range(40)]  # ten of four probes
UNIT = st.floats(0, 1)


def test_the_index_is_between_nothing_and_everything():
    full, none = [0.9] * 40, [0.1] * 40
    assert retention_index(full, full, none).value == pytest.approx(1)
    assert retention_index(none, full, none, resamples=100).value == pytest.approx(0)
    half = retention_index([0.5] * 40, full, none, SESSIONS)
    assert half.value == pytest.approx(0.5)
    assert (half.n, half.clusters) == (40, 10)
    assert retention_index([1.0] * 40, full, none, resamples=100).value > 1
    assert retention_index([0.0] * 40, full, none, resamples=100).value < 0


def test_it_is_undefined_where_there_is_nothing_to_retain():
    told = retention_index([0.5] * 40, [0.54] * 40, [0.5] * 40, SESSIONS)
    assert told.value is None
    assert told.gap == pytest.approx(0.04)
    assert "nothing to retain" in told.why
    assert retention_index([2.5] * 40, [2.7] * 40, [2.5] * 40, SESSIONS, scale=5).value is None
    assert retention_index([2.5] * 40, [2.8] * 40, [2.5] * 40, SESSIONS, scale=5).value == pytest.approx(0)
    assert retention_index([], [], [], []).value is None


def test_too_few_sessions_have_no_interval():
    few = retention_index([0.5, 0.7] * 8, [0.9] * 16, [0.1] * 16, ["a", "b", "c", "d"] * 4)
    assert few.value is not None
    assert few.low is None
    assert few.why.startswith("4 sessions are too few")
    assert retention_index([0.5, 0.7], [0.9] * 2, [0.1] * 2, ["a"] * 2).why.startswith("1 session is too few")


@settings(max_examples=40)
@given(st.lists(st.tuples(UNIT, UNIT, UNIT), min_size=1, max_size=30), st.floats(0.2, 5), st.floats(-2, 2))
def test_the_index_does_not_depend_on_the_scale(rows, factor, shift):
    own, full, none = ([row[at] for row in rows] for at in range(3))
    plain = retention_index(own, full, none, resamples=100)
    if plain.gap is not None and abs(plain.gap - 0.05) < 1e-6:
        return
    moved = retention_index(
        *([factor * x + shift for x in each] for each in (own, full, none)), scale=factor, resamples=100
    )
    assert (plain.value is None) == (moved.value is None)
    if plain.value is not None:
        assert moved.value == pytest.approx(plain.value, rel=1e-6, abs=1e-6)


def test_its_interval_covers_the_truth():
    """200 runs of 12 sessions: nominal 95 %, at least 90 % is asked below 20 clusters."""
    covered = 0
    for seed in range(200):
        draw = random.Random(seed)
        own, full, none, sessions = [], [], [], []
        for session in range(12):
            hard = draw.uniform(-0.2, 0.2)
            for _ in range(5):
                for values, mean in ((own, 0.5), (full, 0.7), (none, 0.2)):
                    values.append(float(draw.random() < mean + hard))
                sessions.append(session)
        told = retention_index(own, full, none, sessions, seed=seed, resamples=400)
        covered += told.low is not None and told.low <= 0.6 <= told.high
    assert covered >= 180


def test_lift_is_what_truncation_does_not_do():
    draw = random.Random(1)
    sessions = [number // 2 for number in range(80)]
    truncated = [draw.choice((0.2, 0.6)) for _ in sessions]
    better = [value + 0.4 for value in truncated]
    none = [0.0] * 80
    told = lifts(
        [
            Lift("clever", "head_tail@clever", better, truncated, sessions, {"none": none}),
            Lift("same", "head_tail@same", truncated, truncated, sessions, {"none": none}),
        ],
        metric="probe_score",
        margin=0.1,
    )
    assert told[0].verdict == "better"
    assert told[0].difference == pytest.approx(0.4)
    assert told[0].low > 0
    assert told[1].difference == 0
    assert told[1].low < 0 < told[1].high
    assert "head_tail@same" in told[1].sentence


def test_the_overall_of_a_system_is_the_mean_of_its_dimensions():
    probes = [{"accuracy": 4.0, "continuity": 2.0}, {"accuracy": 5.0}, {"accuracy": 3.0}, {}]
    level = rubric_level(probes, ["a", "b", "c", "d"])
    assert level.dimensions["accuracy"].value == pytest.approx(4.0)
    assert level.dimensions["continuity"].value == pytest.approx(2.0)
    assert level.overall.value == pytest.approx(3.0)
    assert level.overall_probe_mean.value == pytest.approx((3 + 5 + 3) / 3)
    assert level.overall.n == 3
    assert rubric_level([{}], ["a"]).overall is None


def test_rubric_intervals_hold_the_mean():
    draw = random.Random(2)
    probes = [{"accuracy": draw.uniform(2, 5), "completeness": draw.uniform(0, 3)} for _ in SESSIONS]
    level = rubric_level(probes, SESSIONS)
    for each in (*level.dimensions.values(), level.overall, level.overall_probe_mean):
        assert 0 <= each.low < each.value < each.high <= 5


def asked(curve, *, sessions=8, noise=0.05, contradicts=0.0):
    draw = random.Random(3)
    return [
        DriftProbe(
            f"{session}#{probe}",
            session,
            cycle,
            min(1.0, max(0.0, value + draw.uniform(-noise, noise))),
            contradicts * (cycle - 1),
        )
        for session in range(sessions)
        for probe in range(3)
        for cycle, value in enumerate(curve, 1)
    ]


def test_drift_has_a_slope_and_a_half_life():
    told = drift(asked([0.9, 0.6, 0.3], contradicts=0.5), asked([0.9] * 3), asked([0.1] * 3))
    assert told.slope.value == pytest.approx(-0.3, abs=0.02)
    assert told.slope.low < -0.3 + 0.02 < told.slope.high + 0.04
    assert told.half_life == 3
    assert told.retention[1].value == pytest.approx(1, abs=0.1)
    assert told.resistance == pytest.approx(0.4, abs=0.03)
    assert [round(each.value, 2) for each in told.contradictions.values()] == [0.0, 0.5, 1.0]
    assert all(each.low is not None for each in told.cycles.values())


def test_drift_wants_two_cycles_and_whole_sessions():
    assert drift(asked([0.9])) is None
    ragged = [one for one in asked([0.9, 0.8]) if not (one.session == 0 and one.cycle == 2)]
    told = drift(ragged)
    assert (told.n, told.left_out) == (21, 3)
    assert told.half_life is None
    flat = drift(asked([0.5, 0.5], noise=0.0))
    assert flat.slope.value == 0
    assert flat.resistance == 1


def test_systems_of_one_family_differ_in_size_only():
    assert family_of("bm25:keep=0.1") == family_of("bm25:keep=0.3") == "bm25"
    assert family_of("bm25:keep=0.1,k1=2") == "bm25:k1=2"
    assert family_of("py:my.mod:Class") == "py:my.mod:Class"
    assert family_of("anchored") == "anchored"


def sizes(qualities, folds=(2, 4, 8, 16), n=40):
    return [
        Sized(f"x:keep={1 / fold:g}", [quality] * n, [1000.0] * n, [1000.0 / fold] * n)
        for fold, quality in zip(folds, qualities, strict=True)
    ]


def test_a_curve_that_never_falls_has_the_whole_area():
    [curve] = rate_curves({"x": sizes([0.8] * 4)}, [0.8] * 40, SESSIONS)
    assert curve.aurq.value == pytest.approx(1)
    assert curve.fold_at_95.value == pytest.approx(16)
    assert not curve.reached
    assert [point.fold for point in curve.points] == pytest.approx([2, 4, 8, 16])


def test_a_curve_that_falls_linearly_in_log2_has_half_of_it():
    full = [0.8] * 40
    [curve] = rate_curves({"x": sizes([0.8 * (1 - step / 3) for step in (1, 2, 3)], (2, 4, 8))}, full, SESSIONS)
    assert curve.up_to == 8
    assert curve.aurq.value == pytest.approx(0.5)
    assert curve.fold_at_95.value == pytest.approx(2 ** (0.05 * 3))
    assert curve.reached


def test_curves_share_their_reach_and_have_intervals():
    draw = random.Random(4)
    full = [draw.uniform(0.6, 1) for _ in SESSIONS]
    made = {
        name: [
            Sized(
                f"{name}:keep={1 / f}", [v * s for v in full], [100.0] * 40, [draw.uniform(80, 120) / f for _ in full]
            )
            for f, s in steps
        ]
        for name, steps in {"a": [(2, 0.9), (4, 0.7)], "b": [(2, 0.95), (16, 0.5)]}.items()
    }
    for curve in rate_curves(made, full, SESSIONS):
        assert 3 < curve.up_to < 5
        assert curve.aurq.low < curve.aurq.value < curve.aurq.high
    assert rate_curves({"one": sizes([0.5], (2,))}, [0.8] * 40, SESSIONS) == []


def test_token_savings_at_equal_quality():
    one = [
        Sized("", [quality], [100.0], [tokens])
        for tokens, quality in ((50.0, 0.9), (30.0, 0.8), (20.0, 0.6), (10.0, 0.3))
    ]
    other = [Sized("", size.scores, size.before, [0.8 * size.after[0]]) for size in one]
    [(pair, rate)] = bd_rates({"one": one, "other": other}).items()
    assert pair == ("one", "other")
    assert rate == pytest.approx(-20, abs=0.01)
    assert bd_rates({"one": one[:3], "other": other}) == {}


def test_reading_again_what_was_known_is_a_refetch():
    before = [ResumedCall(1, ("a",)), ResumedCall(2, ("b",)), ResumedCall(3, (), ("b",))]
    after = [
        ResumedCall(10, ("a",)),
        ResumedCall(11, ("a", "b")),
        ResumedCall(12, ("c",)),
        ResumedCall(12, ("b",)),
        ResumedCall(13, (), ("a",)),
    ]
    told = resumed(before, after)
    assert (told.refetches, told.calls) == (2, 5)  # a, and b for the second time
    assert told.refetch_rate == pytest.approx(0.4)
    assert told.rounds_to_resume == 1  # b was changed, so reading it is news
    assert resumed(before, []).refetch_rate is None
    assert resumed(before, [ResumedCall(4, ("a",))]).rounds_to_resume is None


@settings(max_examples=40)
@given(st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=25))
def test_lift_is_the_mean_difference(pairs):
    own, cut = [a for a, _ in pairs], [b for _, b in pairs]
    [told] = lifts([Lift("s", "head_tail@s", own, cut, list(range(len(pairs))))], margin=0.02)
    assert told.difference == pytest.approx(math.fsum(a - b for a, b in pairs) / len(pairs), abs=1e-9)
